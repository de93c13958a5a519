/* The matrix product on AMX: tile registers of 16 rows of 64 bytes. Included once, after
 *
 * - tile_configure(p), tile_release(), tile_zero(t), tile_load(t, p, stride), tile_store(t, p,
 *   stride), tile_dot_bytes(c, a, b) (TDPBSUD) and tile_dot_bf16(c, a, b) (TDPBF16PS), where t, a,
 *   b and c are constants: the processor's instructions, or a model of them
 * - PACK_BLOCKS (cpu_gemm_quantised_template.h)
 *
 * A tile A is up to 16 rows of activations, B a block of a panel's columns, C their products. With
 * the layouts of panels and rows (cpu_panel.h, cpu_gemm_format.h), a tile is loaded directly: 64
 * bytes from row to row.
 *
 * Quantised weights whose groups have 32 elements: C is the exact product of one 32-block, with the
 * weights' codes unpacked to bytes before; the rest is the same as on the other levels, bit for
 * bit. Groups of 16 would leave half of B empty and are left to the previous level.
 *
 * BF16 weights: C stays in its register over all of K. TDPBF16PS sums the even and the odd elements
 * of a block of 32 separately, each product by a fused multiply-add, adds the two sums, and adds
 * the result to C; all rounded to nearest even, with denormals treated as zeros (Intel, Software
 * Developer's Manual, volume 2, TDPBF16PS). */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_AMX_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_AMX_TEMPLATE_H

#include "kernels/cpu/levels/gemm/cpu_gemm_codes_template.h"
#include "kernels/cpu/levels/gemm/cpu_gemm_group_template.h"
#include "kernels/cpu/levels/gemm/cpu_gemm_tile_template.h"

#define AMX_ROWS 16
#define AMX_ROW_BYTES 64
#define AMX_PANELS 4 /* of pairs, multiplied together */
#define BLOCK_WORDS (PANEL_BLOCK / 4)
#define BLOCK_PAIRS (PANEL_BLOCK / 2)

/* The structure that LDTILECFG reads. */
struct amx_config {
    uint8_t palette, start_row, zeros[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

_Static_assert(sizeof(struct amx_config) == 64, "as the processor reads it");

typedef void amx_tile_function(const struct gemm_job *job, int32_t panel, int32_t row,
                               int num_rows);

static const struct cpu_row_packing amx_block_rows = {
    .tile_rows = {AMX_ROWS}, .row_bytes = cpu_gemm_block_row_bytes, .pack = PACK_BLOCKS};
static const struct cpu_row_packing amx_pair_rows = {
    .tile_rows = {AMX_ROWS}, .row_bytes = cpu_gemm_pair_row_bytes, .pack = cpu_gemm_pack_pairs};

/* --- Quantised weights: tile 0 is C, 1 A, 2 B --- */

static void configure_bytes(int num_rows) {
    uint8_t n = (uint8_t)num_rows;
    const struct amx_config config = {.palette = 1,
                                      .row_bytes = {AMX_ROW_BYTES, PANEL_BLOCK, AMX_ROW_BYTES},
                                      .rows = {n, n, BLOCK_WORDS}};
    tile_configure(&config);
}

/* The products of the codes of one 32-block: [num_rows][16]. */
SIMD_INLINE void multiply_block(const struct quant_form *form, const uint8_t *codes,
                                const struct gemm_block *blocks, int32_t *dots) {
    _Alignas(AMX_ROW_BYTES) uint8_t words[BLOCK_WORDS * AMX_ROW_BYTES];
    if (form->code_bits != 8) {
        UNROLL
        for (int i = 0; i < BLOCK_WORDS; i++) {
            UNROLL
            for (int s = 0; s < STRIPS_PER_PANEL; s++) {
                ri word = word_codes(form, codes + s * sizeof(ri), i);
                memcpy(words + i * AMX_ROW_BYTES + s * sizeof(ri), &word, sizeof(word));
            }
        }
        codes = words;
    }
    tile_zero(0);
    tile_load(1, blocks, sizeof(blocks[0]));
    tile_load(2, codes, AMX_ROW_BYTES);
    tile_dot_bytes(0, 1, 2);
    tile_store(0, dots, AMX_ROW_BYTES);
}

SIMD_INLINE void add_block_rows(const struct quant_form *form, const int32_t *dots,
                                const uint8_t *record, const uint8_t *scales,
                                const struct gemm_block *blocks, int num_rows, rf *sums) {
    UNROLL
    for (int s = 0; s < STRIPS_PER_PANEL; s++) {
        struct factors f = block_factors(form, record, s * RF_LANES);
        f = group_factors(form, f, scales + s * RF_LANES);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            ri dot = ri_load(dots + r * PANEL_COLUMNS + s * RF_LANES);
            dot = ri_add(start_value(form, &blocks[r], 0), dot);
            add_dots(form, f, &blocks[r], 0, 1, &dot, sums + r * STRIPS_PER_PANEL + s, 1);
        }
    }
}

/* rows_at_once: constant, and num_rows a multiple of it. */
SIMD_INLINE void bytes_tile(enum dtype dtype, const struct gemm_job *job, int32_t panel,
                            int32_t row, int num_rows, int rows_at_once) {
    const struct quant_form *form = &quant_forms[dtype];
    const size_t code_bytes = cpu_panel_code_bytes(form);
    const size_t scale_bytes = cpu_panel_group_bytes(form);
    size_t num_blocks = (size_t)job->depth / PANEL_BLOCK;
    const struct gemm_block *blocks =
        (const struct gemm_block *)job->activations + (size_t)row * num_blocks;
    const uint8_t *codes = job->panels + (size_t)panel * job->panel_bytes;
    const uint8_t *record = codes + num_blocks * code_bytes;
    rf sums[AMX_ROWS * STRIPS_PER_PANEL];
    UNROLL
    for (int i = 0; i < AMX_ROWS * STRIPS_PER_PANEL; i++)
        sums[i] = rf_set1(0);
    while (num_blocks > 0) {
        const uint8_t *scales = record + cpu_panel_factor_bytes(form);
        for (int i = 0; i < form->block_elements / PANEL_BLOCK; i++, num_blocks--) {
            _Alignas(AMX_ROW_BYTES) int32_t dots[AMX_ROWS * PANEL_COLUMNS];
            prefetch(codes + job->panel_bytes, code_bytes);
            multiply_block(form, codes, blocks, dots);
            for (int r = 0; r < num_rows; r += rows_at_once)
                add_block_rows(form, dots + r * PANEL_COLUMNS, record, scales, blocks + r,
                               rows_at_once, sums + r * STRIPS_PER_PANEL);
            codes += code_bytes;
            scales += scale_bytes;
            blocks += AMX_ROWS;
        }
        record = scales;
    }
    for (int r = 0; r < num_rows; r += rows_at_once)
        store_tile(job, panel * STRIPS_PER_PANEL, row + r, sums + r * STRIPS_PER_PANEL,
                   rows_at_once, STRIPS_PER_PANEL);
}

/* --- BF16 weights: tiles 0 to 3 are C of as many panels, 4 is A, 5 B --- */

static void configure_pairs(int num_rows) {
    uint8_t n = (uint8_t)num_rows;
    const struct amx_config config = {.palette = 1,
                                      .row_bytes = {AMX_ROW_BYTES, AMX_ROW_BYTES, AMX_ROW_BYTES,
                                                    AMX_ROW_BYTES, AMX_ROW_BYTES, AMX_ROW_BYTES},
                                      .rows = {n, n, n, n, n, BLOCK_PAIRS}};
    tile_configure(&config);
}

static void store_pairs(const struct gemm_job *job, int32_t panel, int32_t row, int num_rows,
                        const float *products) {
    for (int r = 0; r < num_rows; r++) {
        rf sums[STRIPS_PER_PANEL];
        UNROLL
        for (int s = 0; s < STRIPS_PER_PANEL; s++)
            sums[s] = rf_load(products + r * PANEL_COLUMNS + s * RF_LANES);
        store_tile(job, panel * STRIPS_PER_PANEL, row + r, sums, 1, STRIPS_PER_PANEL);
    }
}

/* Panel number `i` of those of a tile: also its C. */
#define ADD_PAIRS(i)                                                                               \
    if (num_panels > (i)) {                                                                        \
        tile_load(5, weights + (i)*job->panel_bytes, AMX_ROW_BYTES);                               \
        tile_dot_bf16(i, 4, 5);                                                                    \
    }
#define STORE_PAIRS(i)                                                                             \
    if (num_panels > (i)) {                                                                        \
        tile_store(i, products, AMX_ROW_BYTES);                                                    \
        store_pairs(job, panel + (i), row, num_rows, products);                                    \
    }

/* Multiplies AMX_PANELS panels, or as many as are left. */
static void pairs_tile(const struct gemm_job *job, int32_t panel, int32_t row, int num_rows) {
    int32_t num_panels = job->num_panels - panel;
    _Alignas(AMX_ROW_BYTES) float products[AMX_ROWS * PANEL_COLUMNS];
    size_t depth = cpu_panel_pairs_depth((size_t)job->depth);
    const uint16_t *x = (const uint16_t *)job->activations + (size_t)row * depth;
    const uint8_t *weights = job->panels + (size_t)panel * job->panel_bytes;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (size_t k = 0; k < depth; k += PANEL_BLOCK) {
        tile_load(4, x, AMX_ROW_BYTES);
        ADD_PAIRS(0)
        ADD_PAIRS(1)
        ADD_PAIRS(2)
        ADD_PAIRS(3)
        x += AMX_ROWS * PANEL_BLOCK;
        weights += BLOCK_PAIRS * AMX_ROW_BYTES;
    }
    STORE_PAIRS(0)
    STORE_PAIRS(1)
    STORE_PAIRS(2)
    STORE_PAIRS(3)
}

/* --- Formats --- */

/* Processes all rows of some panels before the next panels, so that these stay in the caches. A
 * partly filled tile needs its own configuration, and comes last. */
static void multiply_by_tiles(const struct gemm_job *job, int32_t panels_at_once,
                              void (*configure)(int num_rows), amx_tile_function *tile) {
    int32_t num_full = job->num_rows / AMX_ROWS * AMX_ROWS, rest = job->num_rows - num_full;
    if (num_full > 0)
        configure(AMX_ROWS);
    for (int32_t panel = 0; num_full > 0 && panel < job->num_panels; panel += panels_at_once)
        for (int32_t row = 0; row < num_full; row += AMX_ROWS)
            tile(job, panel, row, AMX_ROWS);
    if (rest > 0)
        configure(rest);
    for (int32_t panel = 0; rest > 0 && panel < job->num_panels; panel += panels_at_once)
        tile(job, panel, num_full, rest);
    tile_release();
}

#define DEFINE_BYTES_FORMAT(type)                                                                  \
    static void type##_tile(const struct gemm_job *job, int32_t panel, int32_t row,                \
                            int num_rows) {                                                        \
        if (num_rows == AMX_ROWS)                                                                  \
            bytes_tile(DTYPE_##type, job, panel, row, AMX_ROWS, AMX_ROWS);                         \
        else                                                                                       \
            bytes_tile(DTYPE_##type, job, panel, row, num_rows, 1);                                \
    }                                                                                              \
    static void multiply_##type(const struct gemm_job *job) {                                      \
        multiply_by_tiles(job, 1, configure_bytes, type##_tile);                                   \
    }                                                                                              \
    static const struct cpu_gemm_format type##_format = {                                          \
        .panel = &cpu_panel_blocks, .rows = &amx_block_rows, .multiply = multiply_##type};
#define ADD_BYTES_FORMAT(type) kernels->formats[DTYPE_##type] = &type##_format;

#define FOR_BYTES_TYPES(X)                                                                         \
    X(Q4_0)                                                                                        \
    X(Q4_1)                                                                                        \
    X(Q8_0)                                                                                        \
    X(Q5_0)                                                                                        \
    X(Q5_1)                                                                                        \
    X(IQ4_NL)                                                                                      \
    X(Q4_K)                                                                                        \
    X(Q5_K)                                                                                        \
    X(MXFP4)                                                                                       \
    X(I4_32)                                                                                       \
    X(I4_64)                                                                                       \
    X(I4_128)                                                                                      \
    X(I8_32)                                                                                       \
    X(I8_128)                                                                                      \
    X(IQ4_XS)                                                                                      \
    X(TQ2_0)

FOR_BYTES_TYPES(DEFINE_BYTES_FORMAT)

static void multiply_BF16(const struct gemm_job *job) {
    multiply_by_tiles(job, AMX_PANELS, configure_pairs, pairs_tile);
}

static const struct cpu_gemm_format BF16_format = {.panel = &cpu_panel_pairs,
                                                   .rows = &amx_pair_rows,
                                                   .multiply = multiply_BF16,
                                                   .numerics = "tdpbf16ps"};

static void add_amx_formats(struct cpu_kernels *kernels) {
    FOR_BYTES_TYPES(ADD_BYTES_FORMAT)
    kernels->formats[DTYPE_BF16] = &BF16_format;
}

#endif
