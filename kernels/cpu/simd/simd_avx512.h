/* A register is 512 bits, struct vf one of them. Contracts in simd_portable.h. */
#ifndef QUIRE_KERNELS_CPU_SIMD_SIMD_AVX512_H
#define QUIRE_KERNELS_CPU_SIMD_SIMD_AVX512_H

#include "kernels/cpu/simd/simd_base.h"

#include <immintrin.h>

#define RF_LANES 16
typedef __m512 rf;
typedef __m512i ri;

SIMD_INLINE rf rf_set1(float x) {
    return _mm512_set1_ps(x);
}

SIMD_INLINE rf rf_load(const void *p) {
    return _mm512_loadu_ps(p);
}

SIMD_INLINE rf rf_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

SIMD_INLINE rf rf_load_bf16(const void *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

SIMD_INLINE __mmask16 rf_first_lanes(int n) {
    return (__mmask16)((1u << n) - 1);
}

SIMD_INLINE rf rf_load_part(const float *p, int n) {
    return _mm512_maskz_loadu_ps(rf_first_lanes(n), p);
}

SIMD_INLINE void rf_store_part(float *p, rf a, int n) {
    _mm512_mask_storeu_ps(p, rf_first_lanes(n), a);
}

SIMD_INLINE rf rf_from_int(ri a) {
    return _mm512_cvtepi32_ps(a);
}

SIMD_INLINE rf rf_from_bits(ri a) {
    return _mm512_castsi512_ps(a);
}

SIMD_INLINE rf rf_add(rf a, rf b) {
    return _mm512_add_ps(a, b);
}

SIMD_INLINE rf rf_mul(rf a, rf b) {
    return _mm512_mul_ps(a, b);
}

SIMD_INLINE rf rf_fma(rf a, rf b, rf c) {
    return _mm512_fmadd_ps(a, b, c);
}

SIMD_INLINE ri ri_set1(int32_t x) {
    return _mm512_set1_epi32(x);
}

SIMD_INLINE ri ri_load(const void *p) {
    return _mm512_loadu_si512(p);
}

SIMD_INLINE ri ri_load_bytes(const void *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}

SIMD_INLINE ri ri_load_table(const void *p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(p));
}

SIMD_INLINE ri ri_add(ri a, ri b) {
    return _mm512_add_epi32(a, b);
}

SIMD_INLINE ri ri_and(ri a, ri b) {
    return _mm512_and_si512(a, b);
}

SIMD_INLINE ri ri_or(ri a, ri b) {
    return _mm512_or_si512(a, b);
}

SIMD_INLINE ri ri_xor(ri a, ri b) {
    return _mm512_xor_si512(a, b);
}

SIMD_INLINE ri ri_shl(ri a, int n) {
    return _mm512_slli_epi32(a, (unsigned)n);
}

SIMD_INLINE ri ri_shr(ri a, int n) {
    return _mm512_srli_epi32(a, (unsigned)n);
}

SIMD_INLINE ri ri_lookup(ri table, ri indices) {
    return _mm512_shuffle_epi8(table, indices);
}

struct vf {
    rf v;
};

enum { VF_ROW_TILE = 6, VF_COLUMN_TILE = 4, VF_GROUP_TILE = 4 };

SIMD_INLINE struct vf vf_of(rf v) {
    return (struct vf){v};
}

SIMD_INLINE struct vf vf_set1(float x) {
    return vf_of(rf_set1(x));
}

SIMD_INLINE struct vf vf_load(const float *p) {
    return vf_of(rf_load(p));
}

SIMD_INLINE void vf_store(float *p, struct vf a) {
    _mm512_storeu_ps(p, a.v);
}

SIMD_INLINE struct vf vf_add(struct vf a, struct vf b) {
    return vf_of(rf_add(a.v, b.v));
}

SIMD_INLINE struct vf vf_sub(struct vf a, struct vf b) {
    return vf_of(_mm512_sub_ps(a.v, b.v));
}

SIMD_INLINE struct vf vf_mul(struct vf a, struct vf b) {
    return vf_of(rf_mul(a.v, b.v));
}

SIMD_INLINE struct vf vf_div(struct vf a, struct vf b) {
    return vf_of(_mm512_div_ps(a.v, b.v));
}

SIMD_INLINE struct vf vf_fma(struct vf a, struct vf b, struct vf c) {
    return vf_of(rf_fma(a.v, b.v, c.v));
}

SIMD_INLINE struct vf vf_max(struct vf a, struct vf b) {
    return vf_of(_mm512_max_ps(a.v, b.v));
}

SIMD_INLINE struct vf vf_min(struct vf a, struct vf b) {
    return vf_of(_mm512_min_ps(a.v, b.v));
}

SIMD_INLINE struct vf vf_add_exponent(struct vf a, struct vf b) {
    __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(b.v), 23);
    return vf_of(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), shifted)));
}

SIMD_INLINE struct vf vf_first(int n, struct vf a, struct vf b) {
    __mmask16 mask = (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1);
    return vf_of(_mm512_mask_mov_ps(b.v, mask, a.v));
}

SIMD_INLINE struct vf vf_select_gt(struct vf a, struct vf b, struct vf yes, struct vf no) {
    return vf_of(_mm512_mask_mov_ps(no.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ), yes.v));
}

SIMD_INLINE unsigned vf_mask_gt(struct vf a, struct vf b) {
    return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ);
}

SIMD_INLINE unsigned vf_mask_ge(struct vf a, struct vf b) {
    return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ);
}

SIMD_INLINE float vf_reduce_add(struct vf a) {
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

SIMD_INLINE float vf_reduce_max(struct vf a) {
    __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

SIMD_INLINE void vf_split_pairs(struct vf a, struct vf b, struct vf *evens, struct vf *odds) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    evens->v = _mm512_permutex2var_ps(a.v, even, b.v);
    odds->v = _mm512_permutex2var_ps(a.v, odd, b.v);
}

SIMD_INLINE void vf_join_pairs(struct vf evens, struct vf odds, struct vf *a, struct vf *b) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    a->v = _mm512_permutex2var_ps(evens.v, low, odds.v);
    b->v = _mm512_permutex2var_ps(evens.v, high, odds.v);
}

SIMD_INLINE struct vf vf_load_f16(const uint16_t *p) {
    return vf_of(rf_load_f16(p));
}

SIMD_INLINE void vf_load_bf16_pairs(const void *p, struct vf *even, struct vf *odd) {
    __m512i pairs = _mm512_loadu_si512(p), high = _mm512_set1_epi32((int32_t)0xffff0000);
    even->v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    odd->v = _mm512_castsi512_ps(_mm512_and_si512(pairs, high));
}

SIMD_INLINE struct vf vf_load_half(const float *p) {
    return vf_of(_mm512_zextps256_ps512(_mm256_loadu_ps(p)));
}

SIMD_INLINE struct vf vf_load_f16_half(const uint16_t *p) {
    __m128i half = _mm_loadu_si128((const __m128i *)p);
    return vf_of(_mm512_cvtph_ps(_mm256_zextsi128_si256(half)));
}

SIMD_INLINE void vf_store_f16(uint16_t *p, struct vf a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

SIMD_INLINE void vf_store_bf16(uint16_t *p, struct vf a) {
    __m512i bits = _mm512_castps_si512(a.v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounding = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, rounding), 16);
    __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    __m512i result = _mm512_mask_mov_epi32(rounded, nan, quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(result));
}

/* Sign extension duplicates the sign bit: the upper one becomes f16's, the lower is cleared. */
SIMD_INLINE struct vf m512_from_e4m3(__m128i codes) {
    __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16((int16_t)0xbf80));
    return vf_of(_mm512_cvtph_ps(half));
}

SIMD_INLINE struct vf vf_load_e4m3(const uint8_t *p) {
    return m512_from_e4m3(_mm_loadu_si128((const __m128i *)p));
}

SIMD_INLINE struct vf vf_load_e4m3_half(const uint8_t *p) {
    return m512_from_e4m3(_mm_loadl_epi64((const __m128i *)p));
}

/* Packing works within 128-bit lanes; the groups of four are put in order at the end. */
SIMD_INLINE void vf_store_64_uint8(uint8_t *p, const struct vf *a) {
    __m512i low = _mm512_packus_epi32(_mm512_cvtps_epi32(a[0].v), _mm512_cvtps_epi32(a[1].v));
    __m512i high = _mm512_packus_epi32(_mm512_cvtps_epi32(a[2].v), _mm512_cvtps_epi32(a[3].v));
    __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}

SIMD_INLINE void vf_store_int8(int8_t *p, struct vf a) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

SIMD_INLINE struct vf vf_round_e4m3(struct vf a) {
    __m512i exponent = _mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7f800000));
    exponent = _mm512_max_epi32(exponent, _mm512_set1_epi32(0x3c800000));
    __m512i rounder = _mm512_add_epi32(exponent, _mm512_set1_epi32(20 << 23 | 0x400000));
    __m512 added = _mm512_add_ps(a.v, _mm512_castsi512_ps(rounder));
    return vf_of(_mm512_sub_ps(added, _mm512_castsi512_ps(rounder)));
}

/* The steps of e4m3_from_f32. */
SIMD_INLINE void vf_store_e4m3(uint8_t *p, struct vf a) {
    __m512i bits = _mm512_castps_si512(a.v);
    __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
    __m512 offset = _mm512_set1_ps(0x1p14f);
    __m512 shifted = _mm512_add_ps(_mm512_castsi512_ps(size), offset);
    __m512i subnormal = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_castps_si512(offset));
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(size, 20), _mm512_set1_epi32(1));
    __m512i rounding = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff - (120 << 23)));
    __m512i normal = _mm512_srli_epi32(_mm512_add_epi32(size, rounding), 20);
    __mmask16 is_subnormal = _mm512_cmplt_epi32_mask(size, _mm512_set1_epi32(0x3c800000));
    __m512i code = _mm512_mask_mov_epi32(normal, is_subnormal, subnormal);
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_or_si512(sign, code)));
}

struct vi {
    ri v;
};

SIMD_INLINE struct vi vi_set1(int32_t x) {
    return (struct vi){ri_set1(x)};
}

SIMD_INLINE struct vi vi_load(const void *p) {
    return (struct vi){ri_load(p)};
}

SIMD_INLINE struct vi vi_dot(struct vi sums, struct vi bytes, struct vi codes) {
    /* With the intrinsic, gcc 12 copies the accumulators in every iteration of a loop. */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums.v) : "v"(bytes.v), "v"(codes.v));
    return sums;
}

SIMD_INLINE struct vf vf_from_vi(struct vi a) {
    return vf_of(rf_from_int(a.v));
}

SIMD_INLINE void vi_store(void *p, struct vi a) {
    _mm512_storeu_si512(p, a.v);
}

SIMD_INLINE struct vi vi_and(struct vi a, struct vi b) {
    return (struct vi){ri_and(a.v, b.v)};
}

SIMD_INLINE struct vi vi_load_half(const void *p) {
    return (struct vi){_mm512_zextsi256_si512(_mm256_loadu_si256(p))};
}

/* What attention in 16-bit fixed point needs; simd_portable.h has no such functions. */
#define SIMD_FIXED

/* Adds to each sum the products of two pairs of signed 16-bit integers. Not by the intrinsic, as
 * for vi_dot. */
SIMD_INLINE struct vi vi_dot_int16(struct vi sums, struct vi a, struct vi b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sums.v) : "v"(a.v), "v"(b.v));
    return sums;
}

SIMD_INLINE struct vi vi_max_uint16(struct vi a, struct vi b) {
    return (struct vi){_mm512_max_epu16(a.v, b.v)};
}

/* The lower halves of the lanes' bits: of each lane a pair, even's first. */
SIMD_INLINE struct vi vi_pair_int16(struct vf even, struct vf odd) {
    __m512i high = _mm512_slli_epi32(_mm512_castps_si512(odd.v), 16);
    return (struct vi){_mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_castps_si512(even.v), high)};
}

/* The same of 32 lanes in order, low's first. */
SIMD_INLINE struct vi vi_join_int16(struct vf low, struct vf high) {
    const __m512i first = _mm512_setr_epi32(0x20000, 0x60004, 0xa0008, 0xe000c, 0x120010, 0x160014,
                                            0x1a0018, 0x1e001c, 0x220020, 0x260024, 0x2a0028,
                                            0x2e002c, 0x320030, 0x360034, 0x3a0038, 0x3e003c);
    return (struct vi){
        _mm512_permutex2var_epi16(_mm512_castps_si512(low.v), first, _mm512_castps_si512(high.v))};
}

/* Two times 16 numbers of f16, or with `half` two times 8: even's, then odd's. */
SIMD_INLINE struct vi vi_load_two(const void *even, const void *odd, bool half) {
    __m256i a = half ? _mm256_zextsi128_si256(_mm_loadu_si128(even)) : _mm256_loadu_si256(even);
    __m256i b = half ? _mm256_zextsi128_si256(_mm_loadu_si128(odd)) : _mm256_loadu_si256(odd);
    return (struct vi){_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1)};
}

SIMD_INLINE void vf_from_two_f16(struct vi two, struct vf *even, struct vf *odd) {
    even->v = _mm512_cvtph_ps(_mm512_castsi512_si256(two.v));
    odd->v = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(two.v, 1));
}

#ifdef __AVX512BF16__
#define SIMD_PAIRS

/* Each sum and the products of a pair, the odd element's first, by two fused multiply-adds that
 * round to nearest even and treat denormals as zeros, regardless of MXCSR (Intel, Software
 * Developer's Manual, volume 2, VDPBF16PS). Not by the intrinsic, as for vi_dot. */
SIMD_INLINE struct vf vf_dot_pairs(struct vf sums, struct vi a, struct vi b) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sums.v) : "v"(a.v), "v"(b.v));
    return sums;
}

/* 32 numbers rounded to bf16, low's first, denormals to zero. */
SIMD_INLINE struct vi vi_from_bf16(struct vf low, struct vf high) {
    return (struct vi){(__m512i)_mm512_cvtne2ps_pbh(high.v, low.v)};
}
#endif

struct vd {
    __m512d low, high;
};

SIMD_INLINE struct vd vd_zero(void) {
    return (struct vd){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

SIMD_INLINE __m512d vd_round(__m256 a, double rounding) {
    __m512d r = _mm512_set1_pd(rounding);
    return _mm512_sub_pd(_mm512_add_pd(_mm512_cvtps_pd(a), r), r);
}

SIMD_INLINE struct vd vd_add_rounded(struct vd sum, struct vf a, double rounding) {
    sum.low = _mm512_add_pd(sum.low, vd_round(_mm512_castps512_ps256(a.v), rounding));
    sum.high = _mm512_add_pd(sum.high, vd_round(_mm512_extractf32x8_ps(a.v, 1), rounding));
    return sum;
}

SIMD_INLINE double vd_reduce_add(struct vd a) {
    return _mm512_reduce_add_pd(_mm512_add_pd(a.low, a.high));
}

#endif
