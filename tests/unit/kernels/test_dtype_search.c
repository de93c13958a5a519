/* dtype_quantise: errors of random rows, values that a type can hold exactly, importance, and rows
 * that no type can hold. */
#include "kernels/dtype.h"
#include "kernels/quant_form.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N = 4096, MAX_ROW_BYTES = N * 4 };

/* The error of rows of the normal distribution, relative to their size. llama.cpp's quantisation,
 * measured with the same rows: the first number; at most 1.02 of it is allowed. */
static const struct {
    enum dtype dtype;
    double llama_error;
} types[] = {
    {DTYPE_Q2_K, 0.28691}, {DTYPE_Q3_K, 0.14920}, {DTYPE_Q4_0, 0.08396}, {DTYPE_Q4_1, 0.07639},
    {DTYPE_Q4_K, 0.07043}, {DTYPE_Q5_0, 0.04211}, {DTYPE_Q5_1, 0.03696}, {DTYPE_Q5_K, 0.03571},
    {DTYPE_Q6_K, 0.01722}, {DTYPE_Q8_0, 0.00524},
};

enum { NUM_TYPES = sizeof(types) / sizeof(types[0]) };

static float uniform(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    return (float)(*state >> 8) / (float)(1 << 24);
}

/* Nearly normal: the sum of twelve. */
static void fill_random(float *out, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        float sum = -6.0F;
        for (int k = 0; k < 12; k++)
            sum += uniform(&seed);
        out[i] = 0.02F * sum;
    }
}

static double squared_error(const float *a, const float *b, int begin, int step) {
    double sum = 0.0;
    for (int i = begin; i < N; i += step)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sum;
}

static void round_trip(enum dtype dtype, const float *src, const float *importance, float *out) {
    static uint8_t bytes[MAX_ROW_BYTES];
    assert_true(dtype_quantise(dtype, src, importance, bytes + 1, N));
    dtype_to_f32(dtype, bytes + 1, out, N);
}

static void test_error_of_random_rows(void **state) {
    static float src[N], out[N], zeros[N];
    fill_random(src, N, 1);
    for (int t = 0; t < NUM_TYPES; t++) {
        round_trip(types[t].dtype, src, NULL, out);
        double error = sqrt(squared_error(src, out, 0, 1) / squared_error(src, zeros, 0, 1));
        if (error > 1.02 * types[t].llama_error)
            fail_msg("%s: error %.5f", dtype_name(types[t].dtype), error);
    }
}

/* All codes of every type, with a scale that is a power of two. */
static void test_representable_rows_are_exact(void **state) {
    static float src[N], out[N];
    for (int t = 0; t < NUM_TYPES; t++) {
        const struct quant_form *form = &quant_forms[types[t].dtype];
        int num_codes = 1 << form->code_bits, group = form->group_elements;
        if (types[t].dtype == DTYPE_Q8_0)
            continue; /* has no codes of its own below */
        for (int i = 0; i < N; i++) {
            int spread = num_codes > group
                             ? num_codes - 1 - (i % group) * (num_codes - 1) / (group - 1)
                             : i % num_codes;
            src[i] = 0.0625F * (float)(spread - form->zero);
        }
        round_trip(types[t].dtype, src, NULL, out);
        for (int i = 0; i < N; i++)
            if (fabsf(src[i] - out[i]) > 2e-3F * 0.0625F * (float)num_codes)
                fail_msg("%s: element %d: %g became %g", dtype_name(types[t].dtype), i,
                         (double)src[i], (double)out[i]);
    }
}

static void test_zeros_stay_zeros(void **state) {
    static float src[N], out[N];
    for (int t = 0; t < NUM_TYPES; t++) {
        round_trip(types[t].dtype, src, NULL, out);
        assert_memory_equal(src, out, sizeof(src));
    }
}

/* Equal importance changes no bit; a column that matters more gets a smaller error. */
static void test_importance(void **state) {
    static float src[N], plain[N], weighted[N], importance[N];
    fill_random(src, N, 2);
    for (int t = 0; t < NUM_TYPES; t++) {
        if (types[t].dtype == DTYPE_Q8_0)
            continue;
        round_trip(types[t].dtype, src, NULL, plain);
        for (int i = 0; i < N; i++)
            importance[i] = 4.0F;
        round_trip(types[t].dtype, src, importance, weighted);
        assert_memory_equal(plain, weighted, sizeof(plain));
        for (int i = 0; i < N; i++)
            importance[i] = i % 8 == 3 ? 100.0F : 1.0F;
        round_trip(types[t].dtype, src, importance, weighted);
        double before = squared_error(src, plain, 3, 8), after = squared_error(src, weighted, 3, 8);
        if (after > 0.8 * before)
            fail_msg("%s: error of the columns %g, was %g", dtype_name(types[t].dtype), after,
                     before);
    }
}

/* Columns without importance are quantised like those of a row without any. */
static void test_importance_of_zero(void **state) {
    static float src[N], plain[N], weighted[N], importance[N];
    fill_random(src, N, 3);
    for (int t = 0; t < NUM_TYPES; t++) {
        round_trip(types[t].dtype, src, NULL, plain);
        round_trip(types[t].dtype, src, importance, weighted);
        assert_memory_equal(plain, weighted, sizeof(plain));
    }
}

static void test_rows_that_no_type_can_hold(void **state) {
    static const float values[] = {NAN, INFINITY, -INFINITY, 1e30F, -3e38F};
    static float src[N];
    static uint8_t bytes[MAX_ROW_BYTES];
    for (int t = 0; t < NUM_TYPES; t++)
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            fill_random(src, N, 4);
            src[N - 7] = values[v];
            assert_false(dtype_quantise(types[t].dtype, src, NULL, bytes, N));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_of_random_rows),
        cmocka_unit_test(test_representable_rows_are_exact),
        cmocka_unit_test(test_zeros_stay_zeros),
        cmocka_unit_test(test_importance),
        cmocka_unit_test(test_importance_of_zero),
        cmocka_unit_test(test_rows_that_no_type_can_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
