#include "kernels/kv_type.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ROW 8

static void test_names(void **state) {
    for (enum kv_type type = 0; type < NUM_KV_TYPES; type++)
        assert_int_equal(kv_type_of(kv_type_name(type)), type);
    assert_int_equal(kv_type_of("auto"), KV_AUTO);
    assert_int_equal(kv_type_of("float32"), KV_F32);
    assert_int_equal(kv_type_of("float16"), KV_F16);
    assert_int_equal(kv_type_of("bfloat16"), KV_BF16);
    assert_int_equal(kv_type_of("fp8_e4m3"), KV_E4M3);
    assert_int_equal(kv_type_of("int4"), NUM_KV_TYPES);
    assert_int_equal(kv_type_of_dtype(DTYPE_BF16), KV_BF16);
    assert_int_equal(kv_type_of_dtype(DTYPE_Q8_0), NUM_KV_TYPES);
    assert_int_equal(kv_type_dtype(KV_F16), DTYPE_F16);
    assert_int_equal(kv_type_dtype(KV_E4M3), DTYPE_NONE);
}

static void test_plain_rows(void **state) {
    static const float values[ROW] = {0, 1, -2.5f, 3, 1000, -0.125f, 7, 8};
    for (enum kv_type type = KV_F32; type <= KV_BF16; type++) {
        float row[ROW], back[ROW];
        kv_row_from_f32(type, values, row, NULL, ROW);
        kv_row_to_f32(type, row, NULL, back, ROW);
        assert_memory_equal(back, values, sizeof(back));
    }
}

static void test_int8_rows(void **state) {
    static const float values[ROW] = {127, -127, 0.5f, 1.5f, -2.5f, 63.4999f, -0.0f, 126.5f};
    static const int8_t expected[ROW] = {127, -127, 0, 2, -2, 63, 0, 126};
    int8_t codes[ROW];
    float scale, halves[ROW], back[ROW];
    kv_row_from_f32(KV_INT8, values, codes, &scale, ROW);
    assert_true(scale == 1);
    assert_memory_equal(codes, expected, sizeof(codes));
    for (int i = 0; i < ROW; i++)
        halves[i] = values[i] / 2;
    kv_row_from_f32(KV_INT8, halves, codes, &scale, ROW);
    assert_true(scale == 0.5f);
    assert_memory_equal(codes, expected, sizeof(codes));
    kv_row_to_f32(KV_INT8, codes, &scale, back, ROW);
    for (int i = 0; i < ROW; i++)
        assert_true(back[i] == (float)expected[i] / 2);
}

/* Numbers that are codes already have no error with the least scale. */
static void test_e4m3_rows(void **state) {
    static const float values[ROW] = {448, -448, 1, 17, -19, 0x1p-9f, 100, 0};
    static const float expected[ROW] = {448, -448, 1, 18, -20, 0x1p-9f, 104, 0};
    uint8_t codes[ROW];
    float scale, quarters[ROW], back[ROW];
    for (int i = 0; i < ROW; i++)
        quarters[i] = expected[i] / 4;
    kv_row_from_f32(KV_E4M3, quarters, codes, &scale, ROW);
    assert_true(scale == 0.25f);
    for (int i = 0; i < ROW; i++)
        assert_int_equal(codes[i], e4m3_from_f32(expected[i]));
    kv_row_to_f32(KV_E4M3, codes, &scale, back, ROW);
    for (int i = 0; i < ROW; i++)
        assert_true(back[i] == expected[i] / 4);
    kv_row_from_f32(KV_E4M3, values, codes, &scale, ROW);
    for (int i = 0; i < ROW; i++)
        assert_int_equal(codes[i], e4m3_from_f32(values[i] / scale));
}

static double error_of_scale(const float *values, double scale, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double error = e4m3_to_f32(e4m3_from_f32((float)(values[i] / scale))) * scale - values[i];
        sum += error * error;
    }
    return sum;
}

/* By their definition in double: none is better, and the choice is worth it. */
static void test_e4m3_scales(void **state) {
    enum { LONG = 64, ROWS = 200 };
    double with_least = 0, with_best = 0;
    for (int r = 0; r < ROWS; r++) {
        float values[LONG], scale, least, largest = 0;
        uint8_t codes[LONG];
        for (int i = 0; i < LONG; i++) {
            values[i] = expf(3 * sinf((float)(r * 77 + i * i))) * (i % 2 ? -1.0f : 1.0f);
            largest = fmaxf(largest, fabsf(values[i]));
        }
        least = largest / 448;
        kv_row_from_f32(KV_E4M3, values, codes, &scale, LONG);
        double chosen = error_of_scale(values, (double)scale, LONG);
        bool is_one = false;
        for (int c = 0; c < KV_E4M3_FACTORS; c++) {
            float candidate = least * (1 + (float)c / KV_E4M3_FACTORS);
            is_one |= candidate == scale;
            assert_true(chosen <= 1.001 * error_of_scale(values, (double)candidate, LONG));
        }
        assert_true(is_one);
        with_least += error_of_scale(values, (double)least, LONG);
        with_best += chosen;
    }
    assert_true(with_best < 0.75 * with_least);
}

/* What comes back is within half a step: of int8 of the scale, of E4M3 of the number itself down to
 * its subnormals. */
static void test_errors_of_rows(void **state) {
    enum { LONG = 256 };
    float values[LONG], back[LONG], scale;
    uint8_t codes[LONG];
    for (int power = -120; power <= 120; power += 40) {
        for (int i = 0; i < LONG; i++)
            values[i] = ldexpf(sinf((float)(i * i)), power);
        kv_row_from_f32(KV_INT8, values, codes, &scale, LONG);
        kv_row_to_f32(KV_INT8, codes, &scale, back, LONG);
        for (int i = 0; i < LONG; i++)
            assert_true(fabs((double)back[i] - values[i]) <= 0.5001 * (double)scale);
        kv_row_from_f32(KV_E4M3, values, codes, &scale, LONG);
        kv_row_to_f32(KV_E4M3, codes, &scale, back, LONG);
        for (int i = 0; i < LONG; i++)
            assert_true(fabs((double)back[i] - values[i]) <=
                        1.0001 * fmax(fabs((double)values[i]) / 16, 0x1p-10 * (double)scale));
    }
}

/* All zeros, hardly more, and so little that the scale has few bits. */
static void test_small_rows(void **state) {
    for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++) {
        float values[ROW] = {0, -0.0f}, back[ROW], scale = 5;
        uint8_t codes[ROW];
        kv_row_from_f32(type, values, codes, &scale, ROW);
        assert_true(scale == 0);
        for (int i = 0; i < ROW; i++)
            assert_int_equal(codes[i], 0);
        values[3] = -0x1p-149f;
        kv_row_from_f32(type, values, codes, &scale, ROW);
        assert_true(scale == 0);
        for (int i = 0; i < ROW; i++)
            assert_int_equal(codes[i], 0);
        values[3] = -(type == KV_INT8 ? 190 : 600) * 0x1p-149f;
        kv_row_from_f32(type, values, codes, &scale, ROW);
        assert_true(scale == 0x1p-149f);
        kv_row_to_f32(type, codes, &scale, back, ROW);
        assert_true(back[3] == -(type == KV_INT8 ? 127 : 448) * 0x1p-149f);
    }
}

static void test_rows_that_are_not_finite(void **state) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (enum kv_type type = KV_INT8; type <= KV_E4M3; type++)
        for (int i = 0; i < 3 * ROW; i++) {
            float values[ROW] = {1, 2, 3, 4, 5, 6, 7, 8}, back[ROW], scale = 1;
            uint8_t codes[ROW];
            values[i % ROW] = bad[i / ROW];
            kv_row_from_f32(type, values, codes, &scale, ROW);
            assert_true(isnan(scale));
            kv_row_to_f32(type, codes, &scale, back, ROW);
            for (int k = 0; k < ROW; k++)
                assert_true(codes[k] == 0 && isnan(back[k]));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_plain_rows),
        cmocka_unit_test(test_int8_rows),   cmocka_unit_test(test_e4m3_rows),
        cmocka_unit_test(test_e4m3_scales), cmocka_unit_test(test_errors_of_rows),
        cmocka_unit_test(test_small_rows),  cmocka_unit_test(test_rows_that_are_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
