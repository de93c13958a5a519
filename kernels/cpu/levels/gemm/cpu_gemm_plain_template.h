/* The product with F32, F16, BF16 and E4M3 weights, widened to float and multiplied with the
 * activations as they are. Included once by cpu_gemm_LEVEL.c, after it has defined FOR_PLAIN_TILES
 * (cpu_gemm_tile_template.h). */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_PLAIN_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_PLAIN_TEMPLATE_H

#include "kernels/cpu/levels/gemm/cpu_gemm_tile_template.h"
#include "kernels/quant_form.h"

_Static_assert(FLOAT_RUN == 4, "E4M3 weights are read in words of 4");

static void pack_float_row(const float *x, int32_t depth, void *tile, int32_t row,
                           int32_t tile_rows) {
    const int32_t whole = depth / FLOAT_RUN * FLOAT_RUN;
    float *out = (float *)tile + (ptrdiff_t)row * FLOAT_RUN;
    for (int32_t k = 0; k < whole; k += FLOAT_RUN, out += (ptrdiff_t)tile_rows * FLOAT_RUN)
        memcpy(out, x + k, FLOAT_RUN * sizeof(*out));
    for (int32_t k = whole; k < depth; k++)
        *out++ = x[k];
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

/* Of the tile that begins at the row. */
SIMD_INLINE const float *float_row(const struct gemm_job *job, int32_t row) {
    return (const float *)((const char *)job->activations +
                           (size_t)row * cpu_gemm_float_row_bytes((size_t)job->depth));
}

/* One k. */
SIMD_INLINE void plain_step(enum dtype dtype, const uint8_t *const *weights, size_t k, size_t ahead,
                            const float *x, rf *sums, int num_rows, int num_strips) {
    const size_t item_bytes = dtype == DTYPE_F32 ? 4 : 2;
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        const uint8_t *at = weights[s] + k * PANEL_COLUMNS * item_bytes;
        if (s % STRIPS_PER_PANEL == 0)
            prefetch(at + ahead, item_bytes);
        rf w = load_plain(dtype, at);
        UNROLL
        for (int r = 0; r < num_rows; r++)
            sums[r * num_strips + s] =
                rf_fma(w, rf_set1(x[r * FLOAT_RUN]), sums[r * num_strips + s]);
    }
}

SIMD_INLINE void plain_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip,
                            int32_t row, int num_rows, int num_strips) {
    const size_t item_bytes = dtype == DTYPE_F32 ? 4 : 2;
    size_t depth = (size_t)job->depth;
    const float *x = float_row(job, row);
    size_t ahead = bytes_ahead(job, strip, num_strips);
    const uint8_t *weights[MAX_STRIPS];
    rf sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++)
        weights[s] = panel_of(job, strip + s) + (size_t)first_lane(strip + s) * item_bytes;
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = rf_set1(0);
    size_t k = 0;
    for (; k + FLOAT_RUN <= depth; k += FLOAT_RUN, x += num_rows * FLOAT_RUN) {
        UNROLL
        for (int t = 0; t < FLOAT_RUN; t++)
            plain_step(dtype, weights, k + (size_t)t, ahead, x + t, sums, num_rows, num_strips);
    }
    for (; k < depth; k++, x++)
        plain_step(dtype, weights, k, ahead, x, sums, num_rows, num_strips);
    store_tile(job, strip, row, sums, num_rows, num_strips);
}

/* Byte t of each word, less the factor: its exponent and mantissa moved to those of a float, and
 * the difference of the exponents' biases made up for, which also normalises. */
SIMD_INLINE rf e4m3_of_words(ri words, int t) {
    ri top = t < 3 ? ri_shl(words, 24 - 8 * t) : words;
    ri sign = ri_and(top, ri_set1(INT32_MIN)), rest = ri_and(ri_shr(top, 4), ri_set1(0x07f00000));
    return rf_mul(rf_from_bits(ri_or(sign, rest)), rf_set1(0x1p120f));
}

/* Weights are rounded once, by their factor, as dtype_to_f32 does. */
SIMD_INLINE void e4m3_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip, int32_t row,
                           int num_rows, int num_strips) {
    const int block_words = quant_forms[dtype].block_elements / 4;
    const size_t word_bytes = 4 * PANEL_COLUMNS;
    size_t num_blocks = (size_t)job->depth / (size_t)quant_forms[dtype].block_elements;
    const float *x = float_row(job, row);
    size_t ahead = bytes_ahead(job, strip, num_strips);
    const uint8_t *codes[MAX_STRIPS], *factors[MAX_STRIPS];
    rf sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        const uint8_t *panel = panel_of(job, strip + s);
        codes[s] = panel + (size_t)first_lane(strip + s) * 4;
        factors[s] = codes[s] + (size_t)job->depth / 4 * word_bytes;
    }
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = rf_set1(0);
    for (size_t b = 0; b < num_blocks * (size_t)block_words; b++) {
        UNROLL
        for (int t = 0; t < 4; t++) {
            UNROLL
            for (int s = 0; s < num_strips; s++) {
                const uint8_t *word = codes[s] + b * word_bytes;
                if (t == 0)
                    prefetch(word + ahead, RF_LANES * 4);
                rf d = rf_load(factors[s] + b / (size_t)block_words * word_bytes);
                rf w = rf_mul(e4m3_of_words(ri_load(word), t), d);
                UNROLL
                for (int r = 0; r < num_rows; r++)
                    sums[r * num_strips + s] =
                        rf_fma(w, rf_set1(x[r * FLOAT_RUN + t]), sums[r * num_strips + s]);
            }
        }
        x += num_rows * FLOAT_RUN;
    }
    store_tile(job, strip, row, sums, num_rows, num_strips);
}

#define DEFINE_PLAIN_TILES(type, rows, strips) DEFINE_TILES_##strips(plain, type, rows)
#define DEFINE_E4M3_TILES(type, rows, strips) DEFINE_TILES_##strips(e4m3, type, rows)
#define DEFINE_PLAIN_FORMAT(type)                                                                  \
    DEFINE_FORMAT(type, DEFINE_PLAIN_TILES, FOR_PLAIN_TILES, cpu_panel_elements, float_rows, NULL)

DEFINE_PLAIN_FORMAT(F32)
DEFINE_PLAIN_FORMAT(F16)
DEFINE_PLAIN_FORMAT(BF16)
DEFINE_FORMAT(E4M3_128, DEFINE_E4M3_TILES, FOR_PLAIN_TILES, cpu_panel_blocks, float_rows, NULL)

static void add_plain_formats(struct cpu_kernels *kernels) {
    kernels->formats[DTYPE_F32] = &F32_format;
    kernels->formats[DTYPE_F16] = &F16_format;
    kernels->formats[DTYPE_BF16] = &BF16_format;
    kernels->formats[DTYPE_E4M3_128] = &E4M3_128_format;
}

#endif
