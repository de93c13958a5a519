/* Tiles of the matrix product, written once over a level's registers (simd.h): shared by the
 * families of formats (cpu_gemm_*_template.h), which include it.
 *
 * A strip is RF_LANES columns of a panel. A tile keeps rows * strips accumulators in registers over
 * all of K. Small row counts take several strips at once, so that enough independent sums hide the
 * latency of a fused multiply-add. Everything is inlined into functions with constant rows and
 * strips, whose arrays the compiler then keeps in registers.
 *
 * A level lists the tiles of a family in a macro FOR_TILES(X, type): X(type, rows, strips) for
 * each, the most rows first, the last of one row. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_TILE_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_TILE_TEMPLATE_H

#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/levels/cpu_levels.h"
#include "kernels/cpu/simd/simd.h"

#define STRIPS_PER_PANEL (PANEL_COLUMNS / RF_LANES)
#define MAX_ROWS 12
#define MAX_STRIPS (4 * STRIPS_PER_PANEL)
#define MAX_SUMS 16
#define LEAST_BYTES_AHEAD 4096 /* that are prefetched: of several panels, as in an adapter's B */

/* The tiles of products in float for 32 registers of 16 lanes. */
#define FOR_FLOAT_TILES_512(X, type)                                                               \
    X(type, 12, 1)                                                                                 \
    X(type, 11, 1)                                                                                 \
    X(type, 10, 1)                                                                                 \
    X(type, 9, 1)                                                                                  \
    X(type, 8, 1)                                                                                  \
    X(type, 7, 1)                                                                                  \
    X(type, 6, 2)                                                                                  \
    X(type, 5, 2)                                                                                  \
    X(type, 4, 2)                                                                                  \
    X(type, 3, 4)                                                                                  \
    X(type, 2, 4)                                                                                  \
    X(type, 1, 4)

typedef void tile_function(const struct gemm_job *job, int32_t strip, int32_t row);

struct gemm_tile {
    int32_t num_rows;
    int32_t num_strips;       /* a power of 2 */
    tile_function *widths[4]; /* of num_strips strips, of half as many, and so on to 1 */
};

SIMD_INLINE const uint8_t *panel_of(const struct gemm_job *job, int32_t strip) {
    return job->panels + (size_t)(strip / STRIPS_PER_PANEL) * job->panel_bytes;
}

SIMD_INLINE int32_t first_lane(int32_t strip) {
    return strip % STRIPS_PER_PANEL * RF_LANES;
}

/* Without a mask if all lanes are meant: masked stores are slow on some processors. */
SIMD_INLINE rf load_lanes(const float *p, int32_t n) {
    return n == RF_LANES ? rf_load(p) : rf_load_part(p, n);
}

SIMD_INLINE void store_lanes(float *p, rf value, int32_t n) {
    if (n == RF_LANES)
        memcpy(p, &value, sizeof(value));
    else
        rf_store_part(p, value, n);
}

/* The job is read first: for the compiler, the stores could change it. */
SIMD_INLINE void store_tile(const struct gemm_job *job, int32_t strip, int32_t row, const rf *sums,
                            int num_rows, int num_strips) {
    const int32_t num_columns = job->num_columns, *out_rows = job->out_rows;
    const size_t stride = job->out_stride;
    const float *bias = job->bias;
    const rf scale = rf_set1(job->scale);
    const bool accumulate = job->accumulate;
    float *first = job->out;
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        int32_t column = (strip + s) * RF_LANES;
        int32_t left = num_columns - column;
        if (left <= 0)
            return;
        int32_t n = left < RF_LANES ? left : RF_LANES;
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            int32_t place = out_rows == NULL ? row + r : out_rows[row + r];
            float *out = first + (size_t)place * stride + column;
            rf sum = rf_mul(sums[r * num_strips + s], scale);
            if (bias != NULL)
                sum = rf_add(load_lanes(bias + column, n), sum);
            if (accumulate)
                sum = rf_add(load_lanes(out, n), sum);
            store_lanes(out, sum, n);
        }
    }
}

/* A tile prefetches the same place of the panels that follow its own, or of later ones if panels
 * are small. They are in the cache when needed, so a tile of many rows does not alternate between
 * waiting for memory and computing. It prefetches into the L2 cache, because the data would evict
 * the activations from L1. */
SIMD_INLINE size_t bytes_ahead(const struct gemm_job *job, int32_t strip, int num_strips) {
    int32_t next = (strip + num_strips + STRIPS_PER_PANEL - 1) / STRIPS_PER_PANEL;
    next += (int32_t)(LEAST_BYTES_AHEAD / job->panel_bytes);
    const uint8_t *base = job->panels;
    if (next >= job->num_panels) {
        base = job->following;
        next -= job->num_panels;
    }
    return (uintptr_t)base + (size_t)next * job->panel_bytes - (uintptr_t)panel_of(job, strip);
}

SIMD_INLINE void prefetch(const uint8_t *p, size_t bytes) {
    UNROLL
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

static void run_tile(const struct gemm_job *job, const struct gemm_tile *tile, int32_t strip,
                     int32_t num_strips, int32_t row) {
    tile_function *const *run = tile->widths;
    for (int32_t s = 0, width = tile->num_strips; width > 0; width /= 2, run++)
        for (; s + width <= num_strips; s += width)
            (*run)(job, strip + s, row);
}

/* Processes a few panels at a time, so that they and one tile of activations stay in the L1
 * cache. */
__attribute__((unused)) static void multiply(const struct gemm_job *job,
                                             const struct cpu_row_packing *packing,
                                             const struct gemm_tile *tiles) {
    int32_t total = job->num_panels * STRIPS_PER_PANEL;
    for (int32_t strip = 0; strip < total; strip += MAX_STRIPS) {
        int32_t num_strips = total - strip < MAX_STRIPS ? total - strip : MAX_STRIPS;
        int32_t num_rows;
        for (int32_t row = 0; row < job->num_rows; row += num_rows) {
            const struct gemm_tile *tile = tiles;
            num_rows = gemm_next_tile(packing->tile_rows, job->num_rows - row);
            while (tile->num_rows > num_rows)
                tile++;
            run_tile(job, tile, strip, num_strips, row);
        }
    }
}

#define DEFINE_TILE(family, type, rows, strips)                                                    \
    static void type##_##rows##_by_##strips(const struct gemm_job *job, int32_t strip,             \
                                            int32_t row) {                                         \
        family##_tile(DTYPE_##type, job, strip, row, rows, strips);                                \
    }
#define DEFINE_TILES_1(family, type, rows) DEFINE_TILE(family, type, rows, 1)
#define DEFINE_TILES_2(family, type, rows)                                                         \
    DEFINE_TILES_1(family, type, rows) DEFINE_TILE(family, type, rows, 2)
#define DEFINE_TILES_4(family, type, rows)                                                         \
    DEFINE_TILES_2(family, type, rows) DEFINE_TILE(family, type, rows, 4)
#define DEFINE_TILES_8(family, type, rows)                                                         \
    DEFINE_TILES_4(family, type, rows) DEFINE_TILE(family, type, rows, 8)
#define TILE_WIDTHS_1(type, rows) type##_##rows##_by_1
#define TILE_WIDTHS_2(type, rows) type##_##rows##_by_2, TILE_WIDTHS_1(type, rows)
#define TILE_WIDTHS_4(type, rows) type##_##rows##_by_4, TILE_WIDTHS_2(type, rows)
#define TILE_WIDTHS_8(type, rows) type##_##rows##_by_8, TILE_WIDTHS_4(type, rows)
#define TILE_ENTRY(type, rows, strips) {rows, strips, {TILE_WIDTHS_##strips(type, rows)}},
#define TILE_NUM_ROWS(type, rows, strips) rows,

/* multiply_TYPE and TYPE_format. DEFINE(type, rows, strips) defines the functions of a tile. */
#define DEFINE_FORMAT(type, DEFINE, FOR_TILES, panel_layout, row_packing, bits)                    \
    FOR_TILES(DEFINE, type)                                                                        \
    static const struct gemm_tile type##_tiles[] = {FOR_TILES(TILE_ENTRY, type)};                  \
    static void multiply_##type(const struct gemm_job *job) {                                      \
        multiply(job, &row_packing, type##_tiles);                                                 \
    }                                                                                              \
    static const struct cpu_gemm_format type##_format = {.panel = &panel_layout,                   \
                                                         .rows = &row_packing,                     \
                                                         .multiply = multiply_##type,              \
                                                         .numerics = bits};

#endif
