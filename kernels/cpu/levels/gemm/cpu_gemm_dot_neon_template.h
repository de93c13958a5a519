/* Quantised weights by 128-bit dot products of bytes, written once for the levels that have them:
 * strips of four columns, a quarter of a panel. Included by cpu_gemm_LEVEL.c after it has defined
 *
 * - signed_codes(form): whether its dot product takes codes less 128
 * - dot_lane(sum, codes, x, lane): adds to each lane of sum the product of its four codes with the
 *   four activation codes of that lane of x, a constant from 0 to 3 */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_DOT_NEON_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_DOT_NEON_TEMPLATE_H

/* Four words at a time: their activation codes are one register. */
SIMD_INLINE void dot_words(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, ri *sums) {
    const ri top_bits = ri_set1((int32_t)0x80808080);
    if (signed_codes(form)) {
        /* 128 times the sum of the activation codes of 32 elements, or of half of them. */
        const bool is_half = count < PANEL_BLOCK / 4;
        UNROLL
        for (int r = 0; r < num_rows; r++)
            sums[r] = ri_add(sums[r], ri_set1(is_half ? -4 * blocks[r].half_starts_32[first / 4]
                                                      : -blocks[r].start_128));
    }
    UNROLL
    for (int i = first; i < first + count; i += 4) {
        ri words[4];
        UNROLL
        for (int j = 0; j < 4; j++) {
            words[j] = word_codes(form, codes, i + j);
            if (signed_codes(form))
                words[j] = ri_xor(words[j], top_bits);
        }
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            int8x16_t x = vld1q_s8((const int8_t *)&blocks[r].codes[i]);
            sums[r] = dot_lane(sums[r], words[0], x, 0);
            sums[r] = dot_lane(sums[r], words[1], x, 1);
            sums[r] = dot_lane(sums[r], words[2], x, 2);
            sums[r] = dot_lane(sums[r], words[3], x, 3);
        }
    }
}

#define FOR_QUANTISED_TILES(X, type)                                                               \
    X(type, 8, 1)                                                                                  \
    X(type, 7, 1)                                                                                  \
    X(type, 6, 1)                                                                                  \
    X(type, 5, 1)                                                                                  \
    X(type, 4, 1)                                                                                  \
    X(type, 3, 1)                                                                                  \
    X(type, 2, 2)                                                                                  \
    X(type, 1, 4)
#define PACK_BLOCKS cpu_gemm_pack_blocks_dotprod
#include "kernels/cpu/levels/gemm/cpu_gemm_quantised_template.h"

#endif
