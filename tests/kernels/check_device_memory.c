/* The memory of a device: blocks copied within the pool and swapped with the host, transfers larger
 * than what is staged, and more than there is. */
#include "tests/kernels/device_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct device_fixture fixture;

static void synchronize(struct device_fixture *f) {
    struct error err = {0};
    if (f->device->ops->synchronize(f->device, &err) != 0)
        fail_msg("%s", err.message);
}

/* A pool whose blocks can be told apart, on the device and as it should become. */
struct pool {
    struct kv_cache cache;
    size_t block_bytes;
    unsigned char *expected;
};

static void pool_init(struct device_fixture *f, struct pool *pool, int32_t num_blocks,
                      uint64_t seed) {
    *pool = (struct pool){.cache = {.layout = {.num_layers = 2,
                                               .num_kv_heads = 3,
                                               .head_dim = 24,
                                               .block_size = 16,
                                               .dtype = f->dtype},
                                    .num_blocks = num_blocks}};
    pool->block_bytes = kv_block_bytes(&pool->cache.layout);
    size_t bytes = (size_t)num_blocks * pool->block_bytes;
    pool->expected = malloc(bytes);
    assert_non_null(pool->expected);
    for (size_t i = 0; i < bytes; i++)
        pool->expected[i] = (unsigned char)kernel_fixture_random(&seed);
    void *data = device_fixture_put(f, f->dtype, NULL, bytes / 2);
    pool->cache.buffer = (struct buffer){.data = data, .bytes = bytes};
    f->device->ops->upload(f->device, data, pool->expected, bytes);
}

static void pool_finish(struct device_fixture *f, struct pool *pool) {
    size_t bytes = pool->cache.buffer.bytes;
    unsigned char *actual = malloc(bytes);
    assert_non_null(actual);
    f->device->ops->download(f->device, actual, pool->cache.buffer.data, bytes);
    synchronize(f);
    for (int32_t i = 0; i < pool->cache.num_blocks; i++)
        if (memcmp(actual + (size_t)i * pool->block_bytes,
                   pool->expected + (size_t)i * pool->block_bytes, pool->block_bytes) != 0)
            fail_msg("block %d of the pool is wrong", (int)i);
    device_fixture_free(f, pool->cache.buffer.data);
    free(actual);
    free(pool->expected);
}

static void run_copy_blocks(struct device_fixture *f, const void *args) {
    f->device->ops->copy_blocks(f->device, args);
}

static void test_copy_blocks(void **state) {
    struct pool pool;
    pool_init(&fixture, &pool, 12, 1);
    /* Neighbours, and one source for two. */
    const int32_t src[] = {0, 1, 2, 9, 9, 11}, dst[] = {3, 4, 5, 8, 7, 6};
    struct copy_blocks_args args = {.cache = &pool.cache, .src = src, .dst = dst, .num_blocks = 6};
    for (int i = 0; i < 6; i++)
        memcpy(pool.expected + (size_t)dst[i] * pool.block_bytes,
               pool.expected + (size_t)src[i] * pool.block_bytes, pool.block_bytes);
    device_fixture_run(&fixture, run_copy_blocks, &args, pool.cache.buffer.data,
                       pool.cache.buffer.bytes);
    args.num_blocks = 0;
    run_copy_blocks(&fixture, &args);
    pool_finish(&fixture, &pool);
}

/* More pairs than go to the device at a time: block 0 to 2100 others. */
static void test_copy_many_blocks(void **state) {
    enum { COPIES = 2100 };
    struct pool pool;
    pool_init(&fixture, &pool, COPIES + 1, 2);
    int32_t src[COPIES] = {0}, dst[COPIES];
    for (int i = 0; i < COPIES; i++) {
        dst[i] = COPIES - i;
        memcpy(pool.expected + (size_t)dst[i] * pool.block_bytes, pool.expected, pool.block_bytes);
    }
    run_copy_blocks(&fixture,
                    &(struct copy_blocks_args){
                        .cache = &pool.cache, .src = src, .dst = dst, .num_blocks = COPIES});
    pool_finish(&fixture, &pool);
}

/* Out with neighbours on both sides, on one side and on none, one block to two places; then back
 * elsewhere. */
static void test_swap_blocks(void **state) {
    enum { HOST_BLOCKS = 8, PAIRS = 7 };
    struct backend *b = fixture.device;
    struct pool pool;
    pool_init(&fixture, &pool, 12, 3);
    struct buffer host;
    assert_int_equal(b->ops->host_alloc(b, HOST_BLOCKS * pool.block_bytes, &host, NULL), 0);
    memset(host.data, 0x77, host.bytes);
    const int32_t out[PAIRS] = {4, 5, 6, 7, 2, 2, 0}, to[PAIRS] = {1, 2, 3, 5, 6, 7, 0};
    struct swap_blocks_args args = {.cache = &pool.cache,
                                    .host_pool = host.data,
                                    .direction = SWAP_OUT,
                                    .device_blocks = out,
                                    .host_blocks = to,
                                    .num_blocks = PAIRS};
    b->ops->swap_blocks(b, &args);
    synchronize(&fixture);
    for (int i = 0; i < PAIRS; i++)
        assert_memory_equal((char *)host.data + (size_t)to[i] * pool.block_bytes,
                            pool.expected + (size_t)out[i] * pool.block_bytes, pool.block_bytes);
    for (size_t i = 0; i < pool.block_bytes; i++)
        assert_int_equal(((unsigned char *)host.data)[4 * pool.block_bytes + i], 0x77);

    const int32_t in[PAIRS] = {8, 9, 10, 11, 3, 2, 1}, from[PAIRS] = {1, 2, 3, 0, 7, 5, 1};
    args.direction = SWAP_IN, args.device_blocks = in, args.host_blocks = from;
    for (int i = 0; i < PAIRS; i++)
        memcpy(pool.expected + (size_t)in[i] * pool.block_bytes,
               (char *)host.data + (size_t)from[i] * pool.block_bytes, pool.block_bytes);
    b->ops->swap_blocks(b, &args);
    pool_finish(&fixture, &pool);
    b->ops->host_free(b, &host);
    b->ops->host_free(b, &host); /* zeroed by the first */
}

/* Larger than what goes to the device at a time, and than the staging memory. */
static void test_large_transfer(void **state) {
    enum { BYTES = (18 << 20) + 12345 };
    struct backend *b = fixture.device;
    struct buffer buffer;
    assert_int_equal(b->ops->buffer_alloc(b, BYTES, &buffer, NULL), 0);
    unsigned char *sent = malloc(BYTES), *back = malloc(BYTES);
    assert_true(sent != NULL && back != NULL);
    b->ops->download(b, back, buffer.data, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        if (back[i] != 0)
            fail_msg("byte %zu of a new buffer is not zero", i);
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(i * 31 + i / 4093);
    b->ops->upload(b, buffer.data, sent, BYTES);
    b->ops->download(b, back, buffer.data, BYTES);
    synchronize(&fixture);
    assert_memory_equal(back, sent, BYTES);
    free(back);
    free(sent);
    b->ops->buffer_free(b, &buffer);
}

/* A device is never this large. */
static void test_out_of_memory(void **state) {
    struct backend *b = fixture.device;
    struct buffer buffer = {0};
    struct error err = {0};
    assert_int_equal(b->ops->buffer_alloc(b, (size_t)1 << 50, &buffer, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_non_null(strstr(err.message, "1073741824.0 MiB"));
    assert_non_null(strstr(err.message, "free"));
    assert_null(buffer.data);
    test_large_transfer(state); /* the device goes on */
}

int main(int argc, char **argv) {
    struct backend_config config = {.max_step_tokens = 64,
                                    .max_step_seqs = 8,
                                    .max_blocks_per_seq = 4,
                                    .max_logit_rows = 8,
                                    .vocab_size = 100,
                                    .head_dim = 64,
                                    .num_q_heads = 1,
                                    .num_kv_heads = 1};
    device_fixture_open(&fixture, argc, argv, &config);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy_blocks),   cmocka_unit_test(test_copy_many_blocks),
        cmocka_unit_test(test_swap_blocks),   cmocka_unit_test(test_large_transfer),
        cmocka_unit_test(test_out_of_memory),
    };
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    device_fixture_close(&fixture);
    return status;
}
