#include "sim_test.h"

#include <math.h>

/* Sizes and alignments of CUDA's vector_types.h. */
static_assert(sizeof(float2) == 8 && alignof(float2) == 8, "");
static_assert(sizeof(float3) == 12 && alignof(float3) == 4, "");
static_assert(sizeof(float4) == 16 && alignof(float4) == 16, "");
static_assert(sizeof(int2) == 8 && alignof(int4) == 16 && alignof(uint4) == 16, "");
static_assert(alignof(uchar4) == 4 && alignof(ushort2) == 4 && alignof(ushort4) == 8, "");
static_assert(sizeof(double4) == 32 && alignof(double2) == 16 && alignof(double4) == 16, "");
static_assert(sizeof(__nv_bfloat162) == 4 && alignof(__half2) == 4, "");

static const unsigned WORDS[] = {0, 1, 2, 3, 0x80000000u, 0xffffffffu, 0x00f0f000u, 0x12345678u};

static int count_bits(uint64_t x) {
    int count = 0;
    for (; x != 0; x >>= 1)
        count += (int)(x & 1);
    return count;
}

static int highest_bit(uint64_t x) {
    int bit = -1;
    for (; x != 0; x >>= 1)
        bit++;
    return bit;
}

static int lowest_bit(uint64_t x) {
    for (int bit = 0; bit < 64; bit++)
        if (x >> bit & 1)
            return bit;
    return -1;
}

static void test_bits(void **) {
    for (unsigned x : WORDS) {
        unsigned long long wide = (unsigned long long)x << 20;
        assert_int_equal(__popc(x), count_bits(x));
        assert_int_equal(__popcll(wide), count_bits(wide));
        assert_int_equal(__clz((int)x), 31 - highest_bit(x));
        assert_int_equal(__clzll((long long)wide), 63 - highest_bit(wide));
        assert_int_equal(__ffs((int)x), lowest_bit(x) + 1);
        assert_int_equal(__ffsll((long long)wide), lowest_bit(wide) + 1);
        for (int i = 0; i < 32; i++)
            assert_int_equal(__brev(x) >> i & 1, x >> (31 - i) & 1);
        assert_int_equal(__float_as_uint(__uint_as_float(x)), x);
        assert_int_equal(__float_as_int(__int_as_float((int)x)), (int)x);
    }
    assert_int_equal(__float_as_uint(1.0f), 0x3f800000);
}

static void test_byte_perm(void **) {
    assert_int_equal(__byte_perm(0x33221100, 0x77665544, 0x3210), 0x33221100);
    assert_int_equal(__byte_perm(0x33221100, 0x77665544, 0x7654), 0x77665544);
    assert_int_equal(__byte_perm(0x33221100, 0x77665544, 0x0527), 0x00552277);
}

/* By halves, as one multiplies on paper. */
static uint64_t high_half(uint64_t a, uint64_t b) {
    uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
    uint64_t carry = (a0 * b0 >> 32) + (a1 * b0 & 0xffffffff) + (a0 * b1 & 0xffffffff);
    return a1 * b1 + (a1 * b0 >> 32) + (a0 * b1 >> 32) + (carry >> 32);
}

static void test_high_products(void **) {
    for (unsigned a : WORDS)
        for (unsigned b : WORDS) {
            assert_int_equal(__umulhi(a, b), (unsigned)((uint64_t)a * b >> 32));
            uint64_t wide_a = (uint64_t)a << 32 | b, wide_b = (uint64_t)b << 31 | a;
            assert_true(__umul64hi(wide_a, wide_b) == high_half(wide_a, wide_b));
        }
}

static void test_float_functions(void **) {
    assert_true(rsqrtf(4.0f) == 0.5f && rsqrtf(0.0f) == INFINITY);
    assert_true(exp2_fast(10.0f) == 1024.0f && exp2_fast(-INFINITY) == 0.0f);
    assert_true(exp2_fast(-126.0f) == 0x1p-126f && exp2_fast(-127.0f) == 0.0f);
    assert_true(isnan(exp2_fast(NAN)));
    assert_true(min(1.0f, NAN) == 1.0f && max(NAN, 2.0f) == 2.0f);
    assert_int_equal(min(-1, 2), -1);
    assert_int_equal(max(3u, 2u), 3);
}

template <class T> static void check_atomics() {
    T x = 10;
    assert_true(atomicAdd(&x, (T)5) == 10 && x == 15);
    assert_true(atomicMax(&x, (T)20) == 15 && x == 20);
    assert_true(atomicMax(&x, (T)3) == 20 && x == 20);
    assert_true(atomicMin(&x, (T)30) == 20 && x == 20);
    assert_true(atomicMin(&x, (T)7) == 20 && x == 7);
    assert_true(atomicOr(&x, (T)8) == 7 && x == 15);
    assert_true(atomicAnd(&x, (T)12) == 15 && x == 12);
    assert_true(atomicExch(&x, (T)1) == 12 && x == 1);
    assert_true(atomicCAS(&x, (T)2, (T)9) == 1 && x == 1);
    assert_true(atomicCAS(&x, (T)1, (T)9) == 1 && x == 9);
}

static void test_atomics(void **) {
    check_atomics<int>();
    check_atomics<unsigned>();
    check_atomics<unsigned long long>();
    int wrapped = INT32_MAX;
    atomicAdd(&wrapped, 1);
    assert_int_equal(wrapped, INT32_MIN);
    float x = 1.5f;
    assert_true(atomicAdd(&x, 2.0f) == 1.5f && x == 3.5f);
    assert_true(atomicExch(&x, 1.0f) == 3.5f && x == 1.0f);
    assert_true(__ldg(&x) == 1.0f);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),          cmocka_unit_test(test_byte_perm),
        cmocka_unit_test(test_high_products), cmocka_unit_test(test_float_functions),
        cmocka_unit_test(test_atomics),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
