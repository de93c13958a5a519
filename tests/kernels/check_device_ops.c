/* The small ops of a device against the oracle: ragged widths, odd numbers of rows, guarded arrays;
 * blocks copied within the pool and swapped with the host. */
#include "tests/kernels/device_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct device_fixture fixture;

static const int32_t widths[] = {1, 7, 8, 24, 33, 64, 100, 257, 576, 2056, 8200};
#define NUM_WIDTHS (sizeof(widths) / sizeof(widths[0]))

/* Random numbers that the device can hold. */
static float *rounded_floats(uint64_t *seed, size_t n) {
    float *values = kernel_fixture_random_floats(seed, n);
    device_fixture_round(&fixture, values, n);
    return values;
}

static void synchronize(struct device_fixture *f) {
    struct error err = {0};
    if (f->device->ops->synchronize(f->device, &err) != 0)
        fail_msg("%s", err.message);
}

static void run_norm(struct device_fixture *f, const void *args) {
    f->device->ops->norm(f->device, args);
}

static void check_norm(struct device_fixture *f, int32_t num_rows, int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_rows * (size_t)width, bytes = dtype_row_bytes(f->dtype, n);
    float *x = rounded_floats(&seed, n);
    float *weight = kernel_fixture_random_floats(&seed, (size_t)width);
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    struct norm_args args = {.x = x,
                             .weight = weight,
                             .out = expected,
                             .num_rows = num_rows,
                             .row_stride = width,
                             .num_groups = 1,
                             .width = width,
                             .epsilon = 1e-5f};
    f->oracle->ops->norm(f->oracle, &args);
    void *device_x = device_fixture_put(f, f->dtype, x, n);
    void *device_weight = device_fixture_put(f, DTYPE_F32, weight, (size_t)width);
    void *out = device_fixture_put(f, f->dtype, NULL, n);
    args.x = device_x, args.weight = device_weight, args.out = out;
    device_fixture_run(f, run_norm, &args, out, bytes);
    device_fixture_get(f, f->dtype, out, actual, n);
    device_fixture_assert_close(actual, expected, n, f->tolerance, "norm");
    args.out = device_x; /* in place */
    run_norm(f, &args);
    device_fixture_get(f, f->dtype, device_x, expected, n);
    assert_memory_equal(actual, expected, n * sizeof(float));
    device_fixture_free(f, device_x);
    device_fixture_free(f, device_weight);
    device_fixture_free(f, out);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(weight);
    free(x);
}

static void test_norm(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_norm(&fixture, 1, widths[w]);
        check_norm(&fixture, 5, widths[w]);
    }
}

static void run_act_mul(struct device_fixture *f, const void *args) {
    f->device->ops->act_mul(f->device, args);
}

static void check_act_mul(struct device_fixture *f, int32_t num_rows, int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_rows * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, 2 * n);
    x[0] = -200;
    if (n > 1)
        x[1] = 90;
    device_fixture_round(f, x, 2 * n);
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    struct act_mul_args args = {
        .gate_up = x, .out = expected, .num_rows = num_rows, .width = width};
    f->oracle->ops->act_mul(f->oracle, &args);
    void *gate_up = device_fixture_put(f, f->dtype, x, 2 * n);
    void *out = device_fixture_put(f, f->dtype, NULL, n);
    args.gate_up = gate_up, args.out = out;
    device_fixture_run(f, run_act_mul, &args, out, dtype_row_bytes(f->dtype, n));
    device_fixture_get(f, f->dtype, out, actual, n);
    device_fixture_assert_close(actual, expected, n, f->tolerance, "act_mul");
    device_fixture_free(f, gate_up);
    device_fixture_free(f, out);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(x);
}

static void test_act_mul(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_act_mul(&fixture, 1, widths[w]);
        check_act_mul(&fixture, 5, widths[w]);
    }
}

static void run_gather_rows(struct device_fixture *f, const void *args) {
    f->device->ops->gather_rows(f->device, args);
}

static void check_gather_rows(struct device_fixture *f, int32_t num_out, int32_t width) {
    enum { ROWS = 13 };
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_out * (size_t)width;
    float *x = rounded_floats(&seed, (size_t)ROWS * (size_t)width);
    float *actual = kernel_fixture_guarded(n);
    int32_t *rows = malloc((size_t)num_out * sizeof(*rows));
    assert_non_null(rows);
    for (int32_t r = 0; r < num_out; r++)
        rows[r] = kernel_fixture_random_in(&seed, 0, ROWS - 1);
    void *device_x = device_fixture_put(f, f->dtype, x, (size_t)ROWS * (size_t)width);
    void *out = device_fixture_put(f, f->dtype, NULL, n);
    struct gather_rows_args args = {
        .x = device_x, .rows = rows, .out = out, .num_rows = num_out, .width = width};
    device_fixture_run(f, run_gather_rows, &args, out, dtype_row_bytes(f->dtype, n));
    device_fixture_get(f, f->dtype, out, actual, n);
    for (int32_t r = 0; r < num_out; r++)
        assert_memory_equal(actual + (size_t)r * (size_t)width, x + (size_t)rows[r] * (size_t)width,
                            (size_t)width * sizeof(float));
    device_fixture_free(f, device_x);
    device_fixture_free(f, out);
    kernel_fixture_guarded_free(actual);
    free(rows);
    free(x);
}

static void test_gather_rows(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++)
        check_gather_rows(&fixture, 7, widths[w]);
    check_gather_rows(&fixture, 4099, 3); /* more than one list to the device holds */
}

static void test_nothing_to_do(void **state) {
    struct backend *b = fixture.device;
    b->ops->norm(b, &(struct norm_args){.width = 8});
    b->ops->act_mul(b, &(struct act_mul_args){.width = 8});
    b->ops->gather_rows(b, &(struct gather_rows_args){.width = 8});
    synchronize(&fixture);
}

/* One layer among several of a pool, tokens in shuffled slots of several blocks. */
enum { TOKENS = 21, POSITIONS = 50, BLOCKS = 4, LAYERS = 3, LAYER = 1, BLOCK_SIZE = 16 };

struct rope_case {
    int32_t num_q_heads, num_kv_heads, head_dim, rotary_dim;
    bool interleaved;
};

struct rope_run {
    struct rope_store_args args;
    const void *qkv_before; /* bytes of the device's type */
    size_t qkv_bytes;
};

static void run_rope(struct device_fixture *f, const void *context) {
    const struct rope_run *run = context;
    f->device->ops->upload(f->device, run->args.qkv, run->qkv_before, run->qkv_bytes);
    f->device->ops->rope_store_kv(f->device, &run->args);
}

static float *rope_table(int32_t rotary_dim) {
    float *table = malloc((size_t)POSITIONS * (size_t)rotary_dim * sizeof(float));
    assert_non_null(table);
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < rotary_dim / 2; i++) {
            double angle = p * pow(10000, -2.0 * i / rotary_dim);
            table[p * rotary_dim + i] = (float)cos(angle);
            table[p * rotary_dim + rotary_dim / 2 + i] = (float)sin(angle);
        }
    return table;
}

/* Rotated by its definition, in double. */
static void rotate_head(const struct rope_case *c, const float *table, const float *head,
                        double *out) {
    for (int32_t i = 0; i < c->head_dim; i++)
        out[i] = head[i];
    for (int32_t p = 0; p < c->rotary_dim / 2; p++) {
        int32_t i = c->interleaved ? 2 * p : p;
        int32_t j = c->interleaved ? 2 * p + 1 : p + c->rotary_dim / 2;
        double cosine = table[p], sine = table[p + c->rotary_dim / 2];
        out[i] = head[i] * cosine - head[j] * sine;
        out[j] = head[i] * sine + head[j] * cosine;
    }
}

/* What rows and pool should hold after the op; the pool starts as it is given. */
static void expect_rope(const struct rope_case *c, const struct step_inputs *step,
                        const float *table, const float *qkv, float *rows, float *pool) {
    int32_t heads = c->num_q_heads + 2 * c->num_kv_heads;
    double rotated[KV_MAX_HEAD_DIM];
    for (int32_t t = 0; t < TOKENS; t++)
        for (int32_t h = 0; h < heads; h++) {
            size_t at = ((size_t)t * (size_t)heads + (size_t)h) * (size_t)c->head_dim;
            rotate_head(c, table + step->positions[t] * c->rotary_dim, qkv + at, rotated);
            int32_t kv_head = h - c->num_q_heads; /* K heads, then V heads */
            int32_t block = step->slot_mapping[t] / BLOCK_SIZE;
            int32_t offset = step->slot_mapping[t] % BLOCK_SIZE;
            float *slot = pool +
                          (((size_t)block * LAYERS + LAYER) * 2 * (size_t)c->num_kv_heads +
                           (size_t)(kv_head < 0 ? 0 : kv_head)) *
                              BLOCK_SIZE * (size_t)c->head_dim +
                          (size_t)offset * (size_t)c->head_dim;
            for (int32_t i = 0; i < c->head_dim; i++) {
                bool is_q = kv_head < 0, is_k = kv_head >= 0 && kv_head < c->num_kv_heads;
                rows[at + (size_t)i] = is_q ? (float)rotated[i] : qkv[at + (size_t)i];
                if (!is_q)
                    slot[i] = is_k ? (float)rotated[i] : qkv[at + (size_t)i];
            }
        }
}

static void check_rope(struct device_fixture *f, const struct rope_case *c) {
    uint64_t seed = (uint64_t)c->head_dim * 1000 + (uint64_t)c->rotary_dim;
    size_t n =
        (size_t)TOKENS * (size_t)(c->num_q_heads + 2 * c->num_kv_heads) * (size_t)c->head_dim;
    struct kv_cache cache = {.layout = {.num_layers = LAYERS,
                                        .num_kv_heads = c->num_kv_heads,
                                        .head_dim = c->head_dim,
                                        .block_size = BLOCK_SIZE,
                                        .dtype = f->dtype},
                             .num_blocks = BLOCKS};
    size_t pool_bytes = BLOCKS * kv_block_bytes(&cache.layout), pool_n = pool_bytes / 2;
    int32_t positions[TOKENS], slots[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        positions[t] = kernel_fixture_random_in(&seed, 0, POSITIONS - 1);
        slots[t] = (t * 5 + 3) % (BLOCKS * BLOCK_SIZE); /* each slot once */
    }
    int32_t query_start[2] = {0, TOKENS}, context_len = TOKENS, table_row[BLOCKS] = {0, 1, 2, 3};
    struct step_inputs step = {.num_tokens = TOKENS,
                               .num_seqs = 1,
                               .max_blocks_per_seq = BLOCKS,
                               .token_ids = positions,
                               .positions = positions,
                               .slot_mapping = slots,
                               .query_start = query_start,
                               .context_lens = &context_len,
                               .block_tables = table_row};
    float *qkv = rounded_floats(&seed, n), *pool_before = rounded_floats(&seed, pool_n);
    float *table = rope_table(c->rotary_dim);
    float *rows = kernel_fixture_guarded(n), *pool = kernel_fixture_guarded(pool_n);
    memcpy(pool, pool_before, pool_n * sizeof(float));
    expect_rope(c, &step, table, qkv, rows, pool);

    uint16_t *bytes = malloc(n * sizeof(*bytes));
    assert_non_null(bytes);
    dtype_from_f32(f->dtype, qkv, bytes, n);
    void *device_qkv = device_fixture_put(f, f->dtype, NULL, n);
    void *device_pool = device_fixture_put(f, f->dtype, pool_before, pool_n);
    void *device_table =
        device_fixture_put(f, DTYPE_F32, table, (size_t)POSITIONS * (size_t)c->rotary_dim);
    cache.buffer = (struct buffer){.data = device_pool, .bytes = pool_bytes};
    struct rope_run run = {.args = {.qkv = device_qkv,
                                    .rope_table = device_table,
                                    .cache = &cache,
                                    .layer = LAYER,
                                    .num_q_heads = c->num_q_heads,
                                    .rotary_dim = c->rotary_dim,
                                    .interleaved = c->interleaved},
                           .qkv_before = bytes,
                           .qkv_bytes = n * sizeof(*bytes)};
    f->device->ops->step_begin(f->device, &step);
    device_fixture_run(f, run_rope, &run, device_pool, pool_bytes);
    device_fixture_run(f, run_rope, &run, device_qkv, run.qkv_bytes);
    float *actual = kernel_fixture_guarded(n), *actual_pool = kernel_fixture_guarded(pool_n);
    device_fixture_get(f, f->dtype, device_qkv, actual, n);
    device_fixture_get(f, f->dtype, device_pool, actual_pool, pool_n);
    device_fixture_assert_close(actual, rows, n, f->tolerance, "rope: rows");
    device_fixture_assert_close(actual_pool, pool, pool_n, f->tolerance, "rope: cache");
    for (size_t i = 0; i < pool_n; i++) /* what was not a slot of the step is as it was */
        if (pool[i] == pool_before[i] && actual_pool[i] != pool_before[i])
            fail_msg("element %zu of the pool was changed", i);
    device_fixture_free(f, device_table);
    device_fixture_free(f, device_pool);
    device_fixture_free(f, device_qkv);
    kernel_fixture_guarded_free(actual_pool);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(pool);
    kernel_fixture_guarded_free(rows);
    free(bytes);
    free(table);
    free(pool_before);
    free(qkv);
}

static void test_rope_store_kv(void **state) {
    static const struct rope_case cases[] = {
        {3, 1, 64, 64, false}, {4, 2, 64, 64, true}, {2, 2, 80, 80, false},
        {3, 1, 96, 48, false}, {2, 1, 96, 40, true}, {7, 1, 128, 128, false},
        {1, 1, 256, 64, true}, {2, 1, 8, 8, false},  {2, 2, 8, 6, true},
        {3, 2, 24, 10, false}, {2, 1, 16, 2, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_rope(&fixture, &cases[i]);
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
    check_norm(&fixture, 1, 8); /* the device goes on */
}

int main(int argc, char **argv) {
    struct backend_config config = {.max_step_tokens = 64,
                                    .max_step_seqs = 8,
                                    .max_blocks_per_seq = BLOCKS,
                                    .max_logit_rows = 8,
                                    .vocab_size = 100,
                                    .head_dim = 64,
                                    .num_q_heads = 1,
                                    .num_kv_heads = 1};
    device_fixture_open(&fixture, argc, argv, &config);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_act_mul),
        cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_rope_store_kv),
        cmocka_unit_test(test_copy_blocks),
        cmocka_unit_test(test_copy_many_blocks),
        cmocka_unit_test(test_swap_blocks),
        cmocka_unit_test(test_large_transfer),
        cmocka_unit_test(test_out_of_memory),
    };
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    device_fixture_close(&fixture);
    return status;
}
