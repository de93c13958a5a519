#include "kernels/backend.h"

#include "kernels/cpu/cpu_backend.h"

#include <string.h>

static const struct {
    const char *name;
    struct backend *(*open)(const struct backend_config *config, struct error *err);
} backends[] = {
    {"cpu", cpu_backend_open},
    {"cpu-ref", cpu_ref_open},
};

struct backend *backend_open(const char *name, const struct backend_config *config,
                             struct error *err) {
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(name, backends[i].name) == 0)
            return backends[i].open(config, err);
    error_set(err, ERROR_CONFIG, "unknown device '%s': must be cpu or cpu-ref", name);
    return NULL;
}

void backend_close(struct backend *b) {
    if (b != NULL)
        b->ops->destroy(b);
}

size_t kv_block_bytes(const struct kv_layout *layout) {
    size_t elements = (size_t)layout->num_layers * 2 * (size_t)layout->num_kv_heads *
                      (size_t)layout->block_size * (size_t)layout->head_dim;
    return dtype_row_bytes(layout->dtype, elements);
}
