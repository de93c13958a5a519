/* Strips of 8 columns: half a panel. maddubs adds two products of an unsigned and a signed byte in
 * 16 bits with saturation. With codes of n <= 6 bits, 128 >> n words of a 32-block are added up in
 * 16 bits before they are widened: 2 * (128 >> n) products of at most (2^n - 1) * 128 are less than
 * 32768. (An activation of infinity becomes code -128.) Bytes are split into two nibbles. */
#include "kernels/cpu/simd_base.h"

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/quant_form.h"

#define LANES 8
typedef __m256 vfloat;
typedef __m256i vint;

SIMD_INLINE vfloat vfloat_zero(void) {
    return _mm256_setzero_ps();
}
SIMD_INLINE vfloat vfloat_set1(float x) {
    return _mm256_set1_ps(x);
}
SIMD_INLINE vfloat vfloat_load_f32(const void *p) {
    return _mm256_loadu_ps(p);
}
SIMD_INLINE vfloat vfloat_load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
SIMD_INLINE vfloat vfloat_load_bf16(const void *p) {
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
SIMD_INLINE vfloat vfloat_from_int(vint v) {
    return _mm256_cvtepi32_ps(v);
}
SIMD_INLINE vfloat vfloat_add(vfloat a, vfloat b) {
    return _mm256_add_ps(a, b);
}
SIMD_INLINE vfloat vfloat_mul(vfloat a, vfloat b) {
    return _mm256_mul_ps(a, b);
}
SIMD_INLINE vfloat vfloat_fma(vfloat a, vfloat b, vfloat c) {
    return _mm256_fmadd_ps(a, b, c);
}
SIMD_INLINE vint first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SIMD_INLINE vfloat vfloat_load_part(const float *p, int n) {
    return _mm256_maskload_ps(p, first_lanes(n));
}
SIMD_INLINE void vfloat_store_part(float *p, vfloat v, int n) {
    _mm256_maskstore_ps(p, first_lanes(n), v);
}
SIMD_INLINE vint vint_zero(void) {
    return _mm256_setzero_si256();
}
SIMD_INLINE vint vint_set1(int32_t x) {
    return _mm256_set1_epi32(x);
}
SIMD_INLINE vint vint_load(const void *p) {
    return _mm256_loadu_si256(p);
}
SIMD_INLINE vint vint_load_bytes(const void *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
}
SIMD_INLINE vint vint_and(vint a, vint b) {
    return _mm256_and_si256(a, b);
}
SIMD_INLINE vint vint_or(vint a, vint b) {
    return _mm256_or_si256(a, b);
}
SIMD_INLINE vint vint_shl(vint v, int n) {
    return _mm256_slli_epi32(v, n);
}
SIMD_INLINE vint vint_shr(vint v, int n) {
    return _mm256_srli_epi32(v, n);
}
SIMD_INLINE vint vint_levels(vint v) {
    __m128i table = _mm_loadu_si128((const void *)quant_levels);
    table = _mm_xor_si128(table, _mm_set1_epi8(-128));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v);
}

#include "kernels/cpu/cpu_gemm_codes_template.h"

#define MAX_DOT_ROWS 4

SIMD_INLINE vint products(vint codes, const struct gemm_block *block, int word) {
    return _mm256_maddubs_epi16(codes, _mm256_set1_epi32(block->codes[word]));
}

SIMD_INLINE vint widen_scaled(vint sums, int16_t factor) {
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(factor));
}

/* `count` words of at most 6 bits, no more than fit into 16-bit sums. */
SIMD_INLINE void dot_few(const struct quant_form *form, const uint8_t *codes, int first, int count,
                         const struct gemm_block *blocks, int num_rows, vint *sums) {
    vint sums16[MAX_DOT_ROWS];
    UNROLL
    for (int r = 0; r < num_rows; r++)
        sums16[r] = vint_zero();
    UNROLL
    for (int i = first; i < first + count; i++) {
        vint word = word_codes(form, codes, i);
        UNROLL
        for (int r = 0; r < num_rows; r++)
            sums16[r] = _mm256_add_epi16(sums16[r], products(word, &blocks[r], i));
    }
    UNROLL
    for (int r = 0; r < num_rows; r++)
        sums[r] = _mm256_add_epi32(sums[r], widen_scaled(sums16[r], 1));
}

SIMD_INLINE void dot_bytes(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, vint *sums) {
    const vint low_mask = _mm256_set1_epi8(15);
    vint lows[MAX_DOT_ROWS], highs[MAX_DOT_ROWS];
    UNROLL
    for (int r = 0; r < num_rows; r++)
        lows[r] = highs[r] = vint_zero();
    UNROLL
    for (int i = first; i < first + count; i++) {
        vint word = word_codes(form, codes, i);
        vint low = _mm256_and_si256(word, low_mask);
        vint high = _mm256_and_si256(_mm256_srli_epi16(word, 4), low_mask);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            lows[r] = _mm256_add_epi16(lows[r], products(low, &blocks[r], i));
            highs[r] = _mm256_add_epi16(highs[r], products(high, &blocks[r], i));
        }
    }
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        vint sum = _mm256_add_epi32(widen_scaled(lows[r], 1), widen_scaled(highs[r], 16));
        sums[r] = _mm256_add_epi32(sums[r], sum);
    }
}

SIMD_INLINE void dot_words(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, vint *sums) {
    if (form->code_bits == 8 || form->has_levels) {
        dot_bytes(form, codes, first, count, blocks, num_rows, sums);
        return;
    }
    const int most = 128 >> form->code_bits, step = most < count ? most : count;
    UNROLL
    for (int i = 0; i < count; i += step)
        dot_few(form, codes, first + i, step, blocks, num_rows, sums);
}

SIMD_INLINE uint32_t reduce_max(vint v) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

SIMD_INLINE int32_t reduce_add(vint v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1))));
}

static void quantise_row(const float *x, int32_t depth, struct gemm_block *out, int32_t stride) {
    const vint no_sign = _mm256_set1_epi32(0x7fffffff);
    for (int32_t k = 0; k < depth; k += PANEL_BLOCK, out += stride) {
        vfloat v[4];
        vint amax = vint_zero();
        UNROLL
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + k + 8 * i);
            amax = _mm256_max_epu32(amax, _mm256_and_si256(_mm256_castps_si256(v[i]), no_sign));
        }
        struct gemm_scale scale = gemm_scale_of(reduce_max(amax));
        vint codes[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(scale.inverse)));
        /* Packing works within 128-bit halves; the permutation puts groups of four in order. */
        vint packed = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                         _mm256_packs_epi32(codes[2], codes[3]));
        packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((void *)out->codes, packed);
        gemm_block_finish(out, scale.scale, reduce_add(_mm256_add_epi32(codes[0], codes[1])),
                          reduce_add(_mm256_add_epi32(codes[2], codes[3])));
    }
}

#define TILE_ROWS                                                                                  \
    { 4, 2, 1 }
#define FOR_QUANTISED_TILES(X, type) X(type, 4, 1) X(type, 2, 1) X(type, 1, 2)
#define FOR_PLAIN_TILES(X, type) X(type, 4, 2) X(type, 2, 4) X(type, 1, 8)
#include "kernels/cpu/cpu_gemm_template.h"

const struct cpu_gemm_kernels cpu_gemm_kernels_avx2 = GEMM_KERNELS;
