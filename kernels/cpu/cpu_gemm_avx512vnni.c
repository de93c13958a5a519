#include "kernels/cpu/simd_base.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/quant_form.h"

#define LANES 16
typedef __m512 vfloat;
typedef __m512i vint;

SIMD_INLINE vfloat vfloat_zero(void) {
    return _mm512_setzero_ps();
}
SIMD_INLINE vfloat vfloat_set1(float x) {
    return _mm512_set1_ps(x);
}
SIMD_INLINE vfloat vfloat_load_f32(const void *p) {
    return _mm512_loadu_ps(p);
}
SIMD_INLINE vfloat vfloat_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
SIMD_INLINE vfloat vfloat_load_bf16(const void *p) {
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
SIMD_INLINE vfloat vfloat_from_int(vint v) {
    return _mm512_cvtepi32_ps(v);
}
SIMD_INLINE vfloat vfloat_add(vfloat a, vfloat b) {
    return _mm512_add_ps(a, b);
}
SIMD_INLINE vfloat vfloat_mul(vfloat a, vfloat b) {
    return _mm512_mul_ps(a, b);
}
SIMD_INLINE vfloat vfloat_fma(vfloat a, vfloat b, vfloat c) {
    return _mm512_fmadd_ps(a, b, c);
}
SIMD_INLINE __mmask16 first_lanes(int n) {
    return (__mmask16)((1u << n) - 1);
}
SIMD_INLINE vfloat vfloat_load_part(const float *p, int n) {
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
SIMD_INLINE void vfloat_store_part(float *p, vfloat v, int n) {
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
SIMD_INLINE vint vint_zero(void) {
    return _mm512_setzero_si512();
}
SIMD_INLINE vint vint_set1(int32_t x) {
    return _mm512_set1_epi32(x);
}
SIMD_INLINE vint vint_load(const void *p) {
    return _mm512_loadu_si512(p);
}
SIMD_INLINE vint vint_load_bytes(const void *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}
SIMD_INLINE vint vint_and(vint a, vint b) {
    return _mm512_and_si512(a, b);
}
SIMD_INLINE vint vint_or(vint a, vint b) {
    return _mm512_or_si512(a, b);
}
SIMD_INLINE vint vint_shl(vint v, int n) {
    return _mm512_slli_epi32(v, (unsigned)n);
}
SIMD_INLINE vint vint_shr(vint v, int n) {
    return _mm512_srli_epi32(v, (unsigned)n);
}
SIMD_INLINE vint vint_levels(vint v) {
    __m128i table = _mm_loadu_si128((const void *)quant_levels);
    table = _mm_xor_si128(table, _mm_set1_epi8(-128));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v);
}

#include "kernels/cpu/cpu_gemm_codes_template.h"

SIMD_INLINE void dot_words(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, vint *sums) {
    UNROLL
    for (int i = first; i < first + count; i++) {
        vint word = word_codes(form, codes, i);
        UNROLL
        for (int r = 0; r < num_rows; r++)
            sums[r] = _mm512_dpbusd_epi32(sums[r], word, _mm512_set1_epi32(blocks[r].codes[i]));
    }
}

static void quantise_row(const float *x, int32_t depth, struct gemm_block *out, int32_t stride) {
    for (int32_t k = 0; k < depth; k += PANEL_BLOCK, out += stride) {
        __m512 a = _mm512_loadu_ps(x + k), b = _mm512_loadu_ps(x + k + 16);
        __m512i magnitudes = _mm512_max_epu32(_mm512_castps_si512(_mm512_abs_ps(a)),
                                              _mm512_castps_si512(_mm512_abs_ps(b)));
        struct gemm_scale scale = gemm_scale_of(_mm512_reduce_max_epu32(magnitudes));
        __m512 inverse = _mm512_set1_ps(scale.inverse);
        /* A NaN becomes the lowest integer; its sums shall not overflow. */
        const __m512i lowest = _mm512_set1_epi32(-128);
        __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
        __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
        low = _mm512_max_epi32(low, lowest);
        high = _mm512_max_epi32(high, lowest);
        _mm_storeu_si128((void *)&out->codes[0], _mm512_cvtsepi32_epi8(low));
        _mm_storeu_si128((void *)&out->codes[4], _mm512_cvtsepi32_epi8(high));
        gemm_block_finish(out, scale.scale, _mm512_reduce_add_epi32(low),
                          _mm512_reduce_add_epi32(high));
    }
}

#define TILE_ROWS                                                                                  \
    { 12, 8, 4, 2, 1 }
#define FOR_QUANTISED_TILES(X, type)                                                               \
    X(type, 12, 1) X(type, 8, 1) X(type, 4, 1) X(type, 2, 2) X(type, 1, 4)
#define FOR_PLAIN_TILES(X, type)                                                                   \
    X(type, 12, 1) X(type, 8, 1) X(type, 4, 2) X(type, 2, 4) X(type, 1, 4)
#include "kernels/cpu/cpu_gemm_template.h"

const struct cpu_gemm_kernels cpu_gemm_kernels_avx512vnni = GEMM_KERNELS;
