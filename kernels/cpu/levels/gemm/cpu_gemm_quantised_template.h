/* The product with quantised weights: codes times activation codes in integers, group by group.
 * Included once by cpu_gemm_LEVEL.c, after it has defined
 *
 * - dot_words(form, codes, first, count, blocks, num_rows, sums): adds to sums[r], for every row r,
 *   the dot product of words first..first+count-1 of one 32-block; codes points to the strip's part
 *   of the block (cpu_gemm_codes_template.h)
 * - PACK_BLOCKS: the name of the level's function that quantises a row (cpu_gemm_format.h)
 * - FOR_QUANTISED_TILES: see cpu_gemm_tile_template.h */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_QUANTISED_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_QUANTISED_TEMPLATE_H

#include "kernels/cpu/levels/gemm/cpu_gemm_group_template.h"
#include "kernels/cpu/levels/gemm/cpu_gemm_tile_template.h"

static const struct cpu_row_packing quantised_rows = {
    .tile_rows = {FOR_QUANTISED_TILES(TILE_NUM_ROWS, )},
    .row_bytes = cpu_gemm_block_row_bytes,
    .pack = PACK_BLOCKS,
};

/* Group h of a 32-block of one strip into sums[0, step, 2 step ..]. */
SIMD_INLINE void add_group(const struct quant_form *form, const uint8_t *codes, struct factors f,
                           const struct gemm_block *blocks, int h, int num_rows, rf *sums,
                           int step) {
    const int num_words = form->group_elements / 4;
    ri dots[MAX_ROWS];
    UNROLL
    for (int r = 0; r < num_rows; r++)
        dots[r] = start_value(form, &blocks[r], h);
    dot_words(form, codes, h * num_words, num_words, blocks, num_rows, dots);
    add_dots(form, f, blocks, h, num_rows, dots, sums, step);
}

SIMD_INLINE void add_block(const struct quant_form *form, const uint8_t *codes, struct factors f,
                           const uint8_t *scales, const struct gemm_block *blocks, int num_rows,
                           rf *sums, int step) {
    const int num_groups = PANEL_BLOCK / form->group_elements;
    UNROLL
    for (int h = 0; h < num_groups; h++) {
        struct factors group =
            group_factors(form, f, scales + (size_t)h * cpu_panel_group_bytes(form));
        add_group(form, codes, group, blocks, h, num_rows, sums, step);
    }
}

SIMD_INLINE void quantised_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip,
                                int32_t row, int num_rows, int num_strips) {
    const struct quant_form *form = &quant_forms[dtype];
    const size_t code_bytes = cpu_panel_code_bytes(form);
    const size_t scale_bytes =
        (size_t)(PANEL_BLOCK / form->group_elements) * cpu_panel_group_bytes(form);
    const size_t factor_bytes = cpu_panel_factor_bytes(form);
    const int blocks_per_record = form->block_elements / PANEL_BLOCK;
    size_t num_blocks = (size_t)job->depth / PANEL_BLOCK;
    const struct gemm_block *blocks =
        (const struct gemm_block *)job->activations + (size_t)row * num_blocks;
    size_t ahead = bytes_ahead(job, strip, num_strips);
    const uint8_t *codes[MAX_STRIPS], *record[MAX_STRIPS];
    rf sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        const uint8_t *panel = panel_of(job, strip + s);
        codes[s] = panel + first_lane(strip + s) * 4;
        record[s] = panel + num_blocks * code_bytes;
    }
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = rf_set1(0);
    for (size_t b = 0; b < num_blocks; b += blocks_per_record) {
        struct factors f[MAX_STRIPS];
        UNROLL
        for (int s = 0; s < num_strips; s++) {
            prefetch(record[s] + ahead, factor_bytes);
            f[s] = block_factors(form, record[s], first_lane(strip + s));
            record[s] += factor_bytes;
        }
        for (int i = 0; i < blocks_per_record; i++) {
            UNROLL
            for (int s = 0; s < num_strips; s++) {
                prefetch(codes[s] + ahead, code_bytes);
                prefetch(record[s] + ahead, scale_bytes);
                add_block(form, codes[s], f[s], record[s] + first_lane(strip + s), blocks, num_rows,
                          sums + s, num_strips);
                codes[s] += code_bytes;
                record[s] += scale_bytes;
            }
            blocks += num_rows;
        }
    }
    store_tile(job, strip, row, sums, num_rows, num_strips);
}

#define DEFINE_QUANTISED_TILES(type, rows, strips) DEFINE_TILES_##strips(quantised, type, rows)
#define DEFINE_QUANTISED_FORMAT(type)                                                              \
    DEFINE_FORMAT(type, DEFINE_QUANTISED_TILES, FOR_QUANTISED_TILES, cpu_panel_blocks,             \
                  quantised_rows, NULL)
#define ADD_QUANTISED_FORMAT(type) kernels->formats[DTYPE_##type] = &type##_format;

#define FOR_QUANTISED_TYPES(X)                                                                     \
    X(Q4_0)                                                                                        \
    X(Q4_1)                                                                                        \
    X(Q8_0)                                                                                        \
    X(Q5_0)                                                                                        \
    X(Q5_1)                                                                                        \
    X(IQ4_NL)                                                                                      \
    X(Q2_K)                                                                                        \
    X(Q3_K)                                                                                        \
    X(Q4_K)                                                                                        \
    X(Q5_K)                                                                                        \
    X(Q6_K)                                                                                        \
    X(MXFP4)                                                                                       \
    X(I4_32)                                                                                       \
    X(I4_64)                                                                                       \
    X(I4_128)                                                                                      \
    X(I8_32)                                                                                       \
    X(I8_128)

FOR_QUANTISED_TYPES(DEFINE_QUANTISED_FORMAT)

static void add_quantised_formats(struct cpu_kernels *kernels) {
    FOR_QUANTISED_TYPES(ADD_QUANTISED_FORMAT)
}

#endif
