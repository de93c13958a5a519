/* Copies of whole KV blocks, for both CPU backends. A block is contiguous for any order of the
 * elements within its heads, so a block of the host's pool has the same bytes as the device's. */
#include "kernels/cpu/cpu_backend.h"

#include <string.h>

static char *block_at(void *pool, int32_t block, size_t block_bytes) {
    return (char *)pool + (size_t)block * block_bytes;
}

void cpu_copy_blocks(struct backend *b, const struct copy_blocks_args *args) {
    size_t bytes = kv_block_bytes(&args->cache->layout);
    void *pool = args->cache->buffer.data;
    for (int32_t i = 0; i < args->num_blocks; i++)
        memcpy(block_at(pool, args->dst[i], bytes), block_at(pool, args->src[i], bytes), bytes);
}

void cpu_swap_blocks(struct backend *b, const struct swap_blocks_args *args) {
    size_t bytes = kv_block_bytes(&args->cache->layout);
    for (int32_t i = 0; i < args->num_blocks; i++) {
        char *device = block_at(args->cache->buffer.data, args->device_blocks[i], bytes);
        char *host = block_at(args->host_pool, args->host_blocks[i], bytes);
        if (args->direction == SWAP_OUT)
            memcpy(host, device, bytes);
        else
            memcpy(device, host, bytes);
    }
}
