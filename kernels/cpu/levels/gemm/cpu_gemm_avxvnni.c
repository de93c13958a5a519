/* Strips of 8 columns: half a panel. vpdpbusd as processors without AVX-512 have it; all else is
 * that of AVX2. */
#include "kernels/cpu/levels/gemm/cpu_gemm_codes_template.h"
#include "kernels/cpu/levels/cpu_levels.h"

SIMD_INLINE void dot_words(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, ri *sums) {
    UNROLL
    for (int i = first; i < first + count; i++) {
        ri word = word_codes(form, codes, i);
        UNROLL
        for (int r = 0; r < num_rows; r++)
            sums[r] = _mm256_dpbusd_avx_epi32(sums[r], word, ri_set1(blocks[r].codes[i]));
    }
}

#define FOR_QUANTISED_TILES(X, type)                                                               \
    X(type, 6, 1) X(type, 5, 1) X(type, 4, 1) X(type, 3, 1) X(type, 2, 1) X(type, 1, 2)
#define PACK_BLOCKS cpu_gemm_pack_blocks_avx2
#include "kernels/cpu/levels/gemm/cpu_gemm_quantised_template.h"

void cpu_gemm_add_avxvnni(struct cpu_kernels *kernels) {
    add_quantised_formats(kernels);
}
