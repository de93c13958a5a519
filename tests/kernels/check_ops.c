/* The row-wise ops of the CPU backend against the oracle: every level, ragged widths, guarded
 * outputs; and the same bits whatever the thread count and the other rows. */
#include "tests/kernels/kernel_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int32_t widths[] = {1, 7, 8, 15, 16, 17, 33, 64, 100, 576, 1536, 2049};
#define NUM_WIDTHS (sizeof(widths) / sizeof(widths[0]))

static void check_norm(const struct kernel_fixture *f, int32_t rows, int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)rows * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, n);
    float *weight = kernel_fixture_random_floats(&seed, (size_t)width);
    float *expected = kernel_fixture_guarded(n);
    struct norm_args args = {.x = x,
                             .weight = weight,
                             .out = expected,
                             .num_rows = rows,
                             .row_stride = width,
                             .num_groups = 1,
                             .width = width,
                             .epsilon = 1e-5f};
    f->oracle->ops->norm(f->oracle, &args);
    for (int i = 0; i < f->num_backends; i++) {
        struct backend *b = f->backends[i];
        float *out = kernel_fixture_guarded(n), *single = kernel_fixture_guarded((size_t)width);
        args.out = out;
        b->ops->norm(b, &args);
        kernel_fixture_assert_near(out, expected, n, 2e-6);
        memcpy(single, x + n - width, (size_t)width * sizeof(float));
        struct norm_args last = args;
        last.x = last.out = single, last.num_rows = 1;
        b->ops->norm(b, &last); /* alone and in place */
        assert_memory_equal(single, out + n - width, (size_t)width * sizeof(float));
        kernel_fixture_guarded_free(out);
        kernel_fixture_guarded_free(single);
    }
    kernel_fixture_guarded_free(expected);
    free(weight);
    free(x);
}

static void test_norm(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_norm(*state, 1, widths[w]);
        check_norm(*state, 37, widths[w]);
    }
    check_norm(*state, 300, 576);
}

static void check_act_mul(const struct kernel_fixture *f, int32_t rows, int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)rows * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, 2 * n);
    for (size_t i = 0; i < 2 * n; i += 3)
        x[i] *= 20;
    x[0] = -200, x[1] = 200;
    float *expected = kernel_fixture_guarded(n);
    struct act_mul_args args = {.gate_up = x, .out = expected, .num_rows = rows, .width = width};
    f->oracle->ops->act_mul(f->oracle, &args);
    for (int i = 0; i < f->num_backends; i++) {
        struct backend *b = f->backends[i];
        float *out = kernel_fixture_guarded(n), *single = kernel_fixture_guarded((size_t)width);
        args.out = out;
        b->ops->act_mul(b, &args);
        kernel_fixture_assert_near(out, expected, n, 1e-6);
        struct act_mul_args last = args;
        last.gate_up = x + 2 * (n - (size_t)width), last.out = single, last.num_rows = 1;
        b->ops->act_mul(b, &last);
        assert_memory_equal(single, out + n - width, (size_t)width * sizeof(float));
        kernel_fixture_guarded_free(out);
        kernel_fixture_guarded_free(single);
    }
    kernel_fixture_guarded_free(expected);
    free(x);
}

static void test_act_mul(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_act_mul(*state, 1, widths[w]);
        check_act_mul(*state, 37, widths[w]);
    }
}

static void test_gather_rows(void **state) {
    const struct kernel_fixture *f = *state;
    enum { ROWS = 300, WIDTH = 577 };
    uint64_t seed = 5;
    float *x = kernel_fixture_random_floats(&seed, (size_t)ROWS * WIDTH);
    int32_t rows[ROWS];
    for (int r = 0; r < ROWS; r++)
        rows[r] = kernel_fixture_random_in(&seed, 0, ROWS - 1);
    for (int i = 0; i < f->num_backends; i++) {
        float *out = kernel_fixture_guarded((size_t)ROWS * WIDTH);
        f->backends[i]->ops->gather_rows(
            f->backends[i],
            &(struct gather_rows_args){
                .x = x, .rows = rows, .out = out, .num_rows = ROWS, .width = WIDTH});
        for (int r = 0; r < ROWS; r++)
            assert_memory_equal(out + r * WIDTH, x + rows[r] * WIDTH, WIDTH * sizeof(float));
        kernel_fixture_guarded_free(out);
    }
    free(x);
}

/* The rotation of q; k and v are seen through attention in check_attention. */
static void check_rope(const struct kernel_fixture *f, int32_t head_dim, int32_t rotary_dim,
                       bool interleaved) {
    enum { TOKENS = 40, Q_HEADS = 3, KV_HEADS = 1, POSITIONS = 50 };
    uint64_t seed = (uint64_t)head_dim * 1000 + (uint64_t)rotary_dim;
    size_t n = (size_t)TOKENS * (Q_HEADS + 2 * KV_HEADS) * (size_t)head_dim;
    float *qkv = kernel_fixture_random_floats(&seed, n);
    float *table = malloc((size_t)POSITIONS * (size_t)rotary_dim * sizeof(float));
    assert_non_null(table);
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < rotary_dim / 2; i++) {
            double angle = p * pow(10000, -2.0 * i / rotary_dim);
            table[p * rotary_dim + i] = (float)cos(angle);
            table[p * rotary_dim + rotary_dim / 2 + i] = (float)sin(angle);
        }
    int32_t positions[TOKENS], slots[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        positions[t] = kernel_fixture_random_in(&seed, 0, POSITIONS - 1);
        slots[t] = TOKENS - 1 - t;
    }
    struct step_inputs step = {.num_tokens = TOKENS, .positions = positions, .slot_mapping = slots};
    struct kv_cache cache = {.layout = {.num_layers = 1,
                                        .num_kv_heads = KV_HEADS,
                                        .head_dim = head_dim,
                                        .block_size = 16,
                                        .dtype = DTYPE_F16},
                             .num_blocks = 3};
    assert_int_equal(f->oracle->ops->buffer_alloc(f->oracle, 3 * kv_block_bytes(&cache.layout),
                                                  &cache.buffer, NULL),
                     0);
    float *expected = kernel_fixture_guarded(n);
    memcpy(expected, qkv, n * sizeof(float));
    struct rope_store_args args = {.qkv = expected,
                                   .rope_table = table,
                                   .cache = &cache,
                                   .num_q_heads = Q_HEADS,
                                   .rotary_dim = rotary_dim,
                                   .interleaved = interleaved};
    f->oracle->ops->step_begin(f->oracle, &step);
    f->oracle->ops->rope_store_kv(f->oracle, &args);
    for (int i = 0; i < f->num_backends; i++) {
        struct backend *b = f->backends[i];
        float *out = kernel_fixture_guarded(n);
        memcpy(out, qkv, n * sizeof(float));
        args.qkv = out;
        b->ops->step_begin(b, &step);
        b->ops->rope_store_kv(b, &args);
        int row = (Q_HEADS + 2 * KV_HEADS) * head_dim;
        for (int t = 0; t < TOKENS; t++)
            kernel_fixture_assert_near(out + t * row, expected + t * row,
                                       (size_t)(Q_HEADS * head_dim), 1e-6);
        kernel_fixture_guarded_free(out);
    }
    f->oracle->ops->buffer_free(f->oracle, &cache.buffer);
    kernel_fixture_guarded_free(expected);
    free(table);
    free(qkv);
}

static void test_rope(void **state) {
    static const int32_t dims[][2] = {{64, 64},   {64, 32},   {80, 80}, {80, 20}, {96, 96},
                                      {128, 128}, {256, 256}, {8, 8},   {72, 2}};
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        check_rope(*state, dims[i][0], dims[i][1], false);
        check_rope(*state, dims[i][0], dims[i][1], true);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_act_mul),
        cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_rope),
    };
    return cmocka_run_group_tests(tests, kernel_fixture_setup, kernel_fixture_teardown);
}
