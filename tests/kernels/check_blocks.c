/* copy_blocks and swap_blocks of the oracle and of the CPU backend: the bytes of the blocks named,
 * and no others. */
#include "tests/kernels/kernel_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NUM_BLOCKS 9
#define NUM_HOST_BLOCKS 5
#define GUARD_BYTES 64
#define GUARD_BYTE 0xa5

/* A pool of random bytes and one on the host, each between two guards, with a copy of both to keep
 * up by hand. The device pool starts at a multiple of 64 bytes, as a buffer does. */
struct pools {
    struct backend *backend;
    struct kv_cache cache; /* `data` is inside `device` */
    struct buffer device, host;
    size_t block_bytes;
    char *host_pool;
    unsigned char *expected_device, *expected_host;
};

static void fill(struct buffer *buffer, size_t num_blocks, size_t block_bytes, uint64_t seed,
                 unsigned char **out_expected) {
    unsigned char *bytes = buffer->data;
    memset(bytes, GUARD_BYTE, buffer->bytes);
    for (size_t i = 0; i < num_blocks * block_bytes; i++)
        bytes[GUARD_BYTES + i] = (unsigned char)kernel_fixture_random(&seed);
    *out_expected = malloc(buffer->bytes);
    assert_non_null(*out_expected);
    memcpy(*out_expected, bytes, buffer->bytes);
}

static void pools_init(struct pools *p, struct backend *b, struct kv_layout layout) {
    *p = (struct pools){.backend = b, .block_bytes = kv_block_bytes(&layout)};
    size_t device_bytes = NUM_BLOCKS * p->block_bytes + 2 * GUARD_BYTES;
    size_t host_bytes = NUM_HOST_BLOCKS * p->block_bytes + 2 * GUARD_BYTES;
    assert_int_equal(b->ops->buffer_alloc(b, device_bytes, &p->device, NULL), 0);
    assert_int_equal(b->ops->host_alloc(b, host_bytes, &p->host, NULL), 0);
    assert_int_equal(p->host.bytes, host_bytes);
    fill(&p->device, NUM_BLOCKS, p->block_bytes, 1, &p->expected_device);
    fill(&p->host, NUM_HOST_BLOCKS, p->block_bytes, 2, &p->expected_host);
    p->cache = (struct kv_cache){.layout = layout,
                                 .num_blocks = NUM_BLOCKS,
                                 .buffer = {.data = (char *)p->device.data + GUARD_BYTES,
                                            .bytes = NUM_BLOCKS * p->block_bytes}};
    p->host_pool = (char *)p->host.data + GUARD_BYTES;
}

/* Also that host_free accepts what it has freed. */
static void pools_finish(struct pools *p) {
    p->backend->ops->buffer_free(p->backend, &p->device);
    p->backend->ops->host_free(p->backend, &p->host);
    assert_null(p->host.data);
    p->backend->ops->host_free(p->backend, &p->host);
    free(p->expected_device);
    free(p->expected_host);
}

static unsigned char *expected_at(const struct pools *p, unsigned char *expected, int32_t block) {
    return expected + GUARD_BYTES + (size_t)block * p->block_bytes;
}

static void assert_expected(const struct pools *p) {
    assert_int_equal(p->backend->ops->synchronize(p->backend, NULL), 0);
    assert_memory_equal(p->device.data, p->expected_device, p->device.bytes);
    assert_memory_equal(p->host.data, p->expected_host, p->host.bytes);
}

static void copy(struct pools *p, int32_t num_blocks, const int32_t *src, const int32_t *dst) {
    p->backend->ops->copy_blocks(
        p->backend, &(struct copy_blocks_args){
                        .cache = &p->cache, .src = src, .dst = dst, .num_blocks = num_blocks});
    for (int32_t i = 0; i < num_blocks; i++)
        memcpy(expected_at(p, p->expected_device, dst[i]),
               expected_at(p, p->expected_device, src[i]), p->block_bytes);
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
        unsigned char *device = expected_at(p, p->expected_device, device_blocks[i]);
        unsigned char *host = expected_at(p, p->expected_host, host_blocks[i]);
        memcpy(direction == SWAP_OUT ? host : device, direction == SWAP_OUT ? device : host,
               p->block_bytes);
    }
    assert_expected(p);
}

static void check_copies(struct pools *p) {
    copy(p, 0, NULL, NULL);
    copy(p, 1, (const int32_t[]){8}, (const int32_t[]){0});
    copy(p, 3, (const int32_t[]){2, 2, 7}, (const int32_t[]){5, 1, 8}); /* one source twice */
}

/* Out, overwritten, and in again to other blocks: the same bytes. */
static void check_swaps(struct pools *p) {
    static const int32_t from[] = {7, 0, 3}, host[] = {4, 1, 0}, to[] = {2, 8, 7};
    swap(p, SWAP_OUT, 0, NULL, NULL);
    swap(p, SWAP_IN, 0, NULL, NULL);
    unsigned char *before = malloc(p->device.bytes);
    assert_non_null(before);
    memcpy(before, p->device.data, p->device.bytes);
    swap(p, SWAP_OUT, 3, from, host);
    copy(p, 3, (const int32_t[]){5, 5, 6}, from);
    swap(p, SWAP_IN, 3, to, host);
    for (int i = 0; i < 3; i++)
        assert_memory_equal((char *)p->cache.buffer.data + (size_t)to[i] * p->block_bytes,
                            expected_at(p, before, from[i]), p->block_bytes);
    free(before);
}

static void check_all(void **state, void (*check)(struct pools *p)) {
    static const struct kv_layout layouts[] = {
        {.num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .block_size = 16, .dtype = DTYPE_F16},
        {.num_layers = 3, .num_kv_heads = 2, .head_dim = 72, .block_size = 16, .dtype = DTYPE_F32},
        {.num_layers = 2, .num_kv_heads = 3, .head_dim = 64, .block_size = 48, .dtype = DTYPE_BF16},
    };
    const struct kernel_fixture *f = *state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        for (int k = -1; k < f->num_backends; k++) {
            struct pools pools;
            pools_init(&pools, k < 0 ? f->oracle : f->backends[k], layouts[i]);
            check(&pools);
            pools_finish(&pools);
        }
}

static void test_copy(void **state) {
    check_all(state, check_copies);
}

static void test_swap(void **state) {
    check_all(state, check_swaps);
}

static void check_host_alloc(struct backend *b) {
    struct buffer buffer = {0};
    struct error err;
    assert_int_equal(b->ops->host_alloc(b, SIZE_MAX - 8, &buffer, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_null(buffer.data);
}

static void test_host_alloc_refuses(void **state) {
    const struct kernel_fixture *f = *state;
    check_host_alloc(f->oracle);
    check_host_alloc(f->backends[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_swap),
        cmocka_unit_test(test_host_alloc_refuses),
    };
    return cmocka_run_group_tests(tests, kernel_fixture_setup, kernel_fixture_teardown);
}
