/* The row-wise ops against the oracle: ragged widths, odd numbers of rows, guarded arrays; and the
 * same bits whatever the number of threads and the other rows. */
#include "tests/kernels/kernel_fixture.h"
#include "kernels/kv_type.h"
#include "tests/kernels/sample_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct kernel_fixture fixture;

static const int32_t widths[] = {1,  7,   8,   15,  16,   17,   24,   33,
                                 64, 100, 257, 576, 1536, 2049, 2056, 8200};
#define NUM_WIDTHS (sizeof(widths) / sizeof(widths[0]))

/* Enough to be shared by threads. */
static int32_t many_rows(void) {
    return fixture.is_simulated ? 5 : 37;
}

struct norm_case {
    int32_t rows, width;
    int32_t gap; /* between what is normalised of a row and the next row */
    bool center, accumulate, biased;
};

/* An op that changes its input or adds to its output, for kernel_fixture_run: `changed` is put back
 * first. */
struct repeated {
    const void *args;
    void (*op)(struct backend *b, const void *args);
    enum dtype dtype;
    void *changed;
    const float *before;
    size_t n;
};

static void run_repeated(struct backend *b, const void *context) {
    const struct repeated *r = context;
    kernel_fixture_set(b, r->dtype, r->changed, r->before, r->n);
    r->op(b, r->args);
}

/* Leaves the result in `out` as floats. */
static void repeat(struct backend *b, struct repeated r, float *out) {
    kernel_fixture_run(b, run_repeated, &r, r.changed, dtype_row_bytes(r.dtype, r.n));
    kernel_fixture_get(b, r.dtype, r.changed, out, r.n);
}

static void call_norm(struct backend *b, const void *args) {
    b->ops->norm(b, args);
}

/* The rows are close to the oracle's; what is between them is as it was. */
static void assert_rows(const struct norm_args *args, const float *actual, const float *expected,
                        const float *before) {
    size_t used = (size_t)args->width;
    for (size_t r = 0; r < (size_t)args->num_rows; r++) {
        size_t first = r * (size_t)args->row_stride, end = first + (size_t)args->row_stride;
        kernel_fixture_assert_close(&fixture, actual + first, expected + first, used,
                                    args->center ? 4e-6 : 2e-6, "norm");
        for (size_t i = first + used; i < end; i++)
            assert_true(actual[i] == before[i]);
    }
}

/* In place, the rows have the same bits. */
static void check_norm_in_place(struct backend *b, struct norm_args args, void *x,
                                const float *expected, size_t n) {
    float *actual = kernel_fixture_guarded(n);
    args.x = args.out = x;
    b->ops->norm(b, &args);
    kernel_fixture_get(b, fixture.dtype, x, actual, n);
    for (size_t r = 0; r < (size_t)args.num_rows; r++)
        assert_memory_equal(actual + r * (size_t)args.row_stride,
                            expected + r * (size_t)args.row_stride,
                            (size_t)args.width * sizeof(float));
    kernel_fixture_guarded_free(actual);
}

/* The last row has the same bits alone. */
static void check_last_norm(struct backend *b, struct norm_args args, const float *before,
                            const float *together) {
    size_t stride = (size_t)args.row_stride, first = (size_t)(args.num_rows - 1) * stride;
    float *alone = kernel_fixture_guarded(stride);
    args.x = (const char *)args.x + dtype_row_bytes(fixture.dtype, first);
    args.out = kernel_fixture_put(b, fixture.dtype, before + first, stride);
    args.num_rows = 1;
    b->ops->norm(b, &args);
    kernel_fixture_get(b, fixture.dtype, args.out, alone, stride);
    assert_memory_equal(alone, together + first, stride * sizeof(float));
    kernel_fixture_free(b, args.out);
    kernel_fixture_guarded_free(alone);
}

static void check_norm(const struct norm_case *c) {
    uint64_t seed = (uint64_t)c->width;
    struct norm_args args = {.num_rows = c->rows,
                             .row_stride = c->width + c->gap,
                             .width = c->width,
                             .epsilon = 1e-5f,
                             .center = c->center,
                             .accumulate = c->accumulate};
    size_t n = (size_t)c->rows * (size_t)args.row_stride;
    float *x = kernel_fixture_random_floats(&seed, n);
    for (size_t i = 0; i < n; i++) /* a mean that counts */
        x[i] += 1;
    kernel_fixture_round(&fixture, x, n);
    float *before = kernel_fixture_rounded_floats(&fixture, &seed, n);
    float *weight = kernel_fixture_random_floats(&seed, (size_t)c->width);
    float *bias = kernel_fixture_random_floats(&seed, (size_t)c->width);
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    memcpy(expected, before, n * sizeof(float));
    args.x = x, args.weight = weight, args.out = expected;
    args.bias = c->biased ? bias : NULL;
    fixture.oracle->ops->norm(fixture.oracle, &args);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        void *device_x = kernel_fixture_put(b, fixture.dtype, x, n);
        void *device_weight = kernel_fixture_put(b, DTYPE_F32, weight, (size_t)c->width);
        void *device_bias = kernel_fixture_put(b, DTYPE_F32, bias, (size_t)c->width);
        void *out = kernel_fixture_put(b, fixture.dtype, NULL, n);
        args.x = device_x, args.weight = device_weight, args.out = out;
        args.bias = c->biased ? device_bias : NULL;
        repeat(b, (struct repeated){&args, call_norm, fixture.dtype, out, before, n}, actual);
        assert_rows(&args, actual, expected, before);
        if (fixture.bits_equal)
            check_last_norm(b, args, before, actual);
        if (!c->accumulate)
            check_norm_in_place(b, args, device_x, actual, n);
        kernel_fixture_free(b, device_x);
        kernel_fixture_free(b, device_weight);
        kernel_fixture_free(b, device_bias);
        kernel_fixture_free(b, out);
    }
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(bias);
    free(weight);
    free(before);
    free(x);
}

static void test_norm(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_norm(&(struct norm_case){1, widths[w], 0, false, false});
        check_norm(&(struct norm_case){many_rows(), widths[w], 0, false, false});
    }
    check_norm(&(struct norm_case){300, 576, 0, false, false});
}

/* Rows and gaps that let 16-byte accesses be and that do not; a mean of nothing and a mean to take
 * away; added and not. */
static void test_norm_of_parts_of_rows(void **state) {
    static const struct norm_case shapes[] = {
        {1, 576, 0, false, false},  {3, 576, 384, false, false}, {6, 128, 8, false, false},
        {6, 257, 1, false, false},  {4, 264, 3, false, false},   {15, 24, 9, false, false},
        {12, 8, 40, false, false},  {2, 2056, 8, false, false},  {111, 64, 128, false, false},
        {70, 256, 3, false, false}, {300, 33, 1, false, false},  {20, 7, 50, false, false},
    };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int variant = 0; variant < 4; variant++) {
            struct norm_case c = shapes[i];
            c.center = variant & 1, c.accumulate = variant & 2;
            check_norm(&c);
        }
}

static void test_centered_and_added_norm(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_norm(&(struct norm_case){3, widths[w], 0, true, false});
        check_norm(&(struct norm_case){17, widths[w], 5, false, true});
        check_norm(&(struct norm_case){1, widths[w], 0, true, true});
        check_norm(&(struct norm_case){5, widths[w], 0, true, w % 2 == 0, true});
    }
}

static void call_act_mul(struct backend *b, const void *args) {
    b->ops->act_mul(b, args);
}

/* Each by itself: the largest shall not hide the small. */
static void assert_products(const float *actual, const float *expected, size_t n) {
    if (fixture.dtype == DTYPE_F32) {
        kernel_fixture_assert_near(actual, expected, n, 1e-6);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double allowed = 2 * fixture.tolerance * fabs(expected[i]) + 1e-7;
        if (!(fabs((double)actual[i] - expected[i]) <= allowed))
            fail_msg("element %zu of act_mul is %.9g, expected %.9g", i, actual[i], expected[i]);
    }
}

static void check_last_act_mul(struct backend *b, struct act_mul_args args, const float *together) {
    size_t width = (size_t)args.width, first = (size_t)(args.num_rows - 1) * width;
    float *alone = kernel_fixture_guarded(width);
    args.gate_up = (const char *)args.gate_up + dtype_row_bytes(fixture.dtype, 2 * first);
    args.out = kernel_fixture_put(b, fixture.dtype, NULL, width);
    args.num_rows = 1;
    b->ops->act_mul(b, &args);
    kernel_fixture_get(b, fixture.dtype, args.out, alone, width);
    assert_memory_equal(alone, together + first, width * sizeof(float));
    kernel_fixture_free(b, args.out);
    kernel_fixture_guarded_free(alone);
}

static void check_act_mul(enum activation activation, int32_t num_rows, int32_t width) {
    static const float ends[] = {-200, 200, 90, -3e4f, 3e4f, -10.5f, -5, 1e-4f, 0};
    uint64_t seed = (uint64_t)width;
    size_t n = (size_t)num_rows * (size_t)width;
    float *x = kernel_fixture_random_floats(&seed, 2 * n);
    for (size_t i = 0; fixture.dtype == DTYPE_F32 && i < 2 * n; i += 3)
        x[i] *= 20;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]) && i < (size_t)width; i++)
        x[i] = ends[i], x[(size_t)width + i] = 1e-3f;
    if (fixture.dtype == DTYPE_F32 && width > 1)
        x[0] = -200, x[1] = 200, x[(size_t)width] = x[(size_t)width + 1] = 1;
    kernel_fixture_round(&fixture, x, 2 * n);
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    struct act_mul_args args = {.gate_up = x,
                                .out = expected,
                                .num_rows = num_rows,
                                .width = width,
                                .activation = activation};
    fixture.oracle->ops->act_mul(fixture.oracle, &args);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        void *gate_up = kernel_fixture_put(b, fixture.dtype, x, 2 * n);
        void *out = kernel_fixture_put(b, fixture.dtype, NULL, n);
        args.gate_up = gate_up, args.out = out;
        kernel_fixture_run(b, call_act_mul, &args, out, dtype_row_bytes(fixture.dtype, n));
        kernel_fixture_get(b, fixture.dtype, out, actual, n);
        assert_products(actual, expected, n);
        if (fixture.bits_equal)
            check_last_act_mul(b, args, actual);
        kernel_fixture_free(b, gate_up);
        kernel_fixture_free(b, out);
    }
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(x);
}

static void test_act_mul(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++)
        for (int activation = ACTIVATION_SILU; activation <= ACTIVATION_CLAMPED_SWIGLU;
             activation++) {
            check_act_mul((enum activation)activation, 1, widths[w]);
            check_act_mul((enum activation)activation, many_rows(), widths[w]);
        }
}

static float largest_gate(void) {
    return fixture.dtype == DTYPE_F16 ? 65504 : fixture.dtype == DTYPE_BF16 ? 0x1.fep127f : 3e38f;
}

/* Both sides of each limit, where nothing is left of the gate, and NaN, which stays one. */
static void test_clamped_swiglu_at_its_ends(void **state) {
    enum { NUM_NUMBERS = 18, NUM = 20 };
    float gates_and_ups[2 * NUM] = {7,    7.5f, 6.5f, -7, -7.5f, -60,   -200, -largest_gate(),
                                    3e4f, 1,    1,    1,  1,     1,     1,    1,
                                    0,    -1,   NAN,  1, /* ups: */
                                    1,    1,    1,    1,  1,     1,     5,    7,
                                    2,    7,    7.5f, 6,  -7,    -7.5f, -6,   3e4f,
                                    3,    -1,   1,    NAN};
    float expected[NUM], out[NUM];
    struct act_mul_args args = {.gate_up = gates_and_ups,
                                .out = expected,
                                .num_rows = 1,
                                .width = NUM,
                                .activation = ACTIVATION_CLAMPED_SWIGLU};
    fixture.oracle->ops->act_mul(fixture.oracle, &args);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        void *gate_up = kernel_fixture_put(b, fixture.dtype, gates_and_ups, 2 * NUM);
        args.gate_up = gate_up;
        args.out = kernel_fixture_put(b, fixture.dtype, NULL, NUM);
        b->ops->act_mul(b, &args);
        kernel_fixture_get(b, fixture.dtype, args.out, out, NUM);
        assert_products(out, expected, NUM_NUMBERS);
        assert_true(out[0] == out[1] && out[0] != out[2] && out[9] == out[10]);
        assert_true(out[12] == out[13] && out[12] != out[14]);
        assert_true(isnan(out[18]) && isnan(out[19]));
        assert_true(isnan(expected[18]) && isnan(expected[19]));
        kernel_fixture_free(b, gate_up);
        kernel_fixture_free(b, args.out);
    }
}

/* Where the powers in it overflow, its factors cancel, or nothing is left; a NaN stays one. */
static void test_gelu_at_its_ends(void **state) {
    enum { NUM_ENDS = 8, NUM_GATES = 26 };
    float largest = largest_gate();
    float gates[2 * NUM_GATES] = {
        -largest, largest, -largest / 64, largest / 64, -1e-4f, -20,   NAN,    0,       -1e20f,
        -1e13f,   -300,    -10.5f,        -9.9f,        -5,     -2,    -1e-3f, -1e-30f, 1e-30f,
        1e-3f,    2,       5.5f,          300,          1e13f,  1e20f, 3e38f,  -3e38f};
    float expected[NUM_GATES], out[NUM_GATES];
    for (int g = 0; g < NUM_GATES; g++) {
        if (fabsf(gates[g]) > largest)
            gates[g] = copysignf(largest, gates[g]);
        gates[NUM_GATES + g] = g < NUM_ENDS ? 1 : 0.5f;
    }
    kernel_fixture_round(&fixture, gates, NUM_GATES);
    struct act_mul_args args = {.gate_up = gates,
                                .out = expected,
                                .num_rows = 1,
                                .width = NUM_GATES,
                                .activation = ACTIVATION_GELU_TANH};
    fixture.oracle->ops->act_mul(fixture.oracle, &args);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        void *gate_up = kernel_fixture_put(b, fixture.dtype, gates, 2 * NUM_GATES);
        args.gate_up = gate_up;
        args.out = kernel_fixture_put(b, fixture.dtype, NULL, NUM_GATES);
        b->ops->act_mul(b, &args);
        kernel_fixture_get(b, fixture.dtype, args.out, out, NUM_GATES);
        if (fixture.dtype != DTYPE_F32)
            assert_true(out[0] == 0 && out[1] == largest && out[2] == 0 && out[3] == largest / 64);
        assert_true(fabsf(out[4] + 5e-5f) <= 1e-6f && fabsf(out[5]) < 1e-20f);
        assert_true(isnan(out[6]) && out[7] == 0);
        assert_products(out, expected, 6);
        assert_products(out + NUM_ENDS, expected + NUM_ENDS, NUM_GATES - NUM_ENDS);
        for (int g = 0; g < NUM_GATES; g++) /* relative where the oracle is exact enough */
            if (fixture.dtype == DTYPE_F32 && fabsf(gates[g]) < 3)
                assert_true(fabsf(out[g] - expected[g]) <= 1e-6f * fabsf(expected[g]));
        kernel_fixture_free(b, gate_up);
        kernel_fixture_free(b, args.out);
    }
}

static void call_soft_cap(struct backend *b, const void *args) {
    b->ops->soft_cap(b, args);
}

static void check_soft_cap(int32_t num_rows, int32_t width, float cap) {
    uint64_t seed = (uint64_t)width;
    size_t row = (size_t)width, n = (size_t)num_rows * row, last = n - row;
    float *x = kernel_fixture_random_floats(&seed, n);
    for (size_t i = 0; i < n; i++)
        x[i] *= i % 5 == 0 ? 1e4f : i % 5 == 1 ? 1e-4f : cap;
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    float *alone = kernel_fixture_guarded(row);
    memcpy(expected, x, n * sizeof(float));
    struct soft_cap_args args = {.x = expected, .num_rows = num_rows, .width = width, .cap = cap};
    fixture.oracle->ops->soft_cap(fixture.oracle, &args);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        args.x = kernel_fixture_put(b, DTYPE_F32, NULL, n), args.num_rows = num_rows;
        repeat(b, (struct repeated){&args, call_soft_cap, DTYPE_F32, args.x, x, n}, actual);
        kernel_fixture_assert_near(actual, expected, n, 1e-6);
        kernel_fixture_free(b, args.x);
        args.x = kernel_fixture_put(b, DTYPE_F32, x + last, row), args.num_rows = 1;
        b->ops->soft_cap(b, &args);
        kernel_fixture_get(b, DTYPE_F32, args.x, alone, row);
        if (fixture.bits_equal)
            assert_memory_equal(alone, actual + last, row * sizeof(float));
        kernel_fixture_free(b, args.x);
    }
    kernel_fixture_guarded_free(alone);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(x);
}

static void test_soft_cap(void **state) {
    static const float odd[3] = {INFINITY, -INFINITY, NAN};
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_soft_cap(1, widths[w], 30);
        check_soft_cap(3, widths[w], 2.5f);
        check_soft_cap(13, widths[w], 2.5f);
    }
    check_soft_cap(3, 49157, 50);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        float out[3];
        struct soft_cap_args args = {.num_rows = 1, .width = 3, .cap = 30};
        args.x = kernel_fixture_put(b, DTYPE_F32, odd, 3);
        b->ops->soft_cap(b, &args);
        kernel_fixture_get(b, DTYPE_F32, args.x, out, 3);
        assert_true(out[0] == 30 && out[1] == -30 && isnan(out[2]));
        kernel_fixture_free(b, args.x);
    }
}

static void call_gather_rows(struct backend *b, const void *args) {
    b->ops->gather_rows(b, args);
}

static void check_gather_rows(int32_t num_in, int32_t num_out, int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t row = (size_t)width, n = (size_t)num_out * row;
    float *x = kernel_fixture_rounded_floats(&fixture, &seed, (size_t)num_in * row);
    float *actual = kernel_fixture_guarded(n);
    int32_t *rows = kernel_fixture_memory((size_t)num_out * sizeof(*rows));
    for (int32_t r = 0; r < num_out; r++)
        rows[r] = kernel_fixture_random_in(&seed, 0, num_in - 1);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        void *device_x = kernel_fixture_put(b, fixture.dtype, x, (size_t)num_in * row);
        void *out = kernel_fixture_put(b, fixture.dtype, NULL, n);
        struct gather_rows_args args = {
            .x = device_x, .rows = rows, .out = out, .num_rows = num_out, .width = width};
        kernel_fixture_run(b, call_gather_rows, &args, out, dtype_row_bytes(fixture.dtype, n));
        kernel_fixture_get(b, fixture.dtype, out, actual, n);
        for (int32_t r = 0; r < num_out; r++)
            assert_memory_equal(actual + (size_t)r * row, x + (size_t)rows[r] * row,
                                row * sizeof(float));
        kernel_fixture_free(b, device_x);
        kernel_fixture_free(b, out);
    }
    kernel_fixture_guarded_free(actual);
    free(rows);
    free(x);
}

static void test_gather_rows(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++)
        check_gather_rows(13, 7, widths[w]);
    check_gather_rows(300, 300, 577);
    check_gather_rows(13, 4099, 3); /* more than one list to a device holds */
}

static void call_scatter_rows(struct backend *b, const void *args) {
    b->ops->scatter_rows(b, args);
}

/* Each row of x to a row of its own, of twice as many; the others stay as they were. */
static void check_scatter_rows(int32_t num_rows, int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t row = (size_t)width, n = (size_t)num_rows * row;
    float *x = kernel_fixture_rounded_floats(&fixture, &seed, n);
    float *before = kernel_fixture_rounded_floats(&fixture, &seed, 2 * n);
    float *actual = kernel_fixture_guarded(2 * n);
    int32_t *rows = kernel_fixture_memory((size_t)num_rows * sizeof(*rows));
    for (int32_t r = 0; r < num_rows; r++)
        rows[r] = 2 * (num_rows - 1 - r) + kernel_fixture_random_in(&seed, 0, 1);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        void *device_x = kernel_fixture_put(b, fixture.dtype, x, n);
        void *out = kernel_fixture_put(b, fixture.dtype, before, 2 * n);
        struct scatter_rows_args args = {
            .x = device_x, .rows = rows, .out = out, .num_rows = num_rows, .width = width};
        kernel_fixture_run(b, call_scatter_rows, &args, out, dtype_row_bytes(fixture.dtype, 2 * n));
        kernel_fixture_get(b, fixture.dtype, out, actual, 2 * n);
        for (int32_t r = 0; r < num_rows; r++) {
            size_t to = (size_t)rows[r], other = to ^ 1;
            assert_memory_equal(actual + to * row, x + (size_t)r * row, row * sizeof(float));
            assert_memory_equal(actual + other * row, before + other * row, row * sizeof(float));
        }
        kernel_fixture_free(b, device_x);
        kernel_fixture_free(b, out);
    }
    kernel_fixture_guarded_free(actual);
    free(rows);
    free(before);
    free(x);
}

static void test_scatter_rows(void **state) {
    for (size_t w = 0; w < NUM_WIDTHS; w++)
        check_scatter_rows(7, widths[w]);
    check_scatter_rows(300, 577);
    check_scatter_rows(4099, 3); /* more than one list to a device holds */
}

static void call_add_rows(struct backend *b, const void *args) {
    b->ops->add_rows(b, args);
}

/* Sums are in float, and every addition has its place: the oracle's bits, in one call or in two
 * that cut every span. */
static void check_add_rows(const struct row_span *spans, int32_t num_spans, int32_t num_rows,
                           int32_t width) {
    uint64_t seed = (uint64_t)width;
    size_t num_x = (size_t)num_rows * (size_t)width, n = (size_t)num_spans * (size_t)width;
    float *x = kernel_fixture_rounded_floats(&fixture, &seed, num_x);
    float *before = kernel_fixture_random_floats(&seed, n);
    float *expected = kernel_fixture_guarded(n), *actual = kernel_fixture_guarded(n);
    size_t span_bytes = (size_t)num_spans * sizeof(*spans);
    struct row_span *halves[2] = {kernel_fixture_memory(span_bytes),
                                  kernel_fixture_memory(span_bytes)};
    for (int32_t s = 0; s < num_spans; s++) {
        int32_t cut = spans[s].num_rows / 3;
        halves[0][s] = (struct row_span){spans[s].first_row, cut};
        halves[1][s] = (struct row_span){spans[s].first_row + cut, spans[s].num_rows - cut};
    }
    struct add_rows_args args = {
        .x = x, .spans = spans, .sums = expected, .num_spans = num_spans, .width = width};
    memcpy(expected, before, n * sizeof(float));
    fixture.oracle->ops->add_rows(fixture.oracle, &args);
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        void *device_x = kernel_fixture_put(b, fixture.dtype, x, num_x);
        args.x = device_x, args.sums = kernel_fixture_put(b, DTYPE_F32, NULL, n);
        args.spans = spans;
        repeat(b, (struct repeated){&args, call_add_rows, DTYPE_F32, args.sums, before, n}, actual);
        assert_memory_equal(actual, expected, n * sizeof(float));
        kernel_fixture_set(b, DTYPE_F32, args.sums, before, n);
        for (int half = 0; half < 2; half++) {
            args.spans = halves[half];
            b->ops->add_rows(b, &args);
        }
        kernel_fixture_get(b, DTYPE_F32, args.sums, actual, n);
        assert_memory_equal(actual, expected, n * sizeof(float));
        kernel_fixture_free(b, args.sums);
        kernel_fixture_free(b, device_x);
    }
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
    free(halves[0]);
    free(halves[1]);
    free(before);
    free(x);
}

/* Of 0 to 12 of 40 rows each. */
static void check_random_spans(int32_t num_spans, int32_t width) {
    enum { ROWS = 40, LONGEST = 12 };
    uint64_t seed = (uint64_t)width + 1;
    struct row_span *spans = kernel_fixture_memory((size_t)num_spans * sizeof(*spans));
    for (int32_t s = 0; s < num_spans; s++)
        spans[s] = (struct row_span){kernel_fixture_random_in(&seed, 0, ROWS - LONGEST),
                                     kernel_fixture_random_in(&seed, 0, LONGEST)};
    check_add_rows(spans, num_spans, ROWS, width);
    free(spans);
}

static void test_add_rows(void **state) {
    static const struct row_span one[] = {{0, 1}}, long_one[] = {{3, 296}};
    static const struct row_span several[] = {{0, 1}, {1, 0}, {1, 30}, {31, 2}, {40, 260}};
    for (size_t w = 0; w < NUM_WIDTHS; w++) {
        check_add_rows(one, 1, 1, widths[w]);
        check_add_rows(long_one, 1, 300, widths[w]);
        check_add_rows(several, 5, 300, widths[w]);
        check_random_spans(1, widths[w]);
        check_random_spans(7, widths[w]);
    }
    check_random_spans(2051, 3); /* more than one list to a device holds */
}

enum { SAMPLED_VOCAB = 100, SAMPLED_WIDTH = 24, SAMPLED_ROWS = 19, SAMPLED_CHUNK = 8 };

/* Samples the rows of a step in chunks, and waits for nothing. Every fifth row scores token 7. */
static void sample_in_chunks(struct backend *b, void *logits, uint64_t seed,
                             struct sample_output *out) {
    static struct sample_row rows[SAMPLED_ROWS];
    for (int r = 0; r < SAMPLED_ROWS; r++) {
        rows[r] = sample_fixture_plain;
        rows[r].target = r % 5 == 4 ? 7 : SAMPLE_NO_TARGET;
        rows[r].settings.temperature = r % 3 == 0 ? 0 : 2;
        rows[r].seed = seed, rows[r].position = (uint64_t)r;
    }
    for (int32_t first = 0; first < SAMPLED_ROWS; first += SAMPLED_CHUNK)
        b->ops->sample(
            b, &(struct sample_args){.logits = (float *)logits + (size_t)first * SAMPLED_VOCAB,
                                     .first_row = first,
                                     .num_sample_rows = SAMPLED_ROWS - first < SAMPLED_CHUNK
                                                            ? SAMPLED_ROWS - first
                                                            : SAMPLED_CHUNK,
                                     .vocab_size = SAMPLED_VOCAB,
                                     .rows = rows + first,
                                     .out = out + first});
}

static void call_embed(struct backend *b, const void *args) {
    b->ops->embed(b, args);
}

/* The embeddings of tokens of the step before and of the host, in turn and rows backwards: those of
 * the same ids given by the host. What token_ids holds where it is not read is another token. */
static void check_embed_of_sampled(struct backend *b, const struct embed_args *args,
                                   const struct sample_output *sampled) {
    enum { NUM = SAMPLED_ROWS + 6 };
    static const int32_t zeros[NUM + 1];
    int32_t ids[NUM], rows[NUM], known[NUM];
    enum dtype dtype = b == fixture.oracle ? DTYPE_F32 : fixture.dtype;
    size_t n = NUM * SAMPLED_WIDTH;
    float *actual = kernel_fixture_guarded(n), *expected = kernel_fixture_guarded(n);
    struct step_inputs step = {.num_tokens = NUM,
                               .num_seqs = 1,
                               .max_blocks_per_seq = 1,
                               .positions = zeros,
                               .slot_mapping = zeros,
                               .query_start = zeros,
                               .context_lens = zeros,
                               .block_tables = zeros};
    for (int t = 0; t < NUM; t++) {
        rows[t] = t % 4 == 3 ? -1 : (2 * NUM - t) % SAMPLED_ROWS;
        ids[t] = t * 31 % SAMPLED_VOCAB;
    }
    step.token_ids = ids, step.token_rows = rows;
    b->ops->step_begin(b, &step);
    b->ops->embed(b, args);
    kernel_fixture_synchronize(b); /* fills in `sampled` */
    for (int t = 0; t < NUM; t++) {
        known[t] = rows[t] < 0 ? ids[t] : sampled[rows[t]].token;
        ids[t] = rows[t] < 0 ? ids[t] : (known[t] + 1) % SAMPLED_VOCAB;
    }
    b->ops->step_begin(b, &step);
    kernel_fixture_run(b, call_embed, args, args->out, dtype_row_bytes(dtype, n));
    kernel_fixture_get(b, dtype, args->out, actual, n);
    step.token_ids = known, step.token_rows = NULL;
    b->ops->step_begin(b, &step);
    b->ops->embed(b, args);
    kernel_fixture_get(b, dtype, args->out, expected, n);
    assert_memory_equal(actual, expected, n * sizeof(float));
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(expected);
}

/* Two steps, each sampled in three chunks: the second one's tokens take the place of the first's.
 */
static void test_embed_of_sampled_tokens(void **state) {
    uint64_t seed = 5;
    float *values = kernel_fixture_random_floats(&seed, SAMPLED_VOCAB * SAMPLED_WIDTH);
    float *logits = kernel_fixture_random_floats(&seed, SAMPLED_ROWS * SAMPLED_VOCAB);
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = SAMPLED_VOCAB, .data = values};
    for (int i = -1; i < fixture.num_backends; i++) {
        struct backend *b = i < 0 ? fixture.oracle : fixture.backends[i];
        struct sample_output sampled[2][SAMPLED_ROWS];
        struct matrix *table = kernel_fixture_matrix(b, &part, 1, SAMPLED_WIDTH, MATRIX_LINEAR);
        void *device_logits =
            kernel_fixture_put(b, DTYPE_F32, logits, SAMPLED_ROWS * SAMPLED_VOCAB);
        void *out = kernel_fixture_put(b, i < 0 ? DTYPE_F32 : fixture.dtype, NULL,
                                       (SAMPLED_ROWS + 6) * SAMPLED_WIDTH);
        const struct embed_args args = {.table = table, .out = out, .scale = 1.5f};
        for (uint64_t step = 0; step < 2; step++) {
            sample_in_chunks(b, device_logits, step, sampled[step]);
            check_embed_of_sampled(b, &args, sampled[step]);
        }
        int num_changed = 0;
        for (int r = 0; r < SAMPLED_ROWS; r++)
            num_changed += sampled[0][r].token != sampled[1][r].token;
        assert_true(num_changed > 0);
        kernel_fixture_free(b, out);
        kernel_fixture_free(b, device_logits);
        b->ops->matrix_destroy(b, table);
    }
    free(logits);
    free(values);
}

/* A step without a token: the ops that take their number of rows from it. */
static void check_step_of_nothing(struct backend *b) {
    static const float values[64];
    const struct matrix_part part = {.dtype = DTYPE_F32, .rows = 8, .data = values};
    struct matrix *matrix = kernel_fixture_matrix(b, &part, 1, 8, MATRIX_LINEAR);
    struct kv_cache cache = {.layout = {.num_layers = 1,
                                        .num_kv_heads = 1,
                                        .head_dim = 64,
                                        .block_size = 16,
                                        .type = kv_type_of_dtype(fixture.dtype)},
                             .num_blocks = 1};
    static const int32_t query_start[1];
    b->ops->step_begin(b, &(struct step_inputs){.query_start = query_start});
    b->ops->embed(b, &(struct embed_args){.table = matrix, .scale = 1});
    b->ops->linear(b, &(struct linear_args){.weight = matrix, .scale = 1});
    b->ops->rope_store_kv(b, &(struct rope_store_args){.cache = &cache, .num_q_heads = 1});
    b->ops->paged_attention(b, &(struct attention_args){.cache = &cache, .num_q_heads = 1});
    b->ops->matrix_destroy(b, matrix);
}

static void test_nothing_to_do(void **state) {
    for (int i = 0; i < fixture.num_backends; i++) {
        struct backend *b = fixture.backends[i];
        b->ops->norm(b, &(struct norm_args){.width = 8, .row_stride = 8});
        b->ops->act_mul(b, &(struct act_mul_args){.width = 8});
        b->ops->soft_cap(b, &(struct soft_cap_args){.width = 8, .cap = 1});
        b->ops->gather_rows(b, &(struct gather_rows_args){.width = 8});
        b->ops->scatter_rows(b, &(struct scatter_rows_args){.width = 8});
        b->ops->add_rows(b, &(struct add_rows_args){.width = 8});
        b->ops->sample(b, &(struct sample_args){.vocab_size = 8});
        check_step_of_nothing(b);
        kernel_fixture_synchronize(b);
    }
}

/* One layer among several of a pool, tokens in shuffled slots of several blocks. */
enum { TOKENS = 40, POSITIONS = 50, BLOCKS = 4, LAYERS = 3, LAYER = 1 };

struct rope_case {
    int32_t num_q_heads, num_kv_heads, head_dim, rotary_dim, block_size;
    bool interleaved;
    bool no_table; /* nothing rotates, whatever rotary_dim says */
    bool normed;
};

static void call_rope(struct backend *b, const void *args) {
    b->ops->rope_store_kv(b, args);
}

static float *rope_table(int32_t rotary_dim) {
    float *table = kernel_fixture_memory((size_t)POSITIONS * (size_t)rotary_dim * sizeof(*table));
    for (int p = 0; p < POSITIONS; p++)
        for (int i = 0; i < rotary_dim / 2; i++) {
            double angle = p * pow(10000, -2.0 * i / rotary_dim);
            table[p * rotary_dim + i] = (float)cos(angle);
            table[p * rotary_dim + rotary_dim / 2 + i] = (float)sin(angle);
        }
    return table;
}

/* The arrays of one step of TOKENS tokens. */
struct rope_step {
    struct step_inputs inputs;
    int32_t positions[TOKENS], slots[TOKENS], query_start[2], context_len, blocks[BLOCKS];
};

static void rope_step_init(struct rope_step *s, int32_t block_size, uint64_t *seed) {
    *s = (struct rope_step){
        .query_start = {0, TOKENS}, .context_len = TOKENS, .blocks = {0, 1, 2, 3}};
    for (int t = 0; t < TOKENS; t++) {
        s->positions[t] = kernel_fixture_random_in(seed, 0, POSITIONS - 1);
        s->slots[t] = (t * 5 + 3) % (BLOCKS * block_size); /* each slot once */
    }
    s->inputs = (struct step_inputs){.num_tokens = TOKENS,
                                     .num_seqs = 1,
                                     .max_blocks_per_seq = BLOCKS,
                                     .token_ids = s->positions,
                                     .positions = s->positions,
                                     .slot_mapping = s->slots,
                                     .query_start = s->query_start,
                                     .context_lens = &s->context_len,
                                     .block_tables = s->blocks};
}

static float norm_weight(bool is_k, int32_t i) {
    return 1.5F + 0.5F * sinf((float)(3 * i + is_k));
}

#define NORM_EPSILON 0.01F

/* Gives the op the weights of its norms; put_norms is undone by free_norms. */
static void put_norms(struct backend *b, const struct rope_case *c, struct rope_store_args *args) {
    float weights[2][KV_MAX_HEAD_DIM];
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < c->head_dim; i++)
            weights[k][i] = norm_weight(k == 1, i);
    args->q_norm = kernel_fixture_put(b, DTYPE_F32, weights[0], (size_t)c->head_dim);
    args->k_norm = kernel_fixture_put(b, DTYPE_F32, weights[1], (size_t)c->head_dim);
    args->norm_epsilon = NORM_EPSILON;
}

static void free_norms(struct backend *b, const struct rope_store_args *args) {
    kernel_fixture_free(b, (void *)(uintptr_t)args->q_norm);
    kernel_fixture_free(b, (void *)(uintptr_t)args->k_norm);
}

/* Normalised and rotated by their definitions, in double. */
static void turn_head(const struct rope_case *c, bool is_k, const float *table, const float *head,
                      double *out) {
    double squares = 0;
    for (int32_t i = 0; i < c->head_dim; i++)
        squares += (double)head[i] * head[i];
    double scale = 1 / sqrt(squares / c->head_dim + (double)NORM_EPSILON);
    for (int32_t i = 0; i < c->head_dim; i++)
        out[i] = c->normed ? head[i] * scale * norm_weight(is_k, i) : head[i];
    for (int32_t p = 0; !c->no_table && p < c->rotary_dim / 2; p++) {
        int32_t i = c->interleaved ? 2 * p : p;
        int32_t j = c->interleaved ? 2 * p + 1 : p + c->rotary_dim / 2;
        double cosine = table[p], sine = table[p + c->rotary_dim / 2], x = out[i], y = out[j];
        out[i] = x * cosine - y * sine;
        out[j] = x * sine + y * cosine;
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
            int32_t kv_head = h - c->num_q_heads; /* K heads, then V heads */
            turn_head(c, kv_head >= 0, table + step->positions[t] * c->rotary_dim, qkv + at,
                      rotated);
            int32_t block = step->slot_mapping[t] / c->block_size;
            int32_t offset = step->slot_mapping[t] % c->block_size;
            float *slot = pool +
                          (((size_t)block * LAYERS + LAYER) * 2 * (size_t)c->num_kv_heads +
                           (size_t)(kv_head < 0 ? 0 : kv_head)) *
                              (size_t)c->block_size * (size_t)c->head_dim +
                          (size_t)offset * (size_t)c->head_dim;
            for (int32_t i = 0; i < c->head_dim; i++) {
                bool is_q = kv_head < 0, is_k = kv_head >= 0 && kv_head < c->num_kv_heads;
                rows[at + (size_t)i] = is_q ? (float)rotated[i] : qkv[at + (size_t)i];
                if (!is_q)
                    slot[i] = is_k ? (float)rotated[i] : qkv[at + (size_t)i];
            }
        }
}

/* The queries are what is defined of rows on every backend. */
static void assert_rope_rows(const struct rope_case *c, const float *actual,
                             const float *expected) {
    size_t row = (size_t)(c->num_q_heads + 2 * c->num_kv_heads) * (size_t)c->head_dim;
    for (size_t t = 0; t < TOKENS; t++)
        kernel_fixture_assert_close(&fixture, actual + t * row, expected + t * row,
                                    (size_t)c->num_q_heads * (size_t)c->head_dim, 1e-6,
                                    "rope: queries");
    if (fixture.dtype != DTYPE_F32)
        kernel_fixture_assert_close(&fixture, actual, expected, TOKENS * row, 0, "rope: rows");
}

/* A device's pool has an order that is known; the CPU's is seen through attention. */
static void assert_rope_pool(const float *actual, const float *expected, const float *before,
                             size_t n) {
    if (fixture.dtype == DTYPE_F32)
        return;
    kernel_fixture_assert_close(&fixture, actual, expected, n, 0, "rope: cache");
    for (size_t i = 0; i < n; i++) /* what was not a slot of the step is as it was */
        if (expected[i] == before[i] && actual[i] != before[i])
            fail_msg("element %zu of the pool was changed", i);
}

static void check_rope(const struct rope_case *c) {
    uint64_t seed = (uint64_t)c->head_dim * 1000 + (uint64_t)c->rotary_dim;
    size_t heads = (size_t)(c->num_q_heads + 2 * c->num_kv_heads);
    size_t n = TOKENS * heads * (size_t)c->head_dim;
    struct kv_cache cache = {.layout = {.num_layers = LAYERS,
                                        .num_kv_heads = c->num_kv_heads,
                                        .head_dim = c->head_dim,
                                        .block_size = c->block_size,
                                        .type = kv_type_of_dtype(fixture.dtype)},
                             .num_blocks = BLOCKS};
    size_t pool_bytes = BLOCKS * kv_block_bytes(&cache.layout);
    size_t pool_n = pool_bytes / dtype_row_bytes(fixture.dtype, 1);
    struct rope_step step;
    rope_step_init(&step, c->block_size, &seed);
    float *qkv = kernel_fixture_rounded_floats(&fixture, &seed, n);
    float *pool_before = kernel_fixture_rounded_floats(&fixture, &seed, pool_n);
    float *table = rope_table(c->rotary_dim);
    float *rows = kernel_fixture_guarded(n), *pool = kernel_fixture_guarded(pool_n);
    float *actual = kernel_fixture_guarded(n), *actual_pool = kernel_fixture_guarded(pool_n);
    memcpy(pool, pool_before, pool_n * sizeof(float));
    expect_rope(c, &step.inputs, table, qkv, rows, pool);
    for (int i = fixture.dtype == DTYPE_F32 ? -1 : 0; i < fixture.num_backends; i++) {
        struct backend *b = i < 0 ? fixture.oracle : fixture.backends[i];
        void *device_qkv = kernel_fixture_put(b, fixture.dtype, NULL, n);
        void *device_pool = kernel_fixture_put(b, fixture.dtype, pool_before, pool_n);
        void *device_table =
            kernel_fixture_put(b, DTYPE_F32, table, (size_t)POSITIONS * (size_t)c->rotary_dim);
        cache.buffer = (struct buffer){.data = device_pool, .bytes = pool_bytes};
        struct rope_store_args args = {.qkv = device_qkv,
                                       .rope_table = c->no_table ? NULL : device_table,
                                       .cache = &cache,
                                       .layer = LAYER,
                                       .num_q_heads = c->num_q_heads,
                                       .rotary_dim = c->rotary_dim,
                                       .interleaved = c->interleaved};
        if (c->normed)
            put_norms(b, c, &args);
        struct repeated run = {&args, call_rope, fixture.dtype, device_qkv, qkv, n};
        b->ops->step_begin(b, &step.inputs);
        kernel_fixture_run(b, run_repeated, &run, device_pool, pool_bytes);
        repeat(b, run, actual);
        kernel_fixture_get(b, fixture.dtype, device_pool, actual_pool, pool_n);
        assert_rope_rows(c, actual, rows);
        assert_rope_pool(actual_pool, pool, pool_before, pool_n);
        if (c->normed)
            free_norms(b, &args);
        kernel_fixture_free(b, device_table);
        kernel_fixture_free(b, device_pool);
        kernel_fixture_free(b, device_qkv);
    }
    kernel_fixture_guarded_free(actual_pool);
    kernel_fixture_guarded_free(actual);
    kernel_fixture_guarded_free(pool);
    kernel_fixture_guarded_free(rows);
    free(table);
    free(pool_before);
    free(qkv);
}

static void test_rope(void **state) {
    static const struct rope_case cases[] = {
        {3, 1, 64, 64, 16, false, false},   {4, 2, 64, 64, 32, true, false},
        {2, 2, 80, 80, 64, false, false},   {3, 1, 96, 48, 16, false, false},
        {2, 1, 96, 40, 32, true, false},    {7, 1, 128, 128, 64, false, false},
        {1, 1, 256, 64, 16, true, false},   {2, 1, 8, 8, 32, false, false},
        {2, 2, 8, 6, 64, true, false},      {3, 2, 24, 10, 16, false, false},
        {2, 1, 16, 2, 32, false, false},    {3, 2, 64, 64, 64, false, true},
        {2, 1, 24, 10, 16, true, true},     {1, 1, 8, 2, 32, false, true},
        {8, 1, 64, 64, 32, false, false},   {8, 1, 64, 64, 64, false, false},
        {1, 1, 80, 80, 64, false, false},   {1, 1, 80, 80, 16, false, false},
        {4, 2, 96, 96, 16, false, false},   {4, 2, 96, 96, 32, false, false},
        {4, 1, 128, 128, 32, true, false},  {4, 1, 128, 128, 64, true, false},
        {2, 1, 256, 256, 64, false, false}, {2, 1, 256, 256, 16, false, false},
    };
    static const int32_t dims[][2] = {{64, 64},   {64, 32},   {80, 80}, {80, 20}, {96, 96},
                                      {128, 128}, {256, 256}, {8, 8},   {72, 2}};
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        struct rope_case c = cases[i / 2];
        c.normed = i % 2 == 1;
        check_rope(&c);
    }
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
        check_rope(&(struct rope_case){3, 1, dims[i][0], dims[i][1], 16, false, false});
        check_rope(&(struct rope_case){3, 1, dims[i][0], dims[i][1], 16, true, false});
    }
}

/* Rows and pool are those of a rotation by nothing: cosines of 1 and sines of 0. */
static void test_no_rope(void **state) {
    enum { HEAD_DIM = 24, Q_HEADS = 3, KV_HEADS = 2 };
    enum { ROW = (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM };
    uint64_t seed = 11;
    float *qkv = kernel_fixture_rounded_floats(&fixture, &seed, TOKENS * ROW);
    float identity[POSITIONS * HEAD_DIM] = {0}, *rows = kernel_fixture_guarded(TOKENS * ROW);
    for (int i = 0; i < HEAD_DIM / 2; i++)
        identity[i] = 1;
    struct rope_step steps[2];
    for (int c = 0; c < 2; c++) {
        rope_step_init(&steps[c], 16, &seed);
        for (int t = 0; t < TOKENS; t++)
            steps[c].positions[t] = c == 0 ? 0 : 1 << 30;
        steps[c].inputs.token_ids = steps[c].slots;
    }
    struct kv_cache cache = {
        .layout = {.num_layers = 1,
                   .num_kv_heads = KV_HEADS,
                   .head_dim = HEAD_DIM,
                   .block_size = 16,
                   .type = fixture.dtype == DTYPE_F32 ? KV_BF16 : kv_type_of_dtype(fixture.dtype)},
        .num_blocks = BLOCKS};
    size_t bytes = BLOCKS * kv_block_bytes(&cache.layout);
    char *pools[2] = {kernel_fixture_memory(bytes), kernel_fixture_memory(bytes)};
    for (int i = fixture.dtype == DTYPE_F32 ? -1 : 0; i < fixture.num_backends; i++) {
        struct backend *b = i < 0 ? fixture.oracle : fixture.backends[i];
        void *device_rows = kernel_fixture_put(b, fixture.dtype, NULL, TOKENS * ROW);
        void *device_identity = kernel_fixture_put(b, DTYPE_F32, identity, POSITIONS * HEAD_DIM);
        for (int c = 0; c < 2; c++) {
            void *pool = kernel_fixture_put(b, kv_type_dtype(cache.layout.type), NULL, bytes / 2);
            cache.buffer = (struct buffer){.data = pool, .bytes = bytes};
            kernel_fixture_set(b, fixture.dtype, device_rows, qkv, TOKENS * ROW);
            b->ops->step_begin(b, &steps[c].inputs);
            b->ops->rope_store_kv(
                b, &(struct rope_store_args){.qkv = device_rows,
                                             .rope_table = c == 0 ? device_identity : NULL,
                                             .cache = &cache,
                                             .num_q_heads = Q_HEADS,
                                             .rotary_dim = HEAD_DIM});
            kernel_fixture_download(b, pools[c], pool, bytes);
            kernel_fixture_free(b, pool);
        }
        kernel_fixture_get(b, fixture.dtype, device_rows, rows, TOKENS * ROW);
        for (int t = 0; t < TOKENS; t++)
            assert_memory_equal(rows + t * ROW, qkv + t * ROW, Q_HEADS * HEAD_DIM * sizeof(float));
        assert_memory_equal(pools[1], pools[0], bytes);
        kernel_fixture_free(b, device_identity);
        kernel_fixture_free(b, device_rows);
    }
    kernel_fixture_guarded_free(rows);
    free(pools[0]);
    free(pools[1]);
    free(qkv);
}

/* --- Quantised KV --- */

enum { CODE_TOKENS = 24, CODE_SLOTS = BLOCKS * 16, CODE_HEADS = 2 };

/* K and V of tokens that meet every border of a code: numbers of any size, zeros, too little for a
 * scale, no numbers, and, with scale 1, every number between two codes and its neighbours. */
static void fill_code_rows(enum kv_type type, int32_t head_dim, float *rows) {
    uint64_t seed = (uint64_t)head_dim;
    float most = type == KV_INT8 ? 127 : 448;
    int code = 0, side = 0;
    for (int r = 0; r < CODE_TOKENS * 2 * CODE_HEADS; r++) {
        float *row = rows + r * head_dim;
        for (int32_t d = 0; d < head_dim; d++)
            row[d] = ldexpf(kernel_fixture_normal(&seed), r < 12 ? 5 * r - 30 : 0);
        if (r >= 12 && r < 16)
            memset(row, 0, (size_t)head_dim * sizeof(float));
        if (r == 16 || r == 17)
            row[head_dim - 1] = r == 16 ? NAN : -INFINITY;
        if (r == 18 || r == 19)
            for (int32_t d = 0; d < head_dim; d++)
                row[d] = (float)(d * 50 - 200) * 0x1p-149f;
        for (int32_t d = 0; r >= 20 && d < head_dim; d++) {
            if (type == KV_E4M3 && d % 4 != 0) { /* without error, if the scale is 1 */
                row[d] = e4m3_to_f32((uint8_t)(0x50 + d % 46));
                continue;
            }
            float low = type == KV_INT8 ? (float)(code % 127) : e4m3_to_f32(code % 126);
            float high = type == KV_INT8 ? low + 1 : e4m3_to_f32(code % 126 + 1);
            float middle = (low + high) / 2;
            row[d] = side == 0 ? middle : nextafterf(middle, side == 1 ? 0 : most);
            row[d] = d % 2 ? -row[d] : row[d];
            side = (side + 1) % 3;
            code += side == 0;
        }
        if (r >= 20)
            row[r % head_dim] = most;
    }
}

/* Where cpu_op_kernels.h has it, and as. */
static void put_cpu_code(const struct kv_layout *l, enum kv_part part, int32_t token, int32_t d,
                         unsigned char code, unsigned char *plane) {
    int32_t lane = token % KV_TOKEN_STEP, pack = l->type == KV_INT8 ? 4 : 1;
    unsigned char *group = plane + kv_row_offset(l, token - lane);
    if (part == KV_PART_K)
        group[(d / pack * KV_TOKEN_STEP + lane) * pack + d % pack] =
            (unsigned char)(l->type == KV_INT8 ? code + 128 : code);
    else
        group[(lane / pack * l->head_dim + d) * pack + lane % pack] = code;
}

/* The pool of one layer as the op should leave it. */
static void expect_codes(const struct kv_layout *l, bool is_cpu, const int32_t *slots,
                         const float *kv, unsigned char *pool) {
    for (int t = 0; t < CODE_TOKENS; t++)
        for (int h = 0; h < 2 * CODE_HEADS; h++) {
            enum kv_part part = h < CODE_HEADS ? KV_PART_K : KV_PART_V;
            int32_t token = slots[t] % l->block_size;
            unsigned char codes[KV_MAX_HEAD_DIM];
            unsigned char *plane =
                pool + kv_plane_offset(l, slots[t] / l->block_size, 0, part, h % CODE_HEADS);
            float scale;
            kv_row_from_f32(l->type, kv + (t * 2 * CODE_HEADS + h) * l->head_dim, codes, &scale,
                            (size_t)l->head_dim);
            memcpy(plane + kv_scale_offset(l, token), &scale, sizeof(scale));
            for (int32_t d = 0; d < l->head_dim; d++)
                if (is_cpu)
                    put_cpu_code(l, part, token, d, codes[d], plane);
                else
                    plane[kv_row_offset(l, token) + (size_t)d] = codes[d];
        }
}

/* Byte for byte but for a NaN's, which may be any. */
static void assert_codes(const struct kv_layout *l, unsigned char *actual, unsigned char *expected,
                         size_t bytes) {
    for (int32_t plane = 0; plane < BLOCKS * 2 * CODE_HEADS; plane++)
        for (int32_t t = 0; t < l->block_size; t++) {
            size_t at = (size_t)plane * kv_plane_bytes(l) + kv_scale_offset(l, t);
            float a, b;
            memcpy(&a, actual + at, sizeof(a));
            memcpy(&b, expected + at, sizeof(b));
            if (isnan(a) && isnan(b))
                memcpy(actual + at, expected + at, sizeof(a));
        }
    assert_memory_equal(actual, expected, bytes);
}

static void check_codes(struct backend *b, enum kv_type type, int32_t head_dim) {
    const struct kv_layout layout = {.num_layers = 1,
                                     .num_kv_heads = CODE_HEADS,
                                     .head_dim = head_dim,
                                     .block_size = 16,
                                     .type = type};
    size_t bytes = BLOCKS * kv_block_bytes(&layout);
    size_t kv_floats = (size_t)(2 * CODE_HEADS * head_dim), row = kv_floats + (size_t)head_dim;
    float *kv = kernel_fixture_memory(CODE_TOKENS * kv_floats * sizeof(float));
    float *qkv = kernel_fixture_memory(CODE_TOKENS * row * sizeof(float));
    fill_code_rows(type, head_dim, kv);
    enum dtype dtype = b == fixture.oracle ? DTYPE_F32 : fixture.dtype;
    if (fixture.dtype != DTYPE_F32)
        kernel_fixture_round(&fixture, kv, CODE_TOKENS * kv_floats);
    for (size_t t = 0; t < CODE_TOKENS; t++) {
        memset(qkv + t * row, 0, (size_t)head_dim * sizeof(float));
        memcpy(qkv + t * row + head_dim, kv + t * kv_floats, kv_floats * sizeof(float));
    }
    struct rope_step step;
    uint64_t seed = 1;
    rope_step_init(&step, 16, &seed);
    for (int t = 0; t < CODE_TOKENS; t++)
        step.slots[t] = (t * 7 + 3) % CODE_SLOTS;
    step.inputs.num_tokens = step.context_len = step.query_start[1] = CODE_TOKENS;
    struct kv_cache cache = {.layout = layout, .num_blocks = BLOCKS};
    void *pool = kernel_fixture_put(b, DTYPE_F32, NULL, bytes / sizeof(float));
    void *device_qkv = kernel_fixture_put(b, dtype, qkv, CODE_TOKENS * row);
    cache.buffer = (struct buffer){.data = pool, .bytes = bytes};
    b->ops->step_begin(b, &step.inputs);
    struct rope_store_args args = {.qkv = device_qkv, .cache = &cache, .num_q_heads = 1};
    kernel_fixture_run(b, call_rope, &args, pool, bytes);
    unsigned char *expected = kernel_fixture_memory(bytes), *actual = kernel_fixture_memory(bytes);
    memset(expected, 0xff, bytes);
    expect_codes(&layout, strcmp(b->name, "cpu") == 0, step.slots, kv, expected);
    kernel_fixture_download(b, actual, pool, bytes);
    assert_codes(&layout, actual, expected, bytes);
    free(actual);
    free(expected);
    kernel_fixture_free(b, device_qkv);
    kernel_fixture_free(b, pool);
    free(qkv);
    free(kv);
}

static void test_codes(void **state) {
    static const int32_t dims[] = {8, 24, 64, 80, 128, 256};
    for (int i = fixture.dtype == DTYPE_F32 ? -1 : 0; i < fixture.num_backends; i++) {
        struct backend *b = i < 0 ? fixture.oracle : fixture.backends[i];
        for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++)
            for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
                if ((b->kv_types & KV_TYPE_BIT(type)) != 0)
                    check_codes(b, type, dims[d]);
    }
}

/* Every stored row is off by half a code at most, which is a step of INT8 and a bit of E4M3. */
static void assert_rows_near(const struct kv_layout *l, const unsigned char *actual,
                             const float *expected, const float *before) {
    size_t dim = (size_t)l->head_dim;
    for (int32_t plane = 0; plane < BLOCKS * LAYERS * 2 * l->num_kv_heads; plane++)
        for (int32_t t = 0; t < l->block_size; t++) {
            const unsigned char *codes = actual + (size_t)plane * kv_plane_bytes(l);
            size_t at = (size_t)(plane * l->block_size + t) * dim;
            float row[KV_MAX_HEAD_DIM], scale, largest = 0;
            if (memcmp(expected + at, before + at, dim * sizeof(float)) == 0)
                continue;
            memcpy(&scale, codes + kv_scale_offset(l, t), sizeof(scale));
            kv_row_to_f32(l->type, codes + kv_row_offset(l, t), &scale, row, dim);
            for (size_t i = 0; i < dim; i++)
                largest = fmaxf(largest, fabsf(expected[at + i]));
            float least = largest / (l->type == KV_INT8 ? 127 : 448);
            assert_true(scale >= 0.9999f * least &&
                        scale < (l->type == KV_INT8 ? 1.0001f : 2) * least);
            for (size_t i = 0; i < dim; i++) {
                float step = l->type == KV_INT8
                                 ? largest / 127
                                 : fmaxf(fabsf(expected[at + i]) / 8, scale * 0x1p-9f);
                if (!(fabsf(row[i] - expected[at + i]) <= 0.501f * step))
                    fail_msg("element %zu is %.9g, expected %.9g", at + i, row[i],
                             expected[at + i]);
            }
        }
}

/* On what has [token][head_dim]. The rotated K is not rounded to the type of activations before. */
static void check_rotated_codes(struct backend *b, const struct rope_case *c, enum kv_type type) {
    const struct kv_layout layout = {.num_layers = LAYERS,
                                     .num_kv_heads = c->num_kv_heads,
                                     .head_dim = c->head_dim,
                                     .block_size = c->block_size,
                                     .type = type};
    uint64_t seed = (uint64_t)c->head_dim;
    size_t n = (size_t)(TOKENS * (c->num_q_heads + 2 * c->num_kv_heads) * c->head_dim);
    size_t bytes = BLOCKS * kv_block_bytes(&layout);
    size_t pool_n = (size_t)(BLOCKS * LAYERS * 2 * c->num_kv_heads * c->block_size * c->head_dim);
    enum dtype dtype = b == fixture.oracle ? DTYPE_F32 : fixture.dtype;
    struct rope_step step;
    rope_step_init(&step, c->block_size, &seed);
    float *qkv = kernel_fixture_rounded_floats(&fixture, &seed, n);
    float *before = kernel_fixture_random_floats(&seed, pool_n);
    float *table = rope_table(c->rotary_dim);
    float *rows = kernel_fixture_memory(n * sizeof(float));
    float *expected = kernel_fixture_memory(pool_n * sizeof(float));
    unsigned char *actual = kernel_fixture_memory(bytes);
    memcpy(expected, before, pool_n * sizeof(float));
    expect_rope(c, &step.inputs, table, qkv, rows, expected);
    void *device_qkv = kernel_fixture_put(b, dtype, qkv, n);
    void *pool = kernel_fixture_put(b, DTYPE_F32, NULL, bytes / sizeof(float));
    void *device_table =
        kernel_fixture_put(b, DTYPE_F32, table, (size_t)POSITIONS * (size_t)c->rotary_dim);
    struct kv_cache cache = {
        .layout = layout, .num_blocks = BLOCKS, .buffer = {.data = pool, .bytes = bytes}};
    b->ops->step_begin(b, &step.inputs);
    struct rope_store_args args = {.qkv = device_qkv,
                                   .rope_table = device_table,
                                   .cache = &cache,
                                   .layer = LAYER,
                                   .num_q_heads = c->num_q_heads,
                                   .rotary_dim = c->rotary_dim,
                                   .interleaved = c->interleaved};
    if (c->normed)
        put_norms(b, c, &args);
    b->ops->rope_store_kv(b, &args);
    kernel_fixture_download(b, actual, pool, bytes);
    assert_rows_near(&layout, actual, expected, before);
    float *actual_rows = kernel_fixture_memory(n * sizeof(float));
    kernel_fixture_get(b, dtype, device_qkv, actual_rows, n);
    assert_rope_rows(c, actual_rows, rows);
    free(actual_rows);
    if (c->normed)
        free_norms(b, &args);
    kernel_fixture_free(b, device_table);
    kernel_fixture_free(b, pool);
    kernel_fixture_free(b, device_qkv);
    free(actual);
    free(expected);
    free(rows);
    free(table);
    free(before);
    free(qkv);
}

static void test_rotated_codes(void **state) {
    static const struct rope_case cases[] = {
        {3, 1, 64, 64, 16, false, false}, {4, 2, 64, 64, 32, true, false},
        {2, 2, 80, 80, 64, false, false}, {2, 1, 96, 40, 32, true, false},
        {3, 1, 96, 48, 16, false, false}, {1, 1, 256, 64, 16, true, false},
        {2, 2, 8, 6, 64, true, false},    {3, 2, 24, 10, 16, false, false},
    };
    struct backend *b = fixture.dtype == DTYPE_F32 ? fixture.oracle : fixture.backends[0];
    for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++)
        for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
            struct rope_case c = cases[i / 2];
            c.normed = i % 2 == 1;
            if ((b->kv_types & KV_TYPE_BIT(type)) != 0)
                check_rotated_codes(b, &c, type);
        }
}

int main(int argc, char **argv) {
    static const struct backend_config config = {.limits.max_num_batched_tokens = 256,
                                                 .limits.max_num_seqs = 64,
                                                 .limits.max_model_len = BLOCKS,
                                                 .limits.block_size = 1,
                                                 .limits.max_logit_rows = 8,
                                                 .limits.vocab_size = 100,
                                                 .head_dim = 64,
                                                 .num_q_heads = 1,
                                                 .num_kv_heads = 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_norm_of_parts_of_rows),
        cmocka_unit_test(test_centered_and_added_norm),
        cmocka_unit_test(test_act_mul),
        cmocka_unit_test(test_clamped_swiglu_at_its_ends),
        cmocka_unit_test(test_gelu_at_its_ends),
        cmocka_unit_test(test_soft_cap),
        cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_scatter_rows),
        cmocka_unit_test(test_add_rows),
        cmocka_unit_test(test_embed_of_sampled_tokens),
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_no_rope),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_rotated_codes),
    };
    kernel_fixture_open(&fixture, argc, argv, &config);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kernel_fixture_close(&fixture);
    return failed;
}
