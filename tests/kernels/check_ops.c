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

struct norm_case {
    int32_t rows, groups, width;
    int32_t gap; /* between the groups of a row and the next row */
    bool center, accumulate;
};

/* Nothing but the groups has changed. */
static void assert_gaps_kept(const struct norm_args *args, const float *out, const float *before) {
    int32_t used = args->num_groups * args->width;
    for (int32_t r = 0; r < args->num_rows; r++)
        for (int32_t i = used; i < args->row_stride; i++)
            assert_true(out[r * args->row_stride + i] == before[r * args->row_stride + i]);
}

/* The last row has the same bits alone, and in place where that is allowed. */
static void check_last_row(struct backend *b, const struct norm_args *args, const float *before,
                           const float *out) {
    size_t stride = (size_t)args->row_stride, first = (size_t)(args->num_rows - 1) * stride;
    size_t used = (size_t)args->num_groups * (size_t)args->width;
    float *single = kernel_fixture_guarded(stride);
    struct norm_args last = *args;
    last.x = (const float *)args->x + first, last.out = single, last.num_rows = 1;
    memcpy(single, args->accumulate ? before + first : last.x, stride * sizeof(float));
    if (!args->accumulate)
        last.x = single;
    b->ops->norm(b, &last);
    assert_memory_equal(single, out + first, used * sizeof(float));
    kernel_fixture_guarded_free(single);
}

static void check_norm(const struct kernel_fixture *f, const struct norm_case *c) {
    uint64_t seed = (uint64_t)c->width;
    struct norm_args args = {.num_rows = c->rows,
                             .row_stride = c->groups * c->width + c->gap,
                             .num_groups = c->groups,
                             .width = c->width,
                             .epsilon = 1e-5f,
                             .center = c->center,
                             .accumulate = c->accumulate};
    size_t n = (size_t)c->rows * (size_t)args.row_stride;
    float *x = kernel_fixture_random_floats(&seed, n);
    for (size_t i = 0; i < n; i++) /* a mean that counts */
        x[i] += 1;
    float *before = kernel_fixture_random_floats(&seed, n);
    float *weight = kernel_fixture_random_floats(&seed, (size_t)c->width);
    float *expected = kernel_fixture_guarded(n);
    memcpy(expected, before, n * sizeof(float));
    args.x = x, args.weight = weight, args.out = expected;
    f->oracle->ops->norm(f->oracle, &args);
    for (int i = 0; i < f->num_backends; i++) {
        struct backend *b = f->backends[i];
        float *out = kernel_fixture_guarded(n);
        memcpy(out, before, n * sizeof(float));
        args.out = out;
        b->ops->norm(b, &args);
        kernel_fixture_assert_near(out, expected, n, c->center ? 4e-6 : 2e-6);
        assert_gaps_kept(&args, out, before);
        check_last_row(b, &args, before, out);
        kernel_fixture_guarded_free(out);
    }
    kernel_fixture_guarded_free(expected);
    free(weight);
    free(before);
    free(x);
}

static void test_norm(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_norm(*state, &(struct norm_case){1, 1, widths[w], 0, false, false});
        check_norm(*state, &(struct norm_case){37, 1, widths[w], 0, false, false});
    }
    check_norm(*state, &(struct norm_case){300, 1, 576, 0, false, false});
}

static void test_norm_of_groups(void **state) {
    static const struct norm_case shapes[] = {
        {1, 9, 64, 384, false, false},  {37, 3, 64, 0, false, false},
        {5, 32, 128, 16, false, false}, {70, 8, 256, 3, false, false},
        {300, 2, 33, 1, false, false},  {4, 5, 7, 50, false, false},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int variant = 0; variant < 4; variant++) {
            struct norm_case c = shapes[i];
            c.center = variant & 1, c.accumulate = variant & 2;
            check_norm(*state, &c);
        }
}

static void test_centered_and_added_norm(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_norm(*state, &(struct norm_case){3, 1, widths[w], 0, true, false});
        check_norm(*state, &(struct norm_case){17, 1, widths[w], 5, false, true});
        check_norm(*state, &(struct norm_case){1, 1, widths[w], 0, true, true});
    }
}

static void check_act_mul(const struct kernel_fixture *f, enum activation activation, int32_t rows,
                          int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)rows * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, 2 * n);
    for (size_t i = 0; i < 2 * n; i += 3)
        x[i] *= 20;
    x[0] = -200, x[1] = 200;
    float *expected = kernel_fixture_guarded(n);
    struct act_mul_args args = {
        .gate_up = x, .out = expected, .num_rows = rows, .width = width, .activation = activation};
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
    for (size_t w = 0; w < NUM_WIDTHS; w++)
        for (int activation = ACTIVATION_SILU; activation <= ACTIVATION_GELU_TANH; activation++) {
            check_act_mul(*state, (enum activation)activation, 1, widths[w]);
            check_act_mul(*state, (enum activation)activation, 37, widths[w]);
        }
}

/* Where the powers in it overflow, its factors cancel, or nothing is left; a NaN stays one. */
static void test_gelu_at_its_ends(void **state) {
    const struct kernel_fixture *f = *state;
    static const float gates[] = {-3e38f, -1e20f, -1e13f,  -300,  -10.5f, -9.9f, -5,
                                  -2,     -1e-3f, -1e-30f, 0,     1e-30f, 1e-3f, 2,
                                  5.5f,   300,    1e13f,   1e20f, 3e38f};
    enum { NUM_GATES = sizeof(gates) / sizeof(gates[0]) };
    for (int i = 0; i < f->num_backends; i++) {
        float gate_up[2 * (NUM_GATES + 1)], out[NUM_GATES + 1], expected[NUM_GATES + 1];
        for (int g = 0; g <= NUM_GATES; g++) {
            gate_up[g] = g < NUM_GATES ? gates[g] : NAN;
            gate_up[NUM_GATES + 1 + g] = 0.5f;
        }
        struct act_mul_args args = {.gate_up = gate_up,
                                    .out = expected,
                                    .num_rows = 1,
                                    .width = NUM_GATES + 1,
                                    .activation = ACTIVATION_GELU_TANH};
        f->oracle->ops->act_mul(f->oracle, &args);
        args.out = out;
        f->backends[i]->ops->act_mul(f->backends[i], &args);
        kernel_fixture_assert_near(out, expected, NUM_GATES, 1e-6);
        for (int g = 0; g < NUM_GATES; g++) /* relative where the oracle is exact enough */
            if (fabsf(gates[g]) < 3)
                assert_true(fabsf(out[g] - expected[g]) <= 1e-6f * fabsf(expected[g]));
        assert_true(isnan(out[NUM_GATES]));
    }
}

static void check_soft_cap(const struct kernel_fixture *f, int32_t rows, int32_t width, float cap) {
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)rows * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, n), *expected = kernel_fixture_guarded(n);
    for (size_t i = 0; i < n; i++)
        x[i] *= i % 5 == 0 ? 1e4f : i % 5 == 1 ? 1e-4f : cap;
    memcpy(expected, x, n * sizeof(float));
    struct soft_cap_args args = {.x = expected, .num_rows = rows, .width = width, .cap = cap};
    f->oracle->ops->soft_cap(f->oracle, &args);
    for (int i = 0; i < f->num_backends; i++) {
        struct backend *b = f->backends[i];
        float *out = kernel_fixture_guarded(n), *single = kernel_fixture_guarded((size_t)width);
        memcpy(out, x, n * sizeof(float));
        memcpy(single, x + n - width, (size_t)width * sizeof(float));
        b->ops->soft_cap(
            b, &(struct soft_cap_args){.x = out, .num_rows = rows, .width = width, .cap = cap});
        kernel_fixture_assert_near(out, expected, n, 1e-6);
        b->ops->soft_cap(
            b, &(struct soft_cap_args){.x = single, .num_rows = 1, .width = width, .cap = cap});
        assert_memory_equal(single, out + n - width, (size_t)width * sizeof(float));
        kernel_fixture_guarded_free(single);
        kernel_fixture_guarded_free(out);
    }
    kernel_fixture_guarded_free(expected);
    free(x);
}

static void test_soft_cap(void **state) {
    const struct kernel_fixture *f = *state;
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_soft_cap(f, 1, widths[w], 30);
        check_soft_cap(f, 13, widths[w], 2.5f);
    }
    check_soft_cap(f, 3, 49157, 50);
    for (int i = 0; i < f->num_backends; i++) {
        float x[3] = {INFINITY, -INFINITY, NAN};
        f->backends[i]->ops->soft_cap(
            f->backends[i], &(struct soft_cap_args){.x = x, .num_rows = 1, .width = 3, .cap = 30});
        assert_true(x[0] == 30 && x[1] == -30 && isnan(x[2]));
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

/* The same bits as the oracle, in one call or in two that cut every span, and nothing beside the
 * sums is touched. */
static void check_add_rows(const struct kernel_fixture *f, const struct row_span *spans,
                           int32_t num_spans, int32_t num_rows, int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_spans * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, (size_t)num_rows * (size_t)width);
    float *before = kernel_fixture_random_floats(&seed, n);
    float *expected = kernel_fixture_guarded(n);
    struct row_span halves[2][8];
    assert_in_range(num_spans, 1, 8);
    for (int32_t s = 0; s < num_spans; s++) {
        int32_t cut = spans[s].num_rows / 3;
        halves[0][s] = (struct row_span){spans[s].first_row, cut};
        halves[1][s] = (struct row_span){spans[s].first_row + cut, spans[s].num_rows - cut};
    }
    struct add_rows_args args = {
        .x = x, .spans = spans, .sums = expected, .num_spans = num_spans, .width = width};
    memcpy(expected, before, n * sizeof(float));
    f->oracle->ops->add_rows(f->oracle, &args);
    for (int i = 0; i < f->num_backends; i++)
        for (int num_calls = 1; num_calls <= 2; num_calls++) {
            struct backend *b = f->backends[i];
            args.sums = kernel_fixture_guarded(n);
            memcpy(args.sums, before, n * sizeof(float));
            for (int call = 0; call < num_calls; call++) {
                args.spans = num_calls == 1 ? spans : halves[call];
                b->ops->add_rows(b, &args);
            }
            assert_memory_equal(args.sums, expected, n * sizeof(float));
            kernel_fixture_guarded_free(args.sums);
        }
    kernel_fixture_guarded_free(expected);
    free(before);
    free(x);
}

static void test_add_rows(void **state) {
    static const struct row_span one[] = {{0, 1}}, long_one[] = {{3, 296}};
    static const struct row_span several[] = {{0, 1}, {1, 0}, {1, 30}, {31, 2}, {40, 260}};
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_add_rows(*state, one, 1, 1, widths[w]);
        check_add_rows(*state, long_one, 1, 300, widths[w]);
        check_add_rows(*state, several, 5, 300, widths[w]);
    }
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

/* Rows and pool are those of a rotation by nothing: cosines of 1 and sines of 0. */
static void test_no_rope(void **state) {
    enum { TOKENS = 40, HEAD_DIM = 24, Q_HEADS = 3, KV_HEADS = 2 };
    enum { ROW = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM };
    const struct kernel_fixture *f = *state;
    uint64_t seed = 11;
    float *qkv = kernel_fixture_random_floats(&seed, TOKENS * ROW);
    float identity[HEAD_DIM] = {0};
    for (int i = 0; i < HEAD_DIM / 2; i++)
        identity[i] = 1;
    int32_t positions[TOKENS] = {0}, far[TOKENS], slots[TOKENS];
    for (int t = 0; t < TOKENS; t++)
        far[t] = 1 << 30, slots[t] = (t * 7 + 3) % 48;
    for (int i = -1; i < f->num_backends; i++) {
        struct backend *b = i < 0 ? f->oracle : f->backends[i];
        struct kv_cache caches[2];
        float *rows[2];
        for (int c = 0; c < 2; c++) {
            caches[c] = (struct kv_cache){.layout = {.num_layers = 1,
                                                     .num_kv_heads = KV_HEADS,
                                                     .head_dim = HEAD_DIM,
                                                     .block_size = 16,
                                                     .dtype = DTYPE_BF16},
                                          .num_blocks = 3};
            size_t bytes = 3 * kv_block_bytes(&caches[c].layout);
            assert_int_equal(b->ops->buffer_alloc(b, bytes, &caches[c].buffer, NULL), 0);
            rows[c] = kernel_fixture_guarded(TOKENS * ROW);
            memcpy(rows[c], qkv, TOKENS * ROW * sizeof(float));
            struct step_inputs step = {
                .num_tokens = TOKENS, .positions = c == 0 ? positions : far, .slot_mapping = slots};
            b->ops->step_begin(b, &step);
            b->ops->rope_store_kv(b,
                                  &(struct rope_store_args){.qkv = rows[c],
                                                            .rope_table = c == 0 ? identity : NULL,
                                                            .cache = &caches[c],
                                                            .num_q_heads = Q_HEADS,
                                                            .rotary_dim = HEAD_DIM});
        }
        for (int t = 0; t < TOKENS; t++)
            assert_memory_equal(rows[1] + t * ROW, qkv + t * ROW,
                                Q_HEADS * HEAD_DIM * sizeof(float));
        assert_memory_equal(caches[1].buffer.data, caches[0].buffer.data, caches[0].buffer.bytes);
        for (int c = 0; c < 2; c++) {
            kernel_fixture_guarded_free(rows[c]);
            b->ops->buffer_free(b, &caches[c].buffer);
        }
    }
    free(qkv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_norm_of_groups),
        cmocka_unit_test(test_centered_and_added_norm),
        cmocka_unit_test(test_act_mul),
        cmocka_unit_test(test_gelu_at_its_ends),
        cmocka_unit_test(test_soft_cap),
        cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_add_rows),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_no_rope),
    };
    return cmocka_run_group_tests(tests, kernel_fixture_setup, kernel_fixture_teardown);
}
