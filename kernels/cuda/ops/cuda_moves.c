/* KV block moves: blocks copied within the pool, and swapped with the host's. */
#include "config/base/numbers.h"
#include "kernels/cuda/ops/copy_blocks_launch.h"
#include "kernels/cuda/state/cuda_check.h"
#include "kernels/cuda/step/cuda_staging.h"
#include "kernels/cuda/step/cuda_streams.h"

#include <string.h>

/* As many pairs as the list holds: the sources, then the destinations. */
static void copy_listed(struct cuda_backend *b, struct kv_cache *cache, const int32_t *src,
                        const int32_t *dst, int32_t num_blocks) {
    struct block_set blocks = {0};
    size_t bytes = (size_t)num_blocks * sizeof(int32_t);
    int32_t *list = b->step.moved_pairs, *pinned = cuda_staging_reserve(b, 2 * bytes);
    if (pinned == NULL)
        return;
    memcpy(pinned, src, bytes);
    memcpy(pinned + num_blocks, dst, bytes);
    block_set_add(&blocks, src, num_blocks);
    block_set_add(&blocks, dst, num_blocks);
    cudaStream_t stream = cuda_streams_for_move(b, &blocks, cache->layout.block_size);
    CUDA_TRY(b, cudaMemcpyAsync(list, pinned, 2 * bytes, cudaMemcpyHostToDevice, stream));
    CUDA_TRY(b, launch_copy_blocks(stream, cache->buffer.data, kv_block_bytes(&cache->layout), list,
                                   list + num_blocks, num_blocks));
}

void cuda_copy_blocks(struct backend *base, const struct copy_blocks_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    for (int32_t first = 0, count; first < args->num_blocks && CUDA_OK(b); first += count) {
        count = min_int32(args->num_blocks - first, CUDA_LIST_LENGTH / 2);
        copy_listed(b, args->cache, args->src + first, args->dst + first, count);
    }
}

/* Counts the pairs from `first` on that are neighbours on both sides, and so one copy. */
static int32_t run_length(const struct swap_blocks_args *args, int32_t first) {
    int32_t n = 1;
    while (first + n < args->num_blocks &&
           args->device_blocks[first + n] == args->device_blocks[first] + n &&
           args->host_blocks[first + n] == args->host_blocks[first] + n)
        n++;
    return n;
}

static void swap_on(struct cuda_backend *b, cudaStream_t stream,
                    const struct swap_blocks_args *args) {
    size_t block_bytes = kv_block_bytes(&args->cache->layout);
    for (int32_t i = 0, n; i < args->num_blocks && CUDA_OK(b); i += n) {
        n = run_length(args, i);
        char *device =
            (char *)args->cache->buffer.data + (size_t)args->device_blocks[i] * block_bytes;
        char *host = (char *)args->host_pool + (size_t)args->host_blocks[i] * block_bytes;
        if (args->direction == SWAP_OUT)
            CUDA_TRY(b, cudaMemcpyAsync(host, device, (size_t)n * block_bytes,
                                        cudaMemcpyDeviceToHost, stream));
        else
            CUDA_TRY(b, cudaMemcpyAsync(device, host, (size_t)n * block_bytes,
                                        cudaMemcpyHostToDevice, stream));
    }
}

void cuda_swap_blocks(struct backend *base, const struct swap_blocks_args *args) {
    struct cuda_backend *b = cuda_state_of(base);
    struct block_set blocks = {0};
    if (args->num_blocks == 0)
        return;
    block_set_add(&blocks, args->device_blocks, args->num_blocks);
    swap_on(b, cuda_streams_for_move(b, &blocks, args->cache->layout.block_size), args);
}
