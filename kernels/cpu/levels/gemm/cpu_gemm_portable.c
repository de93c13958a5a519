/* Plain C, one panel of 16 columns at a time. */
#include "kernels/cpu/levels/gemm/cpu_gemm_codes_template.h"
#include "kernels/cpu/levels/cpu_levels.h"

#include <math.h>

SIMD_INLINE void dot_words(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, ri *sums) {
    for (int w = first; w < first + count; w++) {
        ri word = word_codes(form, codes, w);
        uint8_t bytes[sizeof(word)];
        memcpy(bytes, &word, sizeof(bytes));
        for (int r = 0; r < num_rows; r++) {
            int8_t x[4];
            memcpy(x, &blocks[r].codes[w], sizeof(x));
            for (int i = 0; i < RF_LANES; i++)
                for (int t = 0; t < 4; t++)
                    sums[r][i] += bytes[4 * i + t] * x[t];
        }
    }
}

/* Saturates like the vector conversions; NaN gives the lowest code as they do. */
static int8_t code_of(float scaled) {
    if (!(scaled >= -128.0f))
        return -128;
    return (int8_t)(scaled < 127.0f ? lrintf(scaled) : 127);
}

static uint32_t magnitude_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffff;
}

void cpu_gemm_pack_blocks_portable(const float *x, int32_t depth, void *tile, int32_t row,
                                   int32_t tile_rows) {
    struct gemm_block *out = (struct gemm_block *)tile + row;
    for (int32_t k = 0; k < depth; k += PANEL_BLOCK, out += tile_rows) {
        uint32_t amax = 0;
        for (int i = 0; i < PANEL_BLOCK; i++) {
            uint32_t magnitude = magnitude_bits(x[k + i]);
            amax = magnitude > amax ? magnitude : amax;
        }
        struct gemm_scale scale = gemm_scale_of(amax);
        int8_t codes[PANEL_BLOCK];
        int32_t sums[2] = {0, 0};
        for (int i = 0; i < PANEL_BLOCK; i++) {
            codes[i] = code_of(x[k + i] * scale.inverse);
            sums[i / 16] += codes[i];
        }
        memcpy(out->codes, codes, sizeof(codes));
        gemm_block_finish(out, scale.scale, sums[0], sums[1]);
    }
}

#define FOR_QUANTISED_TILES(X, type) X(type, 1, 1)
#define FOR_PLAIN_TILES(X, type) X(type, 1, 4)
#define PACK_BLOCKS cpu_gemm_pack_blocks_portable
#include "kernels/cpu/levels/gemm/cpu_gemm_plain_template.h"
#include "kernels/cpu/levels/gemm/cpu_gemm_quantised_template.h"

void cpu_gemm_add_portable(struct cpu_kernels *kernels) {
    add_plain_formats(kernels);
    add_quantised_formats(kernels);
}
