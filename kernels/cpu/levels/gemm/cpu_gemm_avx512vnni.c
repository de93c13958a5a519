#include "kernels/cpu/levels/gemm/cpu_gemm_codes_template.h"
#include "kernels/cpu/levels/cpu_levels.h"

SIMD_INLINE void dot_words(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, ri *sums) {
    UNROLL
    for (int i = first; i < first + count; i++) {
        ri word = word_codes(form, codes, i);
        UNROLL
        for (int r = 0; r < num_rows; r++)
            sums[r] = _mm512_dpbusd_epi32(sums[r], word, _mm512_set1_epi32(blocks[r].codes[i]));
    }
}

void cpu_gemm_pack_blocks_avx512vnni(const float *x, int32_t depth, void *tile, int32_t row,
                                     int32_t tile_rows) {
    struct gemm_block *out = (struct gemm_block *)tile + row;
    for (int32_t k = 0; k < depth; k += PANEL_BLOCK, out += tile_rows) {
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

#define FOR_QUANTISED_TILES(X, type)                                                               \
    X(type, 12, 1)                                                                                 \
    X(type, 11, 1)                                                                                 \
    X(type, 10, 1)                                                                                 \
    X(type, 9, 1)                                                                                  \
    X(type, 8, 1)                                                                                  \
    X(type, 7, 1)                                                                                  \
    X(type, 6, 1)                                                                                  \
    X(type, 5, 1)                                                                                  \
    X(type, 4, 1)                                                                                  \
    X(type, 3, 1)                                                                                  \
    X(type, 2, 1)                                                                                  \
    X(type, 1, 1)
#define FOR_PLAIN_TILES FOR_FLOAT_TILES_512
#define PACK_BLOCKS cpu_gemm_pack_blocks_avx512vnni
#include "kernels/cpu/levels/gemm/cpu_gemm_plain_template.h"
#include "kernels/cpu/levels/gemm/cpu_gemm_quantised_template.h"

void cpu_gemm_add_avx512vnni(struct cpu_kernels *kernels) {
    add_plain_formats(kernels);
    add_quantised_formats(kernels);
}
