/* A register is 256 bits, struct vf two of them; needs AVX2, FMA and F16C. Contracts in
 * simd_portable.h. */
#ifndef QUIRE_KERNELS_CPU_SIMD_SIMD_AVX2_H
#define QUIRE_KERNELS_CPU_SIMD_SIMD_AVX2_H

#include "kernels/cpu/simd/simd_base.h"

#include <immintrin.h>

#define RF_LANES 8
typedef __m256 rf;
typedef __m256i ri;

SIMD_INLINE rf rf_set1(float x) {
    return _mm256_set1_ps(x);
}

SIMD_INLINE rf rf_load(const void *p) {
    return _mm256_loadu_ps(p);
}

SIMD_INLINE rf rf_load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

SIMD_INLINE rf rf_load_bf16(const void *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

SIMD_INLINE ri rf_first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

SIMD_INLINE rf rf_load_part(const float *p, int n) {
    return _mm256_maskload_ps(p, rf_first_lanes(n));
}

SIMD_INLINE void rf_store_part(float *p, rf a, int n) {
    _mm256_maskstore_ps(p, rf_first_lanes(n), a);
}

SIMD_INLINE rf rf_from_int(ri a) {
    return _mm256_cvtepi32_ps(a);
}

SIMD_INLINE rf rf_from_bits(ri a) {
    return _mm256_castsi256_ps(a);
}

SIMD_INLINE rf rf_add(rf a, rf b) {
    return _mm256_add_ps(a, b);
}

SIMD_INLINE rf rf_mul(rf a, rf b) {
    return _mm256_mul_ps(a, b);
}

SIMD_INLINE rf rf_fma(rf a, rf b, rf c) {
    return _mm256_fmadd_ps(a, b, c);
}

SIMD_INLINE ri ri_set1(int32_t x) {
    return _mm256_set1_epi32(x);
}

SIMD_INLINE ri ri_load(const void *p) {
    return _mm256_loadu_si256(p);
}

SIMD_INLINE ri ri_load_bytes(const void *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
}

SIMD_INLINE ri ri_load_table(const void *p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
}

SIMD_INLINE ri ri_add(ri a, ri b) {
    return _mm256_add_epi32(a, b);
}

SIMD_INLINE ri ri_and(ri a, ri b) {
    return _mm256_and_si256(a, b);
}

SIMD_INLINE ri ri_or(ri a, ri b) {
    return _mm256_or_si256(a, b);
}

SIMD_INLINE ri ri_xor(ri a, ri b) {
    return _mm256_xor_si256(a, b);
}

SIMD_INLINE ri ri_shl(ri a, int n) {
    return _mm256_slli_epi32(a, n);
}

SIMD_INLINE ri ri_shr(ri a, int n) {
    return _mm256_srli_epi32(a, n);
}

SIMD_INLINE ri ri_lookup(ri table, ri indices) {
    return _mm256_shuffle_epi8(table, indices);
}

struct vf {
    rf low, high;
};

enum { VF_ROW_TILE = 3, VF_COLUMN_TILE = 2, VF_GROUP_TILE = 2 };

SIMD_INLINE struct vf vf_set1(float x) {
    return (struct vf){rf_set1(x), rf_set1(x)};
}

SIMD_INLINE struct vf vf_load(const float *p) {
    return (struct vf){rf_load(p), rf_load(p + 8)};
}

SIMD_INLINE void vf_store(float *p, struct vf a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}

SIMD_INLINE struct vf vf_add(struct vf a, struct vf b) {
    return (struct vf){rf_add(a.low, b.low), rf_add(a.high, b.high)};
}

SIMD_INLINE struct vf vf_sub(struct vf a, struct vf b) {
    return (struct vf){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

SIMD_INLINE struct vf vf_mul(struct vf a, struct vf b) {
    return (struct vf){rf_mul(a.low, b.low), rf_mul(a.high, b.high)};
}

SIMD_INLINE struct vf vf_div(struct vf a, struct vf b) {
    return (struct vf){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

SIMD_INLINE struct vf vf_fma(struct vf a, struct vf b, struct vf c) {
    return (struct vf){rf_fma(a.low, b.low, c.low), rf_fma(a.high, b.high, c.high)};
}

SIMD_INLINE struct vf vf_max(struct vf a, struct vf b) {
    return (struct vf){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

SIMD_INLINE struct vf vf_min(struct vf a, struct vf b) {
    return (struct vf){_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

SIMD_INLINE __m256 m256_add_exponent(__m256 a, __m256 b) {
    __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(b), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shifted));
}

SIMD_INLINE struct vf vf_add_exponent(struct vf a, struct vf b) {
    return (struct vf){m256_add_exponent(a.low, b.low), m256_add_exponent(a.high, b.high)};
}

SIMD_INLINE struct vf vf_first(int n, struct vf a, struct vf b) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
    __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane);
    return (struct vf){_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(low)),
                       _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(high))};
}

SIMD_INLINE struct vf vf_select_gt(struct vf a, struct vf b, struct vf yes, struct vf no) {
    return (struct vf){
        _mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ)),
        _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ))};
}

SIMD_INLINE unsigned m256_masks(__m256 low, __m256 high) {
    return (unsigned)_mm256_movemask_ps(low) | (unsigned)_mm256_movemask_ps(high) << 8;
}

SIMD_INLINE unsigned vf_mask_gt(struct vf a, struct vf b) {
    return m256_masks(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ),
                      _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ));
}

SIMD_INLINE unsigned vf_mask_ge(struct vf a, struct vf b) {
    return m256_masks(_mm256_cmp_ps(a.low, b.low, _CMP_GE_OQ),
                      _mm256_cmp_ps(a.high, b.high, _CMP_GE_OQ));
}

SIMD_INLINE float vf_reduce_add(struct vf a) {
    __m256 s8 = _mm256_add_ps(a.low, a.high);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

SIMD_INLINE float vf_reduce_max(struct vf a) {
    __m256 m8 = _mm256_max_ps(a.low, a.high);
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

/* Puts the 64-bit quarters of v in the order 0 2 1 3. */
SIMD_INLINE __m256 m256_swap_middle(__m256 v) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), _MM_SHUFFLE(3, 1, 2, 0)));
}

SIMD_INLINE void vf_split_pairs(struct vf a, struct vf b, struct vf *evens, struct vf *odds) {
    enum { EVEN = _MM_SHUFFLE(2, 0, 2, 0), ODD = _MM_SHUFFLE(3, 1, 3, 1) };
    evens->low = m256_swap_middle(_mm256_shuffle_ps(a.low, a.high, EVEN));
    evens->high = m256_swap_middle(_mm256_shuffle_ps(b.low, b.high, EVEN));
    odds->low = m256_swap_middle(_mm256_shuffle_ps(a.low, a.high, ODD));
    odds->high = m256_swap_middle(_mm256_shuffle_ps(b.low, b.high, ODD));
}

SIMD_INLINE struct vf m256_interleave(__m256 evens, __m256 odds) {
    __m256 low = _mm256_unpacklo_ps(evens, odds), high = _mm256_unpackhi_ps(evens, odds);
    return (struct vf){_mm256_permute2f128_ps(low, high, 0x20),
                       _mm256_permute2f128_ps(low, high, 0x31)};
}

SIMD_INLINE void vf_join_pairs(struct vf evens, struct vf odds, struct vf *a, struct vf *b) {
    *a = m256_interleave(evens.low, odds.low);
    *b = m256_interleave(evens.high, odds.high);
}

SIMD_INLINE struct vf vf_load_f16(const uint16_t *p) {
    return (struct vf){rf_load_f16(p), rf_load_f16(p + 8)};
}

SIMD_INLINE void vf_load_bf16_pairs(const void *p, struct vf *even, struct vf *odd) {
    ri low = ri_load(p), high = ri_load((const char *)p + 32), mask = ri_set1((int32_t)0xffff0000);
    even->low = _mm256_castsi256_ps(ri_shl(low, 16));
    even->high = _mm256_castsi256_ps(ri_shl(high, 16));
    odd->low = _mm256_castsi256_ps(ri_and(low, mask));
    odd->high = _mm256_castsi256_ps(ri_and(high, mask));
}

SIMD_INLINE struct vf vf_load_half(const float *p) {
    return (struct vf){rf_load(p), rf_set1(0)};
}

SIMD_INLINE struct vf vf_load_f16_half(const uint16_t *p) {
    return (struct vf){rf_load_f16(p), rf_set1(0)};
}

SIMD_INLINE __m128i m256_to_f16(__m256 a) {
    return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
}

SIMD_INLINE void vf_store_f16(uint16_t *p, struct vf a) {
    _mm_storeu_si128((__m128i *)p, m256_to_f16(a.low));
    _mm_storeu_si128((__m128i *)(p + 8), m256_to_f16(a.high));
}

SIMD_INLINE __m128i m256_to_bf16(__m256 a) {
    __m256i bits = _mm256_castps_si256(a), high = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i rounding = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, rounding), 16);
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    __m256i result = _mm256_blendv_epi8(rounded, quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
}

SIMD_INLINE void vf_store_bf16(uint16_t *p, struct vf a) {
    _mm_storeu_si128((__m128i *)p, m256_to_bf16(a.low));
    _mm_storeu_si128((__m128i *)(p + 8), m256_to_bf16(a.high));
}

/* Sign extension duplicates the sign bit: the upper one becomes f16's, the lower is cleared. */
SIMD_INLINE __m256 m256_from_e4m3(const uint8_t *p) {
    __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p));
    __m128i half = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16((int16_t)0xbf80));
    return _mm256_cvtph_ps(half);
}

SIMD_INLINE struct vf vf_load_e4m3(const uint8_t *p) {
    return (struct vf){m256_from_e4m3(p), m256_from_e4m3(p + 8)};
}

SIMD_INLINE struct vf vf_load_e4m3_half(const uint8_t *p) {
    return (struct vf){m256_from_e4m3(p), _mm256_setzero_ps()};
}

/* Stores the low byte of each, which is less than 256. */
SIMD_INLINE void m256_store_bytes(uint8_t *p, __m256i low, __m256i high) {
    __m128i a = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    __m128i b = _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(a, b));
}

SIMD_INLINE void vf_store_int8(int8_t *p, struct vf a) {
    __m256i byte = _mm256_set1_epi32(0xff);
    m256_store_bytes((uint8_t *)p, _mm256_and_si256(_mm256_cvtps_epi32(a.low), byte),
                     _mm256_and_si256(_mm256_cvtps_epi32(a.high), byte));
}

SIMD_INLINE void vf_store_64_uint8(uint8_t *p, const struct vf *a) {
    UNROLL
    for (int i = 0; i < 4; i++)
        m256_store_bytes(p + 16 * i, _mm256_cvtps_epi32(a[i].low), _mm256_cvtps_epi32(a[i].high));
}

SIMD_INLINE __m256 m256_round_e4m3(__m256 a) {
    __m256i exponent = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7f800000));
    exponent = _mm256_max_epi32(exponent, _mm256_set1_epi32(0x3c800000));
    __m256i rounder = _mm256_add_epi32(exponent, _mm256_set1_epi32(20 << 23 | 0x400000));
    __m256 added = _mm256_add_ps(a, _mm256_castsi256_ps(rounder));
    return _mm256_sub_ps(added, _mm256_castsi256_ps(rounder));
}

SIMD_INLINE struct vf vf_round_e4m3(struct vf a) {
    return (struct vf){m256_round_e4m3(a.low), m256_round_e4m3(a.high)};
}

/* The steps of e4m3_from_f32. */
SIMD_INLINE __m256i m256_to_e4m3(__m256 a) {
    __m256i bits = _mm256_castps_si256(a),
            size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    __m256 offset = _mm256_set1_ps(0x1p14f);
    __m256 shifted = _mm256_add_ps(_mm256_castsi256_ps(size), offset);
    __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(offset));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(size, 20), _mm256_set1_epi32(1));
    __m256i rounding = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff - (120 << 23)));
    __m256i normal = _mm256_srli_epi32(_mm256_add_epi32(size, rounding), 20);
    __m256i is_subnormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), size);
    return _mm256_or_si256(sign, _mm256_blendv_epi8(normal, subnormal, is_subnormal));
}

SIMD_INLINE void vf_store_e4m3(uint8_t *p, struct vf a) {
    m256_store_bytes(p, m256_to_e4m3(a.low), m256_to_e4m3(a.high));
}

struct vi {
    ri low, high;
};

SIMD_INLINE struct vi vi_set1(int32_t x) {
    return (struct vi){ri_set1(x), ri_set1(x)};
}

SIMD_INLINE struct vi vi_load(const void *p) {
    return (struct vi){ri_load(p), ri_load((const char *)p + 32)};
}

/* In words: vpmaddubsw saturates. */
SIMD_INLINE ri ri_dot(ri sums, ri bytes, ri codes) {
    ri even = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), odd = _mm256_srli_epi16(bytes, 8);
    ri even_codes = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8);
    ri odd_codes = _mm256_srai_epi16(codes, 8);
    sums = ri_add(sums, _mm256_madd_epi16(even, even_codes));
    return ri_add(sums, _mm256_madd_epi16(odd, odd_codes));
}

SIMD_INLINE struct vi vi_dot(struct vi sums, struct vi bytes, struct vi codes) {
    return (struct vi){ri_dot(sums.low, bytes.low, codes.low),
                       ri_dot(sums.high, bytes.high, codes.high)};
}

SIMD_INLINE struct vf vf_from_vi(struct vi a) {
    return (struct vf){rf_from_int(a.low), rf_from_int(a.high)};
}

struct vd {
    __m256d v[4];
};

SIMD_INLINE struct vd vd_zero(void) {
    __m256d zero = _mm256_setzero_pd();
    return (struct vd){{zero, zero, zero, zero}};
}

SIMD_INLINE __m256d vd_round(__m128 a, double rounding) {
    __m256d r = _mm256_set1_pd(rounding);
    return _mm256_sub_pd(_mm256_add_pd(_mm256_cvtps_pd(a), r), r);
}

SIMD_INLINE struct vd vd_add_rounded(struct vd sum, struct vf a, double rounding) {
    sum.v[0] = _mm256_add_pd(sum.v[0], vd_round(_mm256_castps256_ps128(a.low), rounding));
    sum.v[1] = _mm256_add_pd(sum.v[1], vd_round(_mm256_extractf128_ps(a.low, 1), rounding));
    sum.v[2] = _mm256_add_pd(sum.v[2], vd_round(_mm256_castps256_ps128(a.high), rounding));
    sum.v[3] = _mm256_add_pd(sum.v[3], vd_round(_mm256_extractf128_ps(a.high, 1), rounding));
    return sum;
}

SIMD_INLINE double vd_reduce_add(struct vd a) {
    __m256d sum = _mm256_add_pd(_mm256_add_pd(a.v[0], a.v[1]), _mm256_add_pd(a.v[2], a.v[3]));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

#endif
