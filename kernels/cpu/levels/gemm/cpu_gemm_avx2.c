/* Strips of 8 columns: half a panel. maddubs adds two products of an unsigned and a signed byte in
 * 16 bits with saturation. With codes of n <= 6 bits, 128 >> n words of a 32-block are added up in
 * 16 bits before they are widened: 2 * (128 >> n) products of at most (2^n - 1) * 128 are less than
 * 32768. (An activation of infinity becomes code -128.) Bytes are split into two nibbles. */
#include "kernels/cpu/levels/gemm/cpu_gemm_codes_template.h"
#include "kernels/cpu/levels/cpu_levels.h"

#define MAX_DOT_ROWS 6

/* Adds in this order. Left to itself, gcc makes trees of long sums, and runs out of registers. */
SIMD_INLINE ri add_products(ri sums, ri products) {
    sums = _mm256_add_epi16(sums, products);
    __asm__("" : "+x"(sums));
    return sums;
}

SIMD_INLINE ri products(ri codes, const struct gemm_block *block, int word) {
    return _mm256_maddubs_epi16(codes, _mm256_set1_epi32(block->codes[word]));
}

SIMD_INLINE ri widen_scaled(ri sums, int16_t factor) {
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(factor));
}

/* `count` words of at most 6 bits, no more than fit into 16-bit sums. */
SIMD_INLINE void dot_few(const struct quant_form *form, const uint8_t *codes, int first, int count,
                         const struct gemm_block *blocks, int num_rows, ri *sums) {
    ri sums16[MAX_DOT_ROWS];
    UNROLL
    for (int r = 0; r < num_rows; r++)
        sums16[r] = ri_set1(0);
    UNROLL
    for (int i = first; i < first + count; i++) {
        ri word = word_codes(form, codes, i);
        UNROLL
        for (int r = 0; r < num_rows; r++)
            sums16[r] = add_products(sums16[r], products(word, &blocks[r], i));
    }
    UNROLL
    for (int r = 0; r < num_rows; r++)
        sums[r] = _mm256_add_epi32(sums[r], widen_scaled(sums16[r], 1));
}

SIMD_INLINE void dot_bytes(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, ri *sums) {
    const ri low_mask = _mm256_set1_epi8(15);
    ri lows[MAX_DOT_ROWS], highs[MAX_DOT_ROWS];
    UNROLL
    for (int r = 0; r < num_rows; r++)
        lows[r] = highs[r] = ri_set1(0);
    UNROLL
    for (int i = first; i < first + count; i++) {
        ri word = word_codes(form, codes, i);
        ri low = _mm256_and_si256(word, low_mask);
        ri high = _mm256_and_si256(_mm256_srli_epi16(word, 4), low_mask);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            lows[r] = add_products(lows[r], products(low, &blocks[r], i));
            highs[r] = add_products(highs[r], products(high, &blocks[r], i));
        }
    }
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        ri sum = _mm256_add_epi32(widen_scaled(lows[r], 1), widen_scaled(highs[r], 16));
        sums[r] = _mm256_add_epi32(sums[r], sum);
    }
}

SIMD_INLINE void dot_words(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, ri *sums) {
    if (form->code_bits == 8 || form->levels != NULL) {
        dot_bytes(form, codes, first, count, blocks, num_rows, sums);
        return;
    }
    const int most = 128 >> form->code_bits, step = most < count ? most : count;
    UNROLL
    for (int i = 0; i < count; i += step)
        dot_few(form, codes, first + i, step, blocks, num_rows, sums);
}

SIMD_INLINE uint32_t reduce_max(ri v) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1)));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

SIMD_INLINE int32_t reduce_add(ri v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1))));
}

void cpu_gemm_pack_blocks_avx2(const float *x, int32_t depth, void *tile, int32_t row,
                               int32_t tile_rows) {
    struct gemm_block *out = (struct gemm_block *)tile + row;
    const ri no_sign = _mm256_set1_epi32(0x7fffffff);
    for (int32_t k = 0; k < depth; k += PANEL_BLOCK, out += tile_rows) {
        rf v[4];
        ri amax = ri_set1(0);
        UNROLL
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + k + 8 * i);
            amax = _mm256_max_epu32(amax, _mm256_and_si256(_mm256_castps_si256(v[i]), no_sign));
        }
        struct gemm_scale scale = gemm_scale_of(reduce_max(amax));
        ri codes[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(scale.inverse)));
        /* Packing works within 128-bit halves; the permutation puts groups of four in order. */
        ri packed = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                       _mm256_packs_epi32(codes[2], codes[3]));
        packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((void *)out->codes, packed);
        gemm_block_finish(out, scale.scale, reduce_add(_mm256_add_epi32(codes[0], codes[1])),
                          reduce_add(_mm256_add_epi32(codes[2], codes[3])));
    }
}

#define FOR_QUANTISED_TILES(X, type)                                                               \
    X(type, 6, 1) X(type, 5, 1) X(type, 4, 1) X(type, 3, 1) X(type, 2, 1) X(type, 1, 2)
#define FOR_PLAIN_TILES(X, type) X(type, 4, 2) X(type, 3, 4) X(type, 2, 4) X(type, 1, 8)
#define PACK_BLOCKS cpu_gemm_pack_blocks_avx2
#include "kernels/cpu/levels/gemm/cpu_gemm_plain_template.h"
#include "kernels/cpu/levels/gemm/cpu_gemm_quantised_template.h"

void cpu_gemm_add_avx2(struct cpu_kernels *kernels) {
    add_plain_formats(kernels);
    add_quantised_formats(kernels);
}
