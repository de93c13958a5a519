/* The matrix product of one level, written once over that level's vectors. Included by
 * cpu_gemm_LEVEL.c only, after it has defined
 *   LANES                   columns of one strip; divides 16
 *   vfloat, vint            LANES floats, LANES int32
 *   vfloat_zero, vfloat_set1, vfloat_load_f32, vfloat_load_f16, vfloat_load_bf16 (any alignment),
 *   vfloat_from_int, vfloat_add, vfloat_mul, vfloat_fma(a, b, c): a * b + c rounded once,
 *   vfloat_load_part(p, n), vfloat_store_part(p, v, n): the first n (1 <= n <= LANES) only
 *   vint_zero, vint_set1
 *   dot_nibbles, dot_bytes(codes, blocks, num_rows, sums): add to sums[r], for every row r, the dot
 *                           product of one 32-block; codes points to the strip's bytes of group 0
 *   quantise_row            see struct cpu_gemm_kernels
 *   TILE_ROWS               initialiser of tile_rows
 *   FOR_QUANTISED_TILES(X, type), FOR_PLAIN_TILES(X, type): X(type, rows, strips) for each of them
 *
 * A tile keeps rows * strips accumulators in registers over all of K. Small row counts take several
 * strips at once, so that enough independent sums hide the latency of a fused multiply-add.
 * Everything is inlined into functions with constant rows and strips, whose arrays the compiler
 * then keeps in registers. */
#include "kernels/cpu/cpu_gemm.h"

#include <string.h>

#define STRIPS_PER_PANEL (GEMM_PANEL_COLUMNS / LANES)
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

static ALWAYS_INLINE const uint8_t *panel_of(const struct gemm_job *job, int32_t strip) {
    return job->panels + (size_t)(strip / STRIPS_PER_PANEL) * job->panel_bytes;
}

static ALWAYS_INLINE int32_t first_lane(int32_t strip) {
    return strip % STRIPS_PER_PANEL * LANES;
}

static ALWAYS_INLINE void store_tile(const struct gemm_job *job, int32_t strip, int32_t row,
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
static ALWAYS_INLINE void prefetch(const uint8_t *p, size_t bytes) {
    UNROLL
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + i);
}

static ALWAYS_INLINE vint start_value(const struct gemm_block *block, enum dtype dtype) {
    if (dtype == DTYPE_Q4_1)
        return vint_zero();
    return vint_set1(dtype == DTYPE_Q4_0 ? block->start_8 : block->start_128);
}

/* One 32-block of one strip into sums[0, step, 2 step ..]. */
static ALWAYS_INLINE void add_block(enum dtype dtype, const uint8_t *codes, const uint8_t *scales,
                                    const struct gemm_block *blocks, int num_rows, vfloat *sums,
                                    int step) {
    vint dots[MAX_ROWS];
    UNROLL
    for (int r = 0; r < num_rows; r++)
        dots[r] = start_value(&blocks[r], dtype);
    if (dtype == DTYPE_Q8_0)
        dot_bytes(codes, blocks, num_rows, dots);
    else
        dot_nibbles(codes, blocks, num_rows, dots);

    vfloat d = vfloat_load_f16(scales);
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        vfloat scale = vfloat_mul(d, vfloat_set1(blocks[r].scale));
        sums[r * step] = vfloat_fma(scale, vfloat_from_int(dots[r]), sums[r * step]);
    }
    if (dtype != DTYPE_Q4_1)
        return;
    vfloat m = vfloat_load_f16(scales + 2 * GEMM_PANEL_COLUMNS);
    UNROLL
    for (int r = 0; r < num_rows; r++)
        sums[r * step] = vfloat_fma(m, vfloat_set1(blocks[r].scaled_sum), sums[r * step]);
}

static ALWAYS_INLINE void quantised_tile(enum dtype dtype, const struct gemm_job *job,
                                         int32_t strip, int32_t row, int num_rows, int num_strips) {
    const size_t code_bytes = dtype == DTYPE_Q8_0 ? 512 : 256;
    const size_t scale_bytes = dtype == DTYPE_Q4_1 ? 64 : 32;
    size_t num_blocks = (size_t)job->depth / GEMM_BLOCK;
    const struct gemm_block *blocks =
        (const struct gemm_block *)job->activations + (size_t)row * num_blocks;
    size_t ahead = (size_t)num_strips * job->panel_bytes;
    const uint8_t *codes[MAX_STRIPS], *scales[MAX_STRIPS];
    vfloat sums[MAX_SUMS];
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        const uint8_t *panel = panel_of(job, strip + s);
        codes[s] = panel + first_lane(strip + s) * 4;
        scales[s] = panel + num_blocks * code_bytes + first_lane(strip + s) * 2;
    }
    UNROLL
    for (int i = 0; i < num_rows * num_strips; i++)
        sums[i] = vfloat_zero();
    for (size_t b = 0; b < num_blocks; b++) {
        UNROLL
        for (int s = 0; s < num_strips; s++) {
            prefetch(codes[s] + b * code_bytes + ahead, code_bytes);
            prefetch(scales[s] + b * scale_bytes + ahead, scale_bytes);
            add_block(dtype, codes[s] + b * code_bytes, scales[s] + b * scale_bytes, blocks,
                      num_rows, sums + s, num_strips);
        }
        blocks += num_rows;
    }
    store_tile(job, strip, row, sums, num_rows, num_strips);
}

static ALWAYS_INLINE vfloat load_plain(enum dtype dtype, const uint8_t *p) {
    if (dtype == DTYPE_F16)
        return vfloat_load_f16(p);
    return dtype == DTYPE_BF16 ? vfloat_load_bf16(p) : vfloat_load_f32(p);
}

static ALWAYS_INLINE void plain_tile(enum dtype dtype, const struct gemm_job *job, int32_t strip,
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
            prefetch(weights[s] + k * GEMM_PANEL_COLUMNS * item_bytes + ahead, item_bytes);
            vfloat w = load_plain(dtype, weights[s] + k * GEMM_PANEL_COLUMNS * item_bytes);
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
    static void type##_##rows##_wide(const struct gemm_job *job, int32_t strip, int32_t row) {     \
        family##_tile(DTYPE_##type, job, strip, row, rows, strips);                                \
    }                                                                                              \
    static void type##_##rows##_single(const struct gemm_job *job, int32_t strip, int32_t row) {   \
        family##_tile(DTYPE_##type, job, strip, row, rows, 1);                                     \
    }
#define DEFINE_QUANTISED_TILE(type, rows, strips) DEFINE_TILE(quantised, type, rows, strips)
#define DEFINE_PLAIN_TILE(type, rows, strips) DEFINE_TILE(plain, type, rows, strips)
#define TILE_ENTRY(type, rows, strips) {rows, strips, type##_##rows##_wide, type##_##rows##_single},

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

#define GEMM_KERNELS                                                                               \
    {                                                                                              \
        .tile_rows = TILE_ROWS, .quantise_row = quantise_row,                                      \
        .multiply = {                                                                              \
            [DTYPE_F32] = multiply_F32,   [DTYPE_F16] = multiply_F16,                              \
            [DTYPE_BF16] = multiply_BF16, [DTYPE_Q4_0] = multiply_Q4_0,                            \
            [DTYPE_Q4_1] = multiply_Q4_1, [DTYPE_Q8_0] = multiply_Q8_0,                            \
        },                                                                                         \
    }
