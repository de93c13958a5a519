/* Speed of whole KV blocks copied within the pool and swapped with the host's (10^9 bytes moved per
 * second), beside one memcpy of as many bytes. Best of several repeats.
 *
 *   bench_blocks [NUM_BLOCKS]     default: 64 in a call
 *
 * Blocks have the shape of SmolLM2-135M's, lie apart in pools larger than any cache, and are others
 * in each repeat. */
#include "kernels/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPEATS 8
#define POOL_BLOCKS 1024
#define MAX_MOVED 128 /* of a call */

struct bench {
    struct backend *backend;
    struct kv_cache cache;
    struct buffer host_pool;
    size_t block_bytes;
    int32_t num_moved;
    int32_t from[MAX_MOVED], to[MAX_MOVED];
};

_Noreturn static void fail(const char *message) {
    fprintf(stderr, "bench_blocks: %s\n", message);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void call_memcpy(struct bench *b) {
    char *pool = b->cache.buffer.data;
    memcpy(pool + (size_t)b->to[0] * b->block_bytes, pool + (size_t)b->from[0] * b->block_bytes,
           (size_t)b->num_moved * b->block_bytes);
}

static void call_copy(struct bench *b) {
    b->backend->ops->copy_blocks(
        b->backend,
        &(struct copy_blocks_args){
            .cache = &b->cache, .src = b->from, .dst = b->to, .num_blocks = b->num_moved});
}

static void swap(struct bench *b, enum swap_direction direction) {
    b->backend->ops->swap_blocks(b->backend,
                                 &(struct swap_blocks_args){.cache = &b->cache,
                                                            .host_pool = b->host_pool.data,
                                                            .direction = direction,
                                                            .device_blocks = b->from,
                                                            .host_blocks = b->to,
                                                            .num_blocks = b->num_moved});
}

static void call_swap_out(struct bench *b) {
    swap(b, SWAP_OUT);
}

static void call_swap_in(struct bench *b) {
    swap(b, SWAP_IN);
}

/* Every stride-th block of the two halves of a pool, from the repeat's own first one. */
static void choose_blocks(struct bench *b, int repeat, int32_t stride) {
    int32_t half = POOL_BLOCKS / 2;
    for (int32_t i = 0; i < b->num_moved; i++) {
        b->from[i] = (repeat * b->num_moved + i * stride) % half;
        b->to[i] = half + b->from[i];
    }
}

static void measure(struct bench *b, const char *name, int32_t stride,
                    void (*call)(struct bench *)) {
    double best = INFINITY, bytes = (double)b->num_moved * (double)b->block_bytes;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        choose_blocks(b, repeat % (POOL_BLOCKS / 2 / MAX_MOVED), stride);
        double begin = now();
        call(b);
        best = fmin(best, now() - begin);
    }
    printf("%-12s %3d x %zu bytes: %8.1f us, %5.1f GB/s\n", name, b->num_moved, b->block_bytes,
           best * 1e6, bytes / best * 1e-9);
}

int main(int argc, char **argv) {
    const struct backend_config config = {.limits.max_num_batched_tokens = 1,
                                          .limits.max_num_seqs = 1};
    struct error err = {0};
    static struct bench b;
    b.backend = backend_open("cpu", &config, &err);
    if (b.backend == NULL)
        fail(err.message);
    b.num_moved = argc > 1 ? atoi(argv[1]) : 64;
    if (b.num_moved < 1 || b.num_moved > MAX_MOVED)
        fail("the number of blocks must be from 1 to 128");
    b.cache = (struct kv_cache){.layout = {.num_layers = 30,
                                           .num_kv_heads = 3,
                                           .head_dim = 64,
                                           .block_size = 16,
                                           .dtype = DTYPE_F16},
                                .num_blocks = POOL_BLOCKS};
    b.block_bytes = kv_block_bytes(&b.cache.layout);
    const struct backend_ops *ops = b.backend->ops;
    if (ops->buffer_alloc(b.backend, POOL_BLOCKS * b.block_bytes, &b.cache.buffer, &err) != 0 ||
        ops->host_alloc(b.backend, POOL_BLOCKS * b.block_bytes, &b.host_pool, &err) != 0)
        fail(err.message);
    memset(b.cache.buffer.data, 1, b.cache.buffer.bytes); /* pages that are there */
    memset(b.host_pool.data, 2, b.host_pool.bytes);
    measure(&b, "memcpy", 1, call_memcpy);
    measure(&b, "copy_blocks", 3, call_copy);
    measure(&b, "swap out", 3, call_swap_out);
    measure(&b, "swap in", 3, call_swap_in);
    ops->buffer_free(b.backend, &b.cache.buffer);
    ops->host_free(b.backend, &b.host_pool);
    backend_close(b.backend);
    return 0;
}
