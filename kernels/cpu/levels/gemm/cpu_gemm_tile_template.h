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
    int32_t num_strips;
    tile_function *wide; /* num_strips strips */
    tile_function *single;
};

SIMD_INLINE const uint8_t *panel_of(const struct gemm_job *job, int32_t strip) {
    return job->panels + (size_t)(strip / STRIPS_PER_PANEL) * job->panel_bytes;
}

SIMD_INLINE int32_t first_lane(int32_t strip) {
    return strip % STRIPS_PER_PANEL * RF_LANES;
}

SIMD_INLINE void store_tile(const struct gemm_job *job, int32_t strip, int32_t row, const rf *sums,
                            int num_rows, int num_strips) {
    UNROLL
    for (int s = 0; s < num_strips; s++) {
        int32_t column = (strip + s) * RF_LANES;
        int32_t left = job->num_columns - column;
        if (left <= 0)
            return;
        int32_t n = left < RF_LANES ? left : RF_LANES;
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            float *out = job->out + (size_t)(row + r) * job->out_stride + column;
            rf sum = rf_mul(sums[r * num_strips + s], rf_set1(job->scale));
            if (job->bias != NULL)
                sum = rf_add(rf_load_part(job->bias + column, n), sum);
            if (job->accumulate)
                sum = rf_add(rf_load_part(out, n), sum);
            rf_store_part(out, sum, n);
        }
    }
}

/* A tile prefetches the same place of the panels that follow its own. They are in the cache when
 * needed, so a tile of many rows does not alternate between waiting for memory and computing. It
 * prefetches into the L2 cache, because the data would evict the activations from L1. */
SIMD_INLINE size_t bytes_ahead(const struct gemm_job *job, int32_t strip, int num_strips) {
    int32_t next = (strip + num_strips + STRIPS_PER_PANEL - 1) / STRIPS_PER_PANEL;
    const uint8_t *panel =
        next < job->num_panels ? panel_of(job, next * STRIPS_PER_PANEL) : job->following;
    return (uintptr_t)panel - (uintptr_t)panel_of(job, strip);
}

SIMD_INLINE void prefetch(const uint8_t *p, size_t bytes) {
    UNROLL
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

static void run_tile(const struct gemm_job *job, const struct gemm_tile *tile, int32_t strip,
                     int32_t num_strips, int32_t row) {
    int32_t s = 0;
    for (; s + tile->num_strips <= num_strips; s += tile->num_strips)
        tile->wide(job, strip + s, row);
    for (; s < num_strips; s++)
        tile->single(job, strip + s, row);
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
    DEFINE_TILES_1(family, type, rows) DEFINE_TILE(family, type, rows, 4)
#define DEFINE_TILES_8(family, type, rows)                                                         \
    DEFINE_TILES_1(family, type, rows) DEFINE_TILE(family, type, rows, 8)
#define TILE_ENTRY(type, rows, strips)                                                             \
    {rows, strips, type##_##rows##_by_##strips, type##_##rows##_by_1},
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
