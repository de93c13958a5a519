/* The model of AMX's tiles against cases worked out by hand: where bytes come from and go to, and
 * in which order and how BF16 products are rounded. */
#include "tests/kernels/amx_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Tiles 0, 1, 2 as C [rows][columns], A [rows][depth], B [depth][columns], items of four bytes. */
static void configure(int rows, int columns, int depth) {
    uint8_t config[64] = {1};
    config[16] = config[20] = (uint8_t)(4 * columns);
    config[18] = (uint8_t)(4 * depth);
    config[48] = config[49] = (uint8_t)rows;
    config[50] = (uint8_t)depth;
    amx_model_configure(config);
}

static void test_loads_and_stores_keep_to_the_shape(void **state) {
    uint8_t in[16 * 70], out[16 * 66];
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)(i % 251);
    memset(out, 0xee, sizeof(out));
    configure(3, 5, 2);
    amx_model_load(0, in, 70);
    amx_model_store(0, out, 66);
    for (int r = 0; r < 16; r++)
        for (int i = 0; i < 66; i++)
            assert_int_equal(out[r * 66 + i], r < 3 && i < 20 ? in[r * 70 + i] : 0xee);
    amx_model_zero(0);
    amx_model_store(0, out, 66);
    assert_int_equal(out[0], 0);
    amx_model_release();
}

/* Signed bytes of A, unsigned ones of B: 2 rows, 3 columns, 2 quadruples. */
static void test_bytes(void **state) {
    static const int8_t a[2][8] = {{1, -2, 3, -4, 127, 0, 0, -128}, {-1, 0, 0, 0, 0, 0, 5, 0}};
    static const uint8_t b[2][12] = {{1, 2, 3, 4, 255, 0, 0, 0, 0, 0, 0, 200},
                                     {255, 9, 9, 255, 0, 0, 7, 0, 1, 1, 1, 1}};
    static const int32_t expected[2][3] = {{-265, 255, -801}, {44, -220, 5}};
    int32_t c[2][3];
    configure(2, 3, 2);
    amx_model_zero(0);
    amx_model_load(1, a, sizeof(a[0]));
    amx_model_load(2, b, sizeof(b[0]));
    amx_model_dot_bytes(0, 1, 2);
    amx_model_store(0, c, sizeof(c[0]));
    assert_memory_equal(c, expected, sizeof(c));
    amx_model_dot_bytes(0, 1, 2);
    amx_model_store(0, c, sizeof(c[0]));
    for (int i = 0; i < 6; i++)
        assert_int_equal(c[i / 3][i % 3], 2 * expected[i / 3][i % 3]);
    amx_model_release();
}

static uint16_t bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    assert_int_equal(bits & 0xffff, 0);
    return (uint16_t)(bits >> 16);
}

/* One element of C, from n pairs. */
static float dot(float c, const float *a, const float *b, int num_pairs) {
    uint16_t left[32], right[32];
    for (int i = 0; i < 2 * num_pairs; i++)
        left[i] = bf16(a[i]), right[i] = bf16(b[i]);
    configure(1, 1, num_pairs);
    amx_model_load(0, &c, sizeof(c));
    amx_model_load(1, left, 64);
    amx_model_load(2, right, 4);
    amx_model_dot_bf16(0, 1, 2);
    amx_model_store(0, &c, sizeof(c));
    amx_model_release();
    return c;
}

static void test_even_and_odd_are_summed_apart(void **state) {
    const float ones[] = {1, 1, 1, 1, 1, 1};
    /* In one sum 2^25 + 1 would lose the 1; the odd ones, 3 in all, survive on their own. */
    const float apart[] = {0x1p25f, 1, -0x1p25f, 1, 0, 1};
    assert_true(dot(0, apart, ones, 3) == 3);
    /* Within the even ones the order is that of k. */
    const float ordered[] = {0x1p25f, 0, 1, 0, -0x1p25f, 0};
    assert_true(dot(0, ordered, ones, 3) == 0);
    /* C is added last: 2^25 + (1 + 1 + 1 + 1) is exact, one by one it would not be. */
    const float small[] = {1, 1, 1, 1};
    assert_true(dot(0x1p25f, small, ones, 2) == 0x1p25f + 4);
}

static void test_products_are_fused_and_rounded_to_even(void **state) {
    /* (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14; less 1, exact only if the product was not rounded. */
    const float a[] = {0x1p24f, 0, 1 + 0x1p-7f, 0, -0x1p24f, 0}, b[] = {1, 0, 1 + 0x1p-7f, 0, 1, 0};
    assert_true(dot(0, a, b, 3) == 2); /* 2^24 + 1.0157 goes up to the even neighbour's side */
    const float half[] = {0x1p24f, 0, 1, 0}, one[] = {1, 0, 1, 0};
    assert_true(dot(0, half, one, 2) == 0x1p24f);
}

static void test_denormals_are_zeros(void **state) {
    const float one[] = {1, 1};
    const float tiny[] = {0x1p-127f, 0}, least[] = {0x1p-126f, 0}, half[] = {0.5f, 0};
    assert_true(dot(0, tiny, one, 1) == 0);
    assert_true(dot(0x1p-127f, one, least, 1) == 0x1p-126f);
    assert_true(dot(0, least, one, 1) == 0x1p-126f);
    assert_true(dot(0, least, half, 1) == 0);
    const float nan[] = {NAN, 0};
    assert_true(isnan(dot(0, nan, one, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads_and_stores_keep_to_the_shape),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_even_and_odd_are_summed_apart),
        cmocka_unit_test(test_products_are_fused_and_rounded_to_even),
        cmocka_unit_test(test_denormals_are_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
