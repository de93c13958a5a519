/* The memory of a backend: blocks copied within the KV pool and swapped with the host's (the bytes
 * of the blocks named, and no others), transfers larger than what is staged, and more memory than
 * there is. */
#include "kernels/kv_type.h"
#include "tests/kernels/kernel_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NUM_BLOCKS 12
#define NUM_HOST_BLOCKS 8
#define GUARD_BYTES 64
#define GUARD_BYTE 0xa5

static struct kernel_fixture fixture;

/* Both pools with guards around them, filled with random bytes, and a copy of both that is kept up
 * by hand. */
struct pools {
    struct backend *backend;
    struct kv_cache cache;
    size_t block_bytes;
    struct buffer host;
    char *host_pool; /* inside `host` */
    unsigned char *expected, *expected_host, *actual;
};

static void pools_init(struct pools *p, struct backend *b, struct kv_layout layout,
                       int32_t num_blocks) {
    uint64_t seed = 1;
    *p = (struct pools){.backend = b, .block_bytes = kv_block_bytes(&layout)};
    size_t bytes = (size_t)num_blocks * p->block_bytes;
    void *data = kernel_fixture_put(b, DTYPE_F32, NULL, bytes / sizeof(float));
    p->cache = (struct kv_cache){
        .layout = layout, .num_blocks = num_blocks, .buffer = {.data = data, .bytes = bytes}};
    p->expected = kernel_fixture_memory(bytes);
    p->actual = kernel_fixture_memory(bytes);
    for (size_t i = 0; i < bytes; i++)
        p->expected[i] = (unsigned char)kernel_fixture_random(&seed);
    b->ops->upload(b, data, p->expected, bytes);
    size_t host_bytes = NUM_HOST_BLOCKS * p->block_bytes + 2 * GUARD_BYTES;
    assert_int_equal(b->ops->host_alloc(b, host_bytes, &p->host, NULL), 0);
    assert_int_equal(p->host.bytes, host_bytes);
    memset(p->host.data, GUARD_BYTE, host_bytes);
    p->host_pool = (char *)p->host.data + GUARD_BYTES;
    for (size_t i = 0; i < NUM_HOST_BLOCKS * p->block_bytes; i++)
        p->host_pool[i] = (char)kernel_fixture_random(&seed);
    p->expected_host = kernel_fixture_memory(host_bytes);
    memcpy(p->expected_host, p->host.data, host_bytes);
}

/* host_free accepts what it has freed. */
static void pools_finish(struct pools *p) {
    kernel_fixture_free(p->backend, p->cache.buffer.data);
    p->backend->ops->host_free(p->backend, &p->host);
    assert_null(p->host.data);
    p->backend->ops->host_free(p->backend, &p->host);
    free(p->expected);
    free(p->expected_host);
    free(p->actual);
}

static unsigned char *block_at(const struct pools *p, unsigned char *pool, int32_t block) {
    return pool + (size_t)block * p->block_bytes;
}

static void assert_expected(const struct pools *p) {
    kernel_fixture_download(p->backend, p->actual, p->cache.buffer.data, p->cache.buffer.bytes);
    for (int32_t i = 0; i < p->cache.num_blocks; i++)
        if (memcmp(block_at(p, p->actual, i), block_at(p, p->expected, i), p->block_bytes) != 0)
            fail_msg("block %d of the pool is wrong", (int)i);
    assert_memory_equal(p->host.data, p->expected_host, p->host.bytes);
}

static void call_copy(struct backend *b, const void *args) {
    b->ops->copy_blocks(b, args);
}

static void copy(struct pools *p, int32_t num_blocks, const int32_t *src, const int32_t *dst) {
    struct copy_blocks_args args = {
        .cache = &p->cache, .src = src, .dst = dst, .num_blocks = num_blocks};
    kernel_fixture_run(p->backend, call_copy, &args, p->cache.buffer.data, p->cache.buffer.bytes);
    for (int32_t i = 0; i < num_blocks; i++)
        memcpy(block_at(p, p->expected, dst[i]), block_at(p, p->expected, src[i]), p->block_bytes);
    assert_expected(p);
}

static void swap(struct pools *p, enum swap_direction direction, int32_t num_blocks,
                 const int32_t *device_blocks, const int32_t *host_blocks) {
    p->backend->ops->swap_blocks(p->backend,
                                 &(struct swap_blocks_args){.cache = &p->cache,
                                                            .host_pool = p->host_pool,
                                                            .direction = direction,
                                                            .device_blocks = device_blocks,
                                                            .host_blocks = host_blocks,
                                                            .num_blocks = num_blocks});
    for (int32_t i = 0; i < num_blocks; i++) {
        unsigned char *device = block_at(p, p->expected, device_blocks[i]);
        unsigned char *host = block_at(p, p->expected_host + GUARD_BYTES, host_blocks[i]);
        memcpy(direction == SWAP_OUT ? host : device, direction == SWAP_OUT ? device : host,
               p->block_bytes);
    }
    assert_expected(p);
}

/* Neighbours, and one source for two. */
static void check_copies(struct pools *p) {
    copy(p, 0, NULL, NULL);
    copy(p, 1, (const int32_t[]){8}, (const int32_t[]){0});
    copy(p, 3, (const int32_t[]){2, 2, 7}, (const int32_t[]){5, 1, 8});
    copy(p, 6, (const int32_t[]){0, 1, 2, 9, 9, 11}, (const int32_t[]){3, 4, 5, 8, 7, 6});
}

/* Out, overwritten, and in again to other blocks: the same bytes. Then out with neighbours on both
 * sides, on one side and on none, one block to two places; and back elsewhere. */
static void check_swaps(struct pools *p) {
    static const int32_t from[] = {7, 0, 3}, host[] = {4, 1, 0}, to[] = {2, 8, 7};
    swap(p, SWAP_OUT, 0, NULL, NULL);
    swap(p, SWAP_IN, 0, NULL, NULL);
    unsigned char *before = kernel_fixture_memory(p->cache.buffer.bytes);
    memcpy(before, p->expected, p->cache.buffer.bytes);
    swap(p, SWAP_OUT, 3, from, host);
    copy(p, 3, (const int32_t[]){5, 5, 6}, from);
    swap(p, SWAP_IN, 3, to, host);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(block_at(p, p->actual, to[i]), block_at(p, before, from[i]),
                            p->block_bytes);
    free(before);
    swap(p, SWAP_OUT, 7, (const int32_t[]){4, 5, 6, 7, 2, 2, 0},
         (const int32_t[]){1, 2, 3, 5, 6, 7, 0});
    swap(p, SWAP_IN, 7, (const int32_t[]){8, 9, 10, 11, 3, 2, 1},
         (const int32_t[]){1, 2, 3, 0, 7, 5, 1});
}

/* On the oracle too, whose blocks move as the CPU's do. A device has one plain type, its own. */
static void check_all(void (*check)(struct pools *p)) {
    static const struct kv_layout layouts[] = {
        {.num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .block_size = 16, .type = KV_F16},
        {.num_layers = 3, .num_kv_heads = 2, .head_dim = 72, .block_size = 16, .type = KV_F32},
        {.num_layers = 2, .num_kv_heads = 3, .head_dim = 64, .block_size = 48, .type = KV_BF16},
        {.num_layers = 2, .num_kv_heads = 3, .head_dim = 24, .block_size = 16, .type = KV_F16},
        {.num_layers = 2, .num_kv_heads = 3, .head_dim = 64, .block_size = 16, .type = KV_INT8},
        {.num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .block_size = 48, .type = KV_E4M3},
    };
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        for (int k = fixture.dtype == DTYPE_F32 ? -1 : 0; k < fixture.num_backends; k++) {
            struct pools pools;
            struct kv_layout layout = layouts[i];
            struct backend *b = k < 0 ? fixture.oracle : fixture.backends[k];
            if (fixture.dtype != DTYPE_F32 && !kv_type_has_scales(layout.type))
                layout.type = kv_type_of_dtype(fixture.dtype);
            if ((b->kv_types & KV_TYPE_BIT(layout.type)) == 0)
                continue;
            pools_init(&pools, b, layout, NUM_BLOCKS);
            check(&pools);
            pools_finish(&pools);
        }
}

static void test_copy(void **state) {
    check_all(check_copies);
}

static void test_swap(void **state) {
    check_all(check_swaps);
}

/* More pairs than go to a device at a time: block 0 to 2100 others. */
static void test_copy_many_blocks(void **state) {
    enum { COPIES = 2100 };
    const struct kv_layout layout = {.num_layers = 2,
                                     .num_kv_heads = 3,
                                     .head_dim = 24,
                                     .block_size = 16,
                                     .type = kv_type_of_dtype(fixture.dtype)};
    struct pools pools;
    int32_t src[COPIES] = {0}, dst[COPIES];
    for (int i = 0; i < COPIES; i++)
        dst[i] = COPIES - i;
    for (int i = 0; i < fixture.num_backends; i++) {
        if (!kernel_fixture_is_new_level(&fixture, i))
            continue;
        pools_init(&pools, fixture.backends[i], layout, COPIES + 1);
        copy(&pools, COPIES, src, dst);
        pools_finish(&pools);
    }
}

/* Larger than what goes to a device at a time, and than the staging memory. */
static void check_large_transfer(struct backend *b) {
    enum { BYTES = (18 << 20) + 12345 };
    struct buffer buffer;
    assert_int_equal(b->ops->buffer_alloc(b, BYTES, &buffer, NULL), 0);
    unsigned char *sent = kernel_fixture_memory(BYTES), *back = kernel_fixture_memory(BYTES);
    kernel_fixture_download(b, back, buffer.data, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        if (back[i] != 0)
            fail_msg("byte %zu of a new buffer is not zero", i);
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(i * 31 + i / 4093);
    b->ops->upload(b, buffer.data, sent, BYTES);
    kernel_fixture_download(b, back, buffer.data, BYTES);
    assert_memory_equal(back, sent, BYTES);
    free(back);
    free(sent);
    b->ops->buffer_free(b, &buffer);
}

static void test_large_transfer(void **state) {
    check_large_transfer(fixture.backends[0]);
}

static void check_host_alloc(struct backend *b) {
    struct buffer buffer = {0};
    struct error err;
    assert_int_equal(b->ops->host_alloc(b, SIZE_MAX - 8, &buffer, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_null(buffer.data);
}

/* No machine is this large. A device says what was requested and what is free. */
static void test_out_of_memory(void **state) {
    struct backend *b = fixture.backends[0];
    struct buffer buffer = {0};
    struct error err = {0};
    assert_int_equal(b->ops->buffer_alloc(b, (size_t)1 << 50, &buffer, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    if (fixture.dtype != DTYPE_F32) {
        assert_non_null(strstr(err.message, "1073741824.0 MiB"));
        assert_non_null(strstr(err.message, "free"));
    } else {
        check_host_alloc(b);
        check_host_alloc(fixture.oracle);
    }
    assert_null(buffer.data);
    check_large_transfer(b); /* it still works */
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = 64,
                                                 .limits.max_num_seqs = 8,
                                                 .limits.max_model_len = 4,
                                                 .limits.block_size = 1,
                                                 .limits.max_logit_rows = 8,
                                                 .limits.vocab_size = 100,
                                                 .head_dim = 64,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),          cmocka_unit_test(test_copy_many_blocks),
        cmocka_unit_test(test_swap),          cmocka_unit_test(test_large_transfer),
        cmocka_unit_test(test_out_of_memory),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
