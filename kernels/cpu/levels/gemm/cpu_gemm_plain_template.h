/* The product with F32, F16 and BF16 weights, widened to float and multiplied with the activations
 * as they are. Included once by cpu_gemm_LEVEL.c, after it has defined FOR_PLAIN_TILES
 * (cpu_gemm_tile_template.h). */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_PLAIN_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_PLAIN_TEMPLATE_H

#include "kernels/cpu/levels/gemm/cpu_gemm_tile_template.h"

static void pack_float_row(const float *x, int32_t depth, void *tile, int32_t row,
                           int32_t tile_rows) {
    float *out = (float *)tile + row;
    for (int32_t k = 0; k < depth; k++, out += tile_rows)
        *out = x[k];
}

static const struct cpu_row_packing float_rows = {
    .tile_rows = {FOR_PLAIN_TILES(TILE_NUM_ROWS, )},
    .row_bytes = cpu_gemm_float_row_bytes,
    .pack = pack_float_row,
};

SIMD_INLINE rf load_plain(enum dtype dtype, const uint8_t *p) {
    if (dtype == DTYPE_F16)
        return rf_load_f16(p);
    return dtype == DTYPE_BF16 ? rf_load_bf16(p) : rf_load(p);
}

SIMD_INLINE void plain_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip,
                            int32_t row, int num_rows, int num_strips) {
    const size_t item_bytes = dtype == DTYPE_F32 ? 4 : 2;
    size_t depth = (size_t)job->depth;
    const float *x = (const float *)job->activations + (size_t)row * depth;
    size_t ahead = bytes_ahead(job, strip, num_strips);
    const uint8_t *weights[MAX_STRIPS];
    rf sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++)
        weights[s] = panel_of(job, strip + s) + (size_t)first_lane(strip + s) * item_bytes;
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = rf_set1(0);
    for (size_t k = 0; k < depth; k++) {
        UNROLL
        for (int s = 0; s < num_strips; s++) {
            prefetch(weights[s] + k * PANEL_COLUMNS * item_bytes + ahead, item_bytes);
            rf w = load_plain(dtype, weights[s] + k * PANEL_COLUMNS * item_bytes);
            UNROLL
            for (int r = 0; r < num_rows; r++)
                sums[r * num_strips + s] = rf_fma(w, rf_set1(x[r]), sums[r * num_strips + s]);
        }
        x += num_rows;
    }
    store_tile(job, strip, row, sums, num_rows, num_strips);
}

#define DEFINE_PLAIN_TILES(type, rows, strips) DEFINE_TILES_##strips(plain, type, rows)
#define DEFINE_PLAIN_FORMAT(type)                                                                  \
    DEFINE_FORMAT(type, DEFINE_PLAIN_TILES, FOR_PLAIN_TILES, cpu_panel_elements, float_rows, NULL)

DEFINE_PLAIN_FORMAT(F32)
DEFINE_PLAIN_FORMAT(F16)
DEFINE_PLAIN_FORMAT(BF16)

static void add_plain_formats(struct cpu_kernels *kernels) {
    kernels->formats[DTYPE_F32] = &F32_format;
    kernels->formats[DTYPE_F16] = &F16_format;
    kernels->formats[DTYPE_BF16] = &BF16_format;
}

#endif
