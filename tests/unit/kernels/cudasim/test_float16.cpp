/* Conversions against the definition of rounding: the nearest of all values of the type, of two
 * equally near the one with the even pattern. */
#include "sim_test.h"

#include <math.h>
#include <string.h>

/* The finite values from 0 up, in order: value[i] has the pattern i. The next one is what infinity
 * would be if it were a number: half a step below it rounding gives infinity. */
static std::vector<double> positive_values(float (*decode)(uint16_t), uint16_t infinity,
                                           double beyond) {
    std::vector<double> values;
    for (unsigned bits = 0; bits < infinity; bits++)
        values.push_back(decode((uint16_t)bits));
    values.push_back(beyond);
    return values;
}

static uint16_t nearest(const std::vector<double> &values, double magnitude) {
    if (magnitude >= values.back())
        return (uint16_t)(values.size() - 1);
    size_t low = 0, high = values.size() - 1;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        (values[middle] <= magnitude ? low : high) = middle;
    }
    double below = magnitude - values[low], above = values[high] - magnitude;
    if (below == above)
        return (uint16_t)(low % 2 == 0 ? low : high);
    return (uint16_t)(below < above ? low : high);
}

static float decode_half(uint16_t bits) {
    return __half2float({bits});
}
static float decode_bfloat16(uint16_t bits) {
    return __bfloat162float({bits});
}

/* Every value, every middle of two, and their neighbours. */
static std::vector<float> interesting(const std::vector<double> &values) {
    std::vector<float> points;
    for (size_t i = 0; i + 1 < values.size(); i++) {
        float value = (float)values[i], middle = (float)((values[i] + values[i + 1]) / 2);
        for (float point : {value, middle})
            for (float direction : {-INFINITY, INFINITY})
                points.push_back(nextafterf(point, direction));
        points.push_back(value);
        points.push_back(middle);
    }
    points.push_back(INFINITY);
    return points;
}

static void test_half_decodes(void **) {
    assert_true(decode_half(0x0001) == 0x1p-24f);
    assert_true(decode_half(0x03ff) == 1023 * 0x1p-24f);
    assert_true(decode_half(0x0400) == 0x1p-14f);
    assert_true(decode_half(0x3c00) == 1.0f);
    assert_true(decode_half(0x3555) == 0x1.554p-2f);
    assert_true(decode_half(0x7bff) == 65504.0f);
    assert_true(decode_half(0xfc00) == -INFINITY);
    assert_true(decode_half(0x8000) == 0.0f && signbit(decode_half(0x8000)));
    assert_true(isnan(decode_half(0x7c01)) && isnan(decode_half(0xffff)));
}

static void test_half_rounds(void **) {
    std::vector<double> values = positive_values(decode_half, 0x7c00, 65536.0);
    for (float x : interesting(values)) {
        uint16_t expected = nearest(values, fabs((double)x)), sign = signbit(x) ? 0x8000 : 0;
        assert_int_equal(__float2half_rn(x).bits, expected | sign);
        assert_int_equal(__float2half_rn(-x).bits, (expected | sign) ^ 0x8000);
    }
    assert_int_equal(__float2half_rn(NAN).bits, 0x7fff);
}

static void test_bfloat16_rounds(void **) {
    std::vector<double> values = positive_values(decode_bfloat16, 0x7f80, 0x1p128);
    for (float x : interesting(values)) {
        uint16_t expected = nearest(values, fabs((double)x)), sign = signbit(x) ? 0x8000 : 0;
        assert_int_equal(__float2bfloat16_rn(x).bits, expected | sign);
        assert_int_equal(__float2bfloat16_rn(-x).bits, (expected | sign) ^ 0x8000);
    }
    assert_int_equal(__float2bfloat16_rn(NAN).bits, 0x7fff);
    assert_int_equal(__float2bfloat16_rn(-NAN).bits, 0x7fff);
}

static void test_pairs(void **) {
    __nv_bfloat162 wide = __floats2bfloat162_rn(1.0f, -2.0f);
    assert_int_equal(wide.x.bits, 0x3f80);
    assert_int_equal(wide.y.bits, 0xc000);
    assert_true(__low2float(wide) == 1.0f && __high2float(wide) == -2.0f);
    assert_true(__bfloat1622float2(__float22bfloat162_rn(make_float2(3, 4))).y == 4.0f);
    __half2 narrow = __floats2half2_rn(1.0f, -2.0f);
    assert_int_equal(narrow.x.bits, 0x3c00);
    assert_int_equal(narrow.y.bits, 0xc000);
    assert_true(__low2float(narrow) == 1.0f && __high2float(narrow) == -2.0f);
    assert_true(__half22float2(__float22half2_rn(make_float2(3, 4))).y == 4.0f);
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    assert_int_equal(bits, 0xc0003c00);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_half_decodes),
        cmocka_unit_test(test_half_rounds),
        cmocka_unit_test(test_bfloat16_rounds),
        cmocka_unit_test(test_pairs),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
