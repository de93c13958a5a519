#include "kernels/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* The value of an f16 by its definition. */
static double f16_value(uint16_t bits) {
    int exponent = (bits >> 10) & 31;
    double mantissa = bits & 0x3ff;
    double magnitude =
        exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024.0 + mantissa, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static void test_f16_to_f32_every_value(void **state) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = f16_to_f32((uint16_t)bits);
        if ((bits & 0x7c00) != 0x7c00) {
            assert_true((double)value == f16_value((uint16_t)bits));
            assert_int_equal(signbit(value) != 0, bits >> 15);
        } else if ((bits & 0x3ff) == 0) {
            assert_true(isinf(value) && (value < 0) == (bits >> 15 != 0));
        } else {
            assert_true(isnan(value));
        }
    }
}

static void test_f16_round_trip(void **state) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t back = f16_from_f32(f16_to_f32((uint16_t)bits));
        if ((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0)
            assert_true((back & 0x7c00) == 0x7c00 && (back & 0x3ff) != 0);
        else
            assert_int_equal(back, bits);
    }
}

/* Between any two neighbours: the midpoint goes to the even one, its float neighbours to the nearer
 * one. */
static void test_f16_rounds_to_nearest_even(void **state) {
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = f16_to_f32((uint16_t)bits), high = f16_to_f32((uint16_t)(bits + 1));
        float middle = low + (high - low) / 2;
        uint16_t even = (uint16_t)(bits & 1 ? bits + 1 : bits);
        assert_int_equal(f16_from_f32(middle), even);
        assert_int_equal(f16_from_f32(-middle), even | 0x8000);
        assert_int_equal(f16_from_f32(nextafterf(middle, 0.0f)), bits);
        assert_int_equal(f16_from_f32(nextafterf(middle, INFINITY)), bits + 1);
    }
    assert_int_equal(f16_from_f32(nextafterf(65520.0f, 0.0f)), 0x7bff);
    assert_int_equal(f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(f16_from_f32(-INFINITY), 0xfc00);
    assert_int_equal(f16_from_f32(1e-30f), 0);
}

static void test_bf16(void **state) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        assert_int_equal(bits_of(bf16_to_f32((uint16_t)bits)), bits << 16);
        uint16_t back = bf16_from_f32(bf16_to_f32((uint16_t)bits));
        if ((bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0)
            assert_true((back & 0x7f80) == 0x7f80 && (back & 0x7f) != 0);
        else
            assert_int_equal(back, bits);
    }
    assert_int_equal(bf16_from_f32(0x1.01p0f), 0x3f80); /* tie to even, down */
    assert_int_equal(bf16_from_f32(0x1.03p0f), 0x3f82); /* tie to even, up */
    assert_int_equal(bf16_from_f32(0x1.010002p0f), 0x3f81);
    assert_int_equal(bf16_from_f32(0x1.fffffep127f), 0x7f80);
    uint32_t low_nan = 0x7f800001;
    float nan_value;
    memcpy(&nan_value, &low_nan, sizeof(nan_value));
    assert_true(isnan(bf16_to_f32(bf16_from_f32(nan_value))));
}

/* The value of an E4M3 code by its definition; 0x7f has none. */
static double e4m3_value(int code) {
    int exponent = (code >> 3) & 15, mantissa = code & 7;
    double magnitude = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
    return code & 0x80 ? -magnitude : magnitude;
}

static void test_e4m3_every_value(void **state) {
    for (int code = 0; code < 256; code++) {
        float value = e4m3_to_f32((uint8_t)code);
        if ((code & 0x7f) == 0x7f) {
            assert_true(isnan(value));
        } else {
            assert_true((double)value == e4m3_value(code));
            assert_int_equal(signbit(value) != 0, code >> 7);
        }
        assert_int_equal(e4m3_from_f32(value), code);
    }
    assert_true(e4m3_value(0x7e) == 448);
}

/* As F16, and nothing becomes larger than the largest. */
static void test_e4m3_rounds_to_nearest_even(void **state) {
    for (int code = 0; code < 0x7e; code++) {
        float middle = (float)((e4m3_value(code) + e4m3_value(code + 1)) / 2);
        int even = code & 1 ? code + 1 : code;
        assert_int_equal(e4m3_from_f32(middle), even);
        assert_int_equal(e4m3_from_f32(-middle), even | 0x80);
        assert_int_equal(e4m3_from_f32(nextafterf(middle, 0)), code);
        assert_int_equal(e4m3_from_f32(nextafterf(middle, INFINITY)), code + 1);
    }
    static const float large[] = {448, 449, 464, 480, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        assert_int_equal(e4m3_from_f32(large[i]), 0x7e);
        assert_int_equal(e4m3_from_f32(-large[i]), 0xfe);
    }
    assert_int_equal(e4m3_from_f32(1e-40f), 0);
    assert_int_equal(e4m3_from_f32(-0x1p-10f), 0x80);
}

static void test_e8m0(void **state) {
    for (int bits = 0; bits < 256; bits++)
        assert_true(e8m0_half_to_f32((uint8_t)bits) == ldexpf(1.0f, bits - 128));
}

static void test_table(void **state) {
    static const struct {
        enum dtype dtype;
        const char *name;
        int elements;
        size_t bytes;
    } rows[] = {
        {DTYPE_F32, "f32", 1, 4},
        {DTYPE_F16, "f16", 1, 2},
        {DTYPE_BF16, "bf16", 1, 2},
        {DTYPE_Q4_0, "q4_0", 32, 18},
        {DTYPE_Q4_1, "q4_1", 32, 20},
        {DTYPE_Q8_0, "q8_0", 32, 34},
        {DTYPE_Q5_0, "q5_0", 32, 22},
        {DTYPE_Q5_1, "q5_1", 32, 24},
        {DTYPE_IQ4_NL, "iq4_nl", 32, 18},
        {DTYPE_Q2_K, "q2_k", 256, 84},
        {DTYPE_Q3_K, "q3_k", 256, 110},
        {DTYPE_Q4_K, "q4_k", 256, 144},
        {DTYPE_Q5_K, "q5_k", 256, 176},
        {DTYPE_Q6_K, "q6_k", 256, 210},
        {DTYPE_MXFP4, "mxfp4", 32, 17},
        {DTYPE_I4_32, "i4_32", 32, 19},
        {DTYPE_I4_64, "i4_64", 64, 35},
        {DTYPE_I4_128, "i4_128", 128, 67},
        {DTYPE_I8_32, "i8_32", 32, 35},
        {DTYPE_I8_128, "i8_128", 128, 133},
        {DTYPE_E4M3_128, "fp8_128", 128, 132},
        {DTYPE_IQ4_XS, "iq4_xs", 256, 136},
        {DTYPE_TQ2_0, "tq2_0", 256, 66},
        {DTYPE_TQ1_0, "tq1_0", 256, 54},
        {DTYPE_IQ1_S, "iq1_s", 256, 50},
        {DTYPE_IQ1_M, "iq1_m", 256, 56},
        {DTYPE_IQ2_XXS, "iq2_xxs", 256, 66},
        {DTYPE_IQ2_XS, "iq2_xs", 256, 74},
        {DTYPE_IQ2_S, "iq2_s", 256, 82},
        {DTYPE_IQ3_XXS, "iq3_xxs", 256, 98},
        {DTYPE_IQ3_S, "iq3_s", 256, 110},
    };
    assert_int_equal(sizeof(rows) / sizeof(rows[0]), DTYPE_COUNT);
    for (int i = 0; i < DTYPE_COUNT; i++) {
        assert_string_equal(dtype_name(rows[i].dtype), rows[i].name);
        assert_int_equal(dtype_block_elements(rows[i].dtype), rows[i].elements);
        assert_int_equal(dtype_block_bytes(rows[i].dtype), rows[i].bytes);
        assert_int_equal(dtype_is_quantised(rows[i].dtype), rows[i].elements > 1);
        assert_int_equal(DTYPE_MAX_BLOCK_ELEMENTS % rows[i].elements, 0);
        assert_int_equal(dtype_row_bytes(rows[i].dtype, 512),
                         512 / (size_t)rows[i].elements * rows[i].bytes);
    }
}

/* Blocks written by hand from the format's definition, at an odd address. */
static void test_quantised_layout(void **state) {
    uint8_t raw[1 + 34];
    uint8_t *block = raw + 1;
    float out[32];
    uint16_t d = f16_from_f32(0.5f), m = f16_from_f32(-3.0f);

    memcpy(block, &d, 2);
    for (int i = 0; i < 16; i++)
        block[2 + i] = (uint8_t)(i | (15 - i) << 4);
    dtype_to_f32(DTYPE_Q4_0, block, out, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == 0.5f * (float)(i - 8));
        assert_true(out[i + 16] == 0.5f * (float)(7 - i));
    }

    memcpy(block + 2, &m, 2);
    for (int i = 0; i < 16; i++)
        block[4 + i] = (uint8_t)(i | (15 - i) << 4);
    dtype_to_f32(DTYPE_Q4_1, block, out, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == 0.5f * (float)i - 3.0f);
        assert_true(out[i + 16] == 0.5f * (float)(15 - i) - 3.0f);
    }

    for (int i = 0; i < 32; i++)
        block[2 + i] = (uint8_t)(i * 8 - 128);
    dtype_to_f32(DTYPE_Q8_0, block, out, 32);
    for (int i = 0; i < 32; i++)
        assert_true(out[i] == 0.5f * (float)(i * 8 - 128));
}

static float pseudo_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(int32_t)*seed / 0x1p31f;
}

/* Quantising loses at most half a step (one step at the clipped end), and nothing at all the second
 * time. */
static void test_quantise_round_trip(void **state) {
    static const struct {
        enum dtype dtype;
        float steps; /* over the range of values [-1, 1] */
    } rows[] = {{DTYPE_Q4_0, 8.0f}, {DTYPE_Q4_1, 7.5f}, {DTYPE_Q8_0, 127.0f}};
    uint32_t seed = 7;
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        for (int repeat = 0; repeat < 50; repeat++) {
            float x[96], y[96], z[96];
            uint8_t packed[3 * 34], again[3 * 34];
            for (int i = 0; i < 96; i++)
                x[i] = pseudo_random(&seed);
            size_t bytes = dtype_row_bytes(rows[r].dtype, 96);
            dtype_from_f32(rows[r].dtype, x, packed, 96);
            dtype_to_f32(rows[r].dtype, packed, y, 96);
            for (int i = 0; i < 96; i++)
                assert_true(fabsf(x[i] - y[i]) <= 1.01f / rows[r].steps);
            dtype_from_f32(rows[r].dtype, y, again, 96);
            dtype_to_f32(rows[r].dtype, again, z, 96);
            for (int i = 0; i < 96; i++)
                assert_true(fabsf(y[i] - z[i]) <= 2e-3f);
            assert_true(bytes <= sizeof(packed));
        }
    }
}

static void test_quantise_zeros(void **state) {
    static const enum dtype dtypes[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q8_0};
    for (int t = 0; t < 3; t++) {
        float x[32] = {0}, y[32];
        uint8_t packed[34];
        dtype_from_f32(dtypes[t], x, packed, 32);
        dtype_to_f32(dtypes[t], packed, y, 32);
        for (int i = 0; i < 32; i++)
            assert_true(y[i] == 0.0f);
    }
}

/* What has no scale to divide by: the sanitizer for conversions of float judges, too. */
static void test_quantise_extremes(void **state) {
    static const struct {
        float value;
        bool is_number;
    } cases[] = {{NAN, false},   {-NAN, false},   {INFINITY, false},
                 {1e-40f, true}, {-1e-38f, true}, {2e-36f, true}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        float x[32] = {[0] = 1e-41f, [7] = cases[c].value}, y[32];
        uint8_t packed[34];
        memset(packed, 0xff, sizeof(packed));
        dtype_from_f32(DTYPE_Q8_0, x, packed, 32);
        dtype_to_f32(DTYPE_Q8_0, packed, y, 32);
        for (int i = 0; i < 32; i++)
            assert_true(cases[c].is_number ? y[i] == 0.0f : isnan(y[i]));
    }
}

static void test_plain_rows(void **state) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    float x[5] = {0.0f, -1.0f, 0.5f, 1024.0f, -0.03125f}, y[5];
    uint8_t packed[21];
    for (int t = 0; t < 3; t++) {
        dtype_from_f32(dtypes[t], x, packed + 1, 5);
        dtype_to_f32(dtypes[t], packed + 1, y, 5);
        assert_memory_equal(x, y, sizeof(x));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_to_f32_every_value),
        cmocka_unit_test(test_f16_round_trip),
        cmocka_unit_test(test_f16_rounds_to_nearest_even),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_e4m3_every_value),
        cmocka_unit_test(test_e4m3_rounds_to_nearest_even),
        cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_quantised_layout),
        cmocka_unit_test(test_quantise_round_trip),
        cmocka_unit_test(test_quantise_zeros),
        cmocka_unit_test(test_quantise_extremes),
        cmocka_unit_test(test_plain_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
