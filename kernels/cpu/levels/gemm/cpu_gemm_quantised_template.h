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
    X(I8_128)                                                                                      \
    X(IQ4_XS)                                                                                      \
    X(TQ2_0)

FOR_QUANTISED_TYPES(DEFINE_QUANTISED_FORMAT)

/* --- Types that are decoded first (cpu_panel_file_blocks) ---
 * A block of one panel is decoded once for all rows, whose sums wait in memory for the next. */

static const struct quant_form decoded_16 = {DTYPE_MAX_BLOCK_ELEMENTS, 16, 8, 128, .levels = NULL};
static const struct quant_form decoded_32 = {DTYPE_MAX_BLOCK_ELEMENTS, 32, 8, 128, .levels = NULL};

struct decoded_tile {
    int32_t num_rows;
    void (*add)(const struct cpu_panel_decoded *weights, const struct gemm_block *blocks,
                float (*sums)[PANEL_COLUMNS]);
};

SIMD_INLINE void add_decoded(const struct quant_form *form, const struct cpu_panel_decoded *weights,
                             const struct gemm_block *blocks, float (*all_sums)[PANEL_COLUMNS],
                             int num_rows) {
    const int num_groups = PANEL_BLOCK / form->group_elements;
    for (int32_t lane = 0; lane < PANEL_COLUMNS; lane += RF_LANES) {
        const uint8_t *codes = weights->codes + 4 * lane;
        rf sums[MAX_ROWS];
        UNROLL
        for (int r = 0; r < num_rows; r++)
            sums[r] = rf_load(&all_sums[r][lane]);
        for (int i = 0; i < DTYPE_MAX_BLOCK_ELEMENTS / PANEL_BLOCK; i++) {
            UNROLL
            for (int h = 0; h < num_groups; h++) {
                struct factors f = {rf_load(&weights->factors[i * num_groups + h][lane]),
                                    rf_set1(0)};
                add_group(form, codes, f, blocks + i * num_rows, h, num_rows, sums, 1);
            }
            codes += cpu_panel_code_bytes(form);
        }
        UNROLL
        for (int r = 0; r < num_rows; r++)
            rf_store_part(&all_sums[r][lane], sums[r], RF_LANES);
    }
}

static void store_decoded(const struct gemm_job *job, int32_t panel,
                          float (*all_sums)[PANEL_COLUMNS]) {
    for (int32_t row = 0; row < job->num_rows; row++)
        for (int32_t s = 0; s < STRIPS_PER_PANEL; s++) {
            rf sums = rf_load(&all_sums[row][s * RF_LANES]);
            store_tile(job, panel * STRIPS_PER_PANEL + s, row, &sums, 1, 1);
        }
}

static void multiply_decoded(const struct gemm_job *job, enum dtype dtype,
                             const struct decoded_tile *tiles) {
    const int blocks_per_file_block = DTYPE_MAX_BLOCK_ELEMENTS / PANEL_BLOCK;
    const struct gemm_block *activations = job->activations;
    int32_t num_blocks = job->depth / PANEL_BLOCK, num_rows;
    for (int32_t panel = 0; panel < job->num_panels; panel++) {
        const uint8_t *src = job->panels + (size_t)panel * job->panel_bytes;
        float sums[GEMM_CHUNK_ROWS][PANEL_COLUMNS];
        memset(sums, 0, (size_t)job->num_rows * sizeof(sums[0]));
        for (int32_t b = 0; b < num_blocks; b += blocks_per_file_block) {
            struct cpu_panel_decoded weights;
            cpu_panel_decode(dtype, src, &weights);
            src += PANEL_COLUMNS * dtype_block_bytes(dtype);
            for (int32_t row = 0; row < job->num_rows; row += num_rows) {
                const struct decoded_tile *tile = tiles;
                num_rows = gemm_next_tile(quantised_rows.tile_rows, job->num_rows - row);
                while (tile->num_rows > num_rows)
                    tile++;
                tile->add(&weights, activations + (size_t)row * num_blocks + b * num_rows,
                          sums + row);
            }
        }
        store_decoded(job, panel, sums);
    }
}

#define DEFINE_DECODED_TILE(group, rows, strips)                                                   \
    static void add_decoded_##group##_##rows(const struct cpu_panel_decoded *weights,              \
                                             const struct gemm_block *blocks,                      \
                                             float(*sums)[PANEL_COLUMNS]) {                        \
        add_decoded(&decoded_##group, weights, blocks, sums, rows);                                \
    }
#define DECODED_TILE_ENTRY(group, rows, strips) {rows, add_decoded_##group##_##rows},
#define DEFINE_DECODED_TILES(group)                                                                \
    FOR_QUANTISED_TILES(DEFINE_DECODED_TILE, group)                                                \
    static const struct decoded_tile decoded_##group##_tiles[] = {                                 \
        FOR_QUANTISED_TILES(DECODED_TILE_ENTRY, group)};
#define DEFINE_DECODED_FORMAT(type, group)                                                         \
    static void multiply_##type(const struct gemm_job *job) {                                      \
        multiply_decoded(job, DTYPE_##type, decoded_##group##_tiles);                              \
    }                                                                                              \
    static const struct cpu_gemm_format type##_format = {                                          \
        .panel = &cpu_panel_file_blocks, .rows = &quantised_rows, .multiply = multiply_##type};
#define ADD_DECODED_FORMAT(type, group) ADD_QUANTISED_FORMAT(type)

/* With the elements of their groups. */
#define FOR_DECODED_TYPES(X)                                                                       \
    X(TQ1_0, 32)                                                                                   \
    X(IQ1_S, 32)                                                                                   \
    X(IQ1_M, 16) X(IQ2_XXS, 32) X(IQ2_XS, 16) X(IQ2_S, 16) X(IQ3_XXS, 32) X(IQ3_S, 32)

DEFINE_DECODED_TILES(16)
DEFINE_DECODED_TILES(32)
FOR_DECODED_TYPES(DEFINE_DECODED_FORMAT)

static void add_quantised_formats(struct cpu_kernels *kernels) {
    FOR_QUANTISED_TYPES(ADD_QUANTISED_FORMAT)
    FOR_DECODED_TYPES(ADD_DECODED_FORMAT)
}

#endif
