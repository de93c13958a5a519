/* The matrix product of one level, written once over that level's vectors. Included by
 * cpu_gemm_LEVEL.c only, after it has defined
 *
 * - LANES: columns of one strip; divides 16
 * - vfloat, vint: LANES floats, LANES int32
 * - vfloat_zero(), vfloat_set1(x)
 * - vfloat_load_f32(p), vfloat_load_f16(p), vfloat_load_bf16(p): LANES elements, at any alignment
 * - vfloat_load_part(p, n), vfloat_store_part(p, v, n): the first n (1 <= n <= LANES) only
 * - vfloat_from_int(v), vfloat_add(a, b), vfloat_mul(a, b)
 * - vfloat_fma(a, b, c): a * b + c rounded once
 * - vint_zero(), vint_set1(x), vint_and(a, b), vint_shl(v, n), vint_shr(v, n)
 * - vint_load_bytes(p): LANES signed bytes widened
 * - dot_words(form, codes, first, count, blocks, num_rows, sums): adds to sums[r], for every row r,
 *   the dot product of words first..first+count-1 of one 32-block; codes points to the strip's part
 *   of the block
 * - quantise_row: see struct cpu_gemm_kernels
 * - TILE_ROWS: initialiser of tile_rows
 * - FOR_QUANTISED_TILES(X, type), FOR_PLAIN_TILES(X, type): X(type, rows, strips) for each of them
 *
 * A tile keeps rows * strips accumulators in registers over all of K. Small row counts take several
 * strips at once, so that enough independent sums hide the latency of a fused multiply-add.
 * Everything is inlined into functions with constant rows and strips, whose arrays the compiler
 * then keeps in registers. */
#include "kernels/cpu/cpu_gemm.h"

#include <string.h>

#define STRIPS_PER_PANEL (PANEL_COLUMNS / LANES)
#define MAX_ROWS 12
#define MAX_STRIPS (4 * STRIPS_PER_PANEL)
#define MAX_SUMS 16

typedef void tile_function(const struct gemm_job *job, int32_t strip, int32_t row);

struct gemm_tile {
    int32_t num_rows;
    int32_t num_strips;
    tile_function *wide; /* num_strips strips */
    tile_function *single;
};

SIMD_INLINE const uint8_t *panel_of(const struct gemm_job *job, int32_t strip) {
    return job->panels + (size_t)(strip / STRIPS_PER_PANEL) * job->panel_bytes;
}

SIMD_INLINE int32_t first_lane(int32_t strip) {
    return strip % STRIPS_PER_PANEL * LANES;
}

SIMD_INLINE void store_tile(const struct gemm_job *job, int32_t strip, int32_t row,
                            const vfloat *sums, int num_rows, int num_strips) {
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        int32_t column = (strip + s) * LANES;
        int32_t left = job->num_columns - column;
        if (left <= 0)
            return;
        int32_t n = left < LANES ? left : LANES;
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            float *out = job->out + (size_t)(row + r) * job->out_stride + column;
            vfloat sum = vfloat_mul(sums[r * num_strips + s], vfloat_set1(job->scale));
            if (job->bias != NULL)
                sum = vfloat_add(vfloat_load_part(job->bias + column, n), sum);
            if (job->accumulate)
                sum = vfloat_add(vfloat_load_part(out, n), sum);
            vfloat_store_part(out, sum, n);
        }
    }
}

/* The panels lie in the order they are read, so what the next step of `num_strips` needs is as far
 * ahead as this step is long. Without it a tile of many rows alternates between waiting for memory
 * and computing. */
SIMD_INLINE void prefetch(const uint8_t *p, size_t bytes) {
    UNROLL
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + i);
}

/* -zero * sum of the activation codes of group h of a 32-block. */
SIMD_INLINE vint start_value(const struct quant_form *form, const struct gemm_block *block, int h) {
    if (form->has_levels)
        return vint_set1(block->start_128);
    switch (form->zero) {
    case 0:
        return vint_zero();
    case 4:
        return vint_set1(block->half_starts_32[h] >> 3);
    case 8:
        return vint_set1(block->start_8);
    case 16:
        return vint_shl(vint_set1(block->start_8), 1);
    case 32:
        return vint_set1(block->half_starts_32[h]);
    default:
        return vint_set1(block->start_128);
    }
}

/* For LANES columns: d multiplies a code, m is added to the product. */
struct factors {
    vfloat d, m;
};

SIMD_INLINE struct factors block_factors(const struct quant_form *form, const uint8_t *record) {
    struct factors f = {vfloat_load_f16(record), vfloat_zero()};
    if (form->has_min)
        f.m = vfloat_load_f16(record + sizeof(uint16_t) * PANEL_COLUMNS);
    return f;
}

/* Exact: 11 bits times 8. */
SIMD_INLINE vfloat times_int(vfloat a, vint b) {
    return vfloat_mul(a, vfloat_from_int(b));
}

SIMD_INLINE struct factors group_factors(const struct quant_form *form, struct factors f,
                                         const uint8_t *scales) {
    if (form->scale_bits == 0)
        return f;
    vint first = vint_load_bytes(scales);
    if (form->scale_bits == 4)
        return (struct factors){
            times_int(f.d, vint_and(first, vint_set1(15))),
            times_int(f.m, vint_and(vint_shr(first, 4), vint_set1(15))),
        };
    f.d = times_int(f.d, first);
    if (form->has_min)
        f.m = times_int(f.m, vint_load_bytes(scales + PANEL_COLUMNS));
    return f;
}

/* Group h of a 32-block of one strip into sums[0, step, 2 step ..]. */
SIMD_INLINE void add_group(const struct quant_form *form, const uint8_t *codes, struct factors f,
                           const struct gemm_block *blocks, int h, int num_rows, vfloat *sums,
                           int step) {
    const int num_words = form->group_elements / 4;
    vint dots[MAX_ROWS];
    UNROLL
    for (int r = 0; r < num_rows; r++)
        dots[r] = start_value(form, &blocks[r], h);
    dot_words(form, codes, h * num_words, num_words, blocks, num_rows, dots);
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        vfloat scale = vfloat_mul(f.d, vfloat_set1(blocks[r].scale));
        sums[r * step] = vfloat_fma(scale, vfloat_from_int(dots[r]), sums[r * step]);
    }
    if (!form->has_min)
        return;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        const struct gemm_block *b = &blocks[r];
        vfloat sum =
            vfloat_set1(num_words == PANEL_BLOCK / 4 ? b->scaled_sum : b->half_scaled_sums[h]);
        sums[r * step] = vfloat_fma(f.m, sum, sums[r * step]);
    }
}

SIMD_INLINE void add_block(const struct quant_form *form, const uint8_t *codes, struct factors f,
                           const uint8_t *scales, const struct gemm_block *blocks, int num_rows,
                           vfloat *sums, int step) {
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
    size_t ahead = (size_t)num_strips * job->panel_bytes;
    const uint8_t *codes[MAX_STRIPS], *record[MAX_STRIPS];
    vfloat sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        const uint8_t *panel = panel_of(job, strip + s);
        codes[s] = panel + first_lane(strip + s) * 4;
        record[s] = panel + num_blocks * code_bytes;
    }
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = vfloat_zero();
    for (size_t b = 0; b < num_blocks; b += blocks_per_record) {
        struct factors f[MAX_STRIPS];
        UNROLL
        for (int s = 0; s < num_strips; s++) {
            prefetch(record[s] + ahead, factor_bytes);
            f[s] = block_factors(form, record[s] + first_lane(strip + s) * 2);
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

SIMD_INLINE vfloat load_plain(enum dtype dtype, const uint8_t *p) {
    if (dtype == DTYPE_F16)
        return vfloat_load_f16(p);
    return dtype == DTYPE_BF16 ? vfloat_load_bf16(p) : vfloat_load_f32(p);
}

SIMD_INLINE void plain_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip,
                            int32_t row, int num_rows, int num_strips) {
    const size_t item_bytes = dtype == DTYPE_F32 ? 4 : 2;
    size_t depth = (size_t)job->depth;
    const float *x = (const float *)job->activations + (size_t)row * depth;
    size_t ahead = (size_t)num_strips * job->panel_bytes;
    const uint8_t *weights[MAX_STRIPS];
    vfloat sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++)
        weights[s] = panel_of(job, strip + s) + (size_t)first_lane(strip + s) * item_bytes;
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = vfloat_zero();
    for (size_t k = 0; k < depth; k++) {
        UNROLL
        for (int s = 0; s < num_strips; s++) {
            prefetch(weights[s] + k * PANEL_COLUMNS * item_bytes + ahead, item_bytes);
            vfloat w = load_plain(dtype, weights[s] + k * PANEL_COLUMNS * item_bytes);
            UNROLL
            for (int r = 0; r < num_rows; r++)
                sums[r * num_strips + s] =
                    vfloat_fma(w, vfloat_set1(x[r]), sums[r * num_strips + s]);
        }
        x += num_rows;
    }
    store_tile(job, strip, row, sums, num_rows, num_strips);
}

static void run_tile(const struct gemm_job *job, const struct gemm_tile *tile, int32_t strip,
                     int32_t num_strips, int32_t row) {
    int32_t s = 0;
    for (; s + tile->num_strips <= num_strips; s += tile->num_strips)
        tile->wide(job, strip + s, row);
    for (; s < num_strips; s++)
        tile->single(job, strip + s, row);
}

/* A few panels at a time, so that they and one tile of activations stay in the first cache. */
static void multiply(const struct gemm_job *job, const struct gemm_tile *tiles) {
    int32_t total = job->num_panels * STRIPS_PER_PANEL;
    for (int32_t strip = 0; strip < total; strip += MAX_STRIPS) {
        int32_t num_strips = total - strip < MAX_STRIPS ? total - strip : MAX_STRIPS;
        int32_t row = 0;
        for (const struct gemm_tile *tile = tiles; row < job->num_rows; tile++)
            for (; row + tile->num_rows <= job->num_rows; row += tile->num_rows)
                run_tile(job, tile, strip, num_strips, row);
    }
}

#define DEFINE_TILE(family, type, rows, strips)                                                    \
    static void type##_##rows##_by_##strips(const struct gemm_job *job, int32_t strip,             \
                                            int32_t row) {                                         \
        family##_tile(DTYPE_##type, job, strip, row, rows, strips);                                \
    }
#define DEFINE_MORE_1(family, type, rows)
#define DEFINE_MORE_2(family, type, rows) DEFINE_TILE(family, type, rows, 2)
#define DEFINE_MORE_4(family, type, rows) DEFINE_TILE(family, type, rows, 4)
#define DEFINE_MORE_8(family, type, rows) DEFINE_TILE(family, type, rows, 8)
#define DEFINE_QUANTISED_TILE(type, rows, strips)                                                  \
    DEFINE_TILE(quantised, type, rows, 1) DEFINE_MORE_##strips(quantised, type, rows)
#define DEFINE_PLAIN_TILE(type, rows, strips)                                                      \
    DEFINE_TILE(plain, type, rows, 1) DEFINE_MORE_##strips(plain, type, rows)
#define TILE_ENTRY(type, rows, strips)                                                             \
    {rows, strips, type##_##rows##_by_##strips, type##_##rows##_by_1},

#define DEFINE_TYPE(type, DEFINE, FOR_TILES)                                                       \
    FOR_TILES(DEFINE, type)                                                                        \
    static const struct gemm_tile type##_tiles[] = {FOR_TILES(TILE_ENTRY, type)};                  \
    static void multiply_##type(const struct gemm_job *job) {                                      \
        multiply(job, type##_tiles);                                                               \
    }

DEFINE_TYPE(F32, DEFINE_PLAIN_TILE, FOR_PLAIN_TILES)
DEFINE_TYPE(F16, DEFINE_PLAIN_TILE, FOR_PLAIN_TILES)
DEFINE_TYPE(BF16, DEFINE_PLAIN_TILE, FOR_PLAIN_TILES)
DEFINE_TYPE(Q4_0, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q4_1, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q8_0, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q5_0, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q5_1, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(IQ4_NL, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q2_K, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q3_K, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q4_K, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q5_K, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)
DEFINE_TYPE(Q6_K, DEFINE_QUANTISED_TILE, FOR_QUANTISED_TILES)

#define GEMM_KERNELS                                                                               \
    {                                                                                              \
        .tile_rows = TILE_ROWS, .quantise_row = quantise_row,                                      \
        .multiply = {                                                                              \
            [DTYPE_F32] = multiply_F32,       [DTYPE_F16] = multiply_F16,                          \
            [DTYPE_BF16] = multiply_BF16,     [DTYPE_Q4_0] = multiply_Q4_0,                        \
            [DTYPE_Q4_1] = multiply_Q4_1,     [DTYPE_Q8_0] = multiply_Q8_0,                        \
            [DTYPE_Q5_0] = multiply_Q5_0,     [DTYPE_Q5_1] = multiply_Q5_1,                        \
            [DTYPE_IQ4_NL] = multiply_IQ4_NL, [DTYPE_Q2_K] = multiply_Q2_K,                        \
            [DTYPE_Q3_K] = multiply_Q3_K,     [DTYPE_Q4_K] = multiply_Q4_K,                        \
            [DTYPE_Q5_K] = multiply_Q5_K,     [DTYPE_Q6_K] = multiply_Q6_K,                        \
        },                                                                                         \
    }
