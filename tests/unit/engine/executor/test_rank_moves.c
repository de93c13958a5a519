/* Blocks of one byte's value each, so that it shows where each of them came from. */
#include "engine/executor/rank.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define NUM_BLOCKS 8
#define NUM_HOST_BLOCKS 4

struct pools {
    struct backend *backend;
    struct kv_cache cache;
    struct buffer host;
    size_t block_bytes;
};

static void mark(struct pools *p, void *pool, int32_t num_blocks, int first) {
    for (int32_t i = 0; i < num_blocks; i++)
        memset((char *)pool + (size_t)i * p->block_bytes, first + i, p->block_bytes);
}

static void assert_marks(struct pools *p, const void *pool, int32_t num_blocks, const int *marks) {
    const unsigned char *bytes = pool;
    for (size_t i = 0; i < (size_t)num_blocks * p->block_bytes; i++)
        if (bytes[i] != marks[i / p->block_bytes])
            fail_msg("block %zu holds %d instead of %d", i / p->block_bytes, bytes[i],
                     marks[i / p->block_bytes]);
}

static int open_pools(void **state) {
    static struct pools pools;
    const struct backend_config config = {.num_threads = 1, .limits.max_num_batched_tokens = 1};
    const struct kv_layout layout = {
        .num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_size = 16, .type = KV_F16};
    pools = (struct pools){.backend = backend_open("cpu-ref", &config, NULL),
                           .block_bytes = kv_block_bytes(&layout)};
    assert_non_null(pools.backend);
    const struct backend_ops *ops = pools.backend->ops;
    pools.cache = (struct kv_cache){.layout = layout, .num_blocks = NUM_BLOCKS};
    assert_int_equal(
        ops->buffer_alloc(pools.backend, NUM_BLOCKS * pools.block_bytes, &pools.cache.buffer, NULL),
        0);
    assert_int_equal(
        ops->host_alloc(pools.backend, NUM_HOST_BLOCKS * pools.block_bytes, &pools.host, NULL), 0);
    mark(&pools, pools.cache.buffer.data, NUM_BLOCKS, 10);
    mark(&pools, pools.host.data, NUM_HOST_BLOCKS, 50);
    *state = &pools;
    return 0;
}

static int close_pools(void **state) {
    struct pools *p = *state;
    p->backend->ops->buffer_free(p->backend, &p->cache.buffer);
    p->backend->ops->host_free(p->backend, &p->host);
    backend_close(p->backend);
    return 0;
}

/* Each list meets what the one before it has left: block 3 goes out, its place is taken by a block
 * that comes in, and that is copied. The host's block 2 is taken and read in the same step. */
static void test_order(void **state) {
    struct pools *p = *state;
    static const int32_t out[] = {3, 5}, out_to[] = {0, 2}, in[] = {1, 2}, in_to[] = {3, 6},
                         copied[] = {3, 3, 6}, copied_to[] = {0, 7, 5};
    const struct batch batch = {
        .swap_out = {.count = 2, .from = out, .to = out_to},
        .swap_in = {.count = 2, .from = in, .to = in_to},
        .copies = {.count = 3, .from = copied, .to = copied_to},
    };
    rank_moves_enqueue(p->backend, &p->cache, p->host.data, &batch);
    assert_int_equal(p->backend->ops->synchronize(p->backend, NULL), 0);
    assert_marks(p, p->host.data, NUM_HOST_BLOCKS, (const int[]){13, 51, 15, 53});
    assert_marks(p, p->cache.buffer.data, NUM_BLOCKS,
                 (const int[]){51, 11, 12, 51, 14, 15, 15, 51});
}

static void test_copies_need_no_host_pool(void **state) {
    struct pools *p = *state;
    static const int32_t from = 7, to = 1;
    const struct batch batch = {.copies = {.count = 1, .from = &from, .to = &to}};
    rank_moves_enqueue(p->backend, &p->cache, NULL, &batch);
    assert_marks(p, p->cache.buffer.data, NUM_BLOCKS,
                 (const int[]){10, 17, 12, 13, 14, 15, 16, 17});
}

static void test_measure(void **state) {
    struct pools *p = *state;
    for (int32_t num_host_blocks = 1; num_host_blocks <= NUM_HOST_BLOCKS; num_host_blocks++) {
        int64_t ns = 0;
        assert_int_equal(
            rank_moves_measure(p->backend, &p->cache, p->host.data, num_host_blocks, &ns, NULL), 0);
        assert_true(ns > 0);
    }
    assert_marks(p, p->cache.buffer.data, NUM_BLOCKS,
                 (const int[]){10, 11, 12, 13, 14, 15, 16, 17});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, open_pools, close_pools),
        cmocka_unit_test_setup_teardown(test_copies_need_no_host_pool, open_pools, close_pools),
        cmocka_unit_test_setup_teardown(test_measure, open_pools, close_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
