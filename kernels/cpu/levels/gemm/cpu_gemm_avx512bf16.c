/* BF16 weights in pairs along K, times activations rounded to BF16: vdpbf16ps adds two products to
 * each of 16 sums, the odd element's first, each as a fused multiply-add that rounds to nearest
 * even and takes denormals for zeros (Intel, Software Developer's Manual, volume 2, VDPBF16PS). How
 * fast it is differs from processor to processor: half as fast as float on some, so that the level
 * is on trial. */
#include "kernels/cpu/levels/gemm/cpu_gemm_tile_template.h"

#define BLOCK_PAIRS (PANEL_BLOCK / 2)
#define PAIRS_ROW_BYTES (4 * PANEL_COLUMNS) /* of a panel: a pair for every column */

SIMD_INLINE rf add_pairs(rf sum, ri weights, const uint16_t *x) {
    int32_t pair;
    memcpy(&pair, x, sizeof(pair));
    return _mm512_dpbf16_ps(sum, (__m512bh)weights, (__m512bh)ri_set1(pair));
}

SIMD_INLINE void pairs_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip,
                            int32_t row, int num_rows, int num_strips) {
    size_t depth = cpu_panel_pairs_depth((size_t)job->depth);
    const uint16_t *x = (const uint16_t *)job->activations + (size_t)row * depth;
    size_t ahead = bytes_ahead(job, strip, num_strips);
    const uint8_t *weights[MAX_STRIPS];
    rf sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++)
        weights[s] = panel_of(job, strip + s);
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = rf_set1(0);
    for (size_t k = 0; k < depth; k += PANEL_BLOCK, x += num_rows * PANEL_BLOCK) {
        UNROLL
        for (int i = 0; i < BLOCK_PAIRS; i++) {
            UNROLL
            for (int s = 0; s < num_strips; s++) {
                prefetch(weights[s] + ahead, PAIRS_ROW_BYTES);
                ri w = ri_load(weights[s]);
                weights[s] += PAIRS_ROW_BYTES;
                UNROLL
                for (int r = 0; r < num_rows; r++)
                    sums[r * num_strips + s] =
                        add_pairs(sums[r * num_strips + s], w, x + r * PANEL_BLOCK + 2 * i);
            }
        }
    }
    store_tile(job, strip, row, sums, num_rows, num_strips);
}

#define DEFINE_PAIRS_TILES(type, rows, strips) DEFINE_TILES_##strips(pairs, type, rows)

static const struct cpu_row_packing pair_rows = {
    .tile_rows = {FOR_FLOAT_TILES_512(TILE_NUM_ROWS, )},
    .row_bytes = cpu_gemm_pair_row_bytes,
    .pack = cpu_gemm_pack_pairs,
};

DEFINE_FORMAT(BF16, DEFINE_PAIRS_TILES, FOR_FLOAT_TILES_512, cpu_panel_pairs, pair_rows,
              "vdpbf16ps")

void cpu_gemm_add_avx512bf16(struct cpu_kernels *kernels) {
    kernels->formats[DTYPE_BF16] = &BF16_format;
}
