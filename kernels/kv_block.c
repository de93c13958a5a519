#include "kernels/backend.h"

size_t kv_block_bytes(const struct kv_layout *layout) {
    size_t elements = (size_t)layout->num_layers * 2 * (size_t)layout->num_kv_heads *
                      (size_t)layout->block_size * (size_t)layout->head_dim;
    return dtype_row_bytes(layout->dtype, elements);
}
