/* Private to kernels/cpu: the matrix product. A FORMAT defines how weights of one element type and
 * the activations multiplied with them are laid out in memory, and multiplies the two. Each
 * instruction-set level adds formats (cpu_levels.h); a matrix keeps those that its parts were
 * created with.
 *
 * Weights. A matrix is a list of segments, one per part; a segment is a list of PANELS of 16 output
 * columns (rows of the file's tensor), so that one 512-bit register holds one 32-bit item per
 * column. cpu_panel.h describes the layouts of a panel. Columns that pad the last panel are zero.
 * The contribution of the zero point of unsigned codes, zero * sum of the activation codes, is
 * compensated in the accumulator's start value.
 *
 * Activations. Rows are grouped in tiles of the sizes in `tile_rows` (gemm_next_tile), tile after
 * tile in memory: a tile that starts at row t starts at t times the bytes of one row. Within a
 * tile, the activations for plain weights are float [K/4][rows of the tile][4]; for quantised
 * weights struct gemm_block [K/32][rows of the tile], each block quantised separately; for panels
 * of pairs bf16 (rounded to nearest even) [K/32][rows of the tile][32], with zeros past K.
 *
 * All guarantees about bits:
 *
 * - Every output element is summed in one fixed order, for every tile and thread. So a format gives
 *   a row the same bits in any batch and with any number of threads.
 * - The formats of quantised weights, and those of plain ones that widen to float, have the same
 *   order on every level (K ascending, one fused multiply-add per step; for quantised weights per
 *   group of 32 or 16 that shares a scale, and one more for its minimum; within a group the sum is
 *   exact in integers): these are the common bits, `numerics` NULL.
 * - A format that rounds the activations to BF16, or sums by an instruction with a different order,
 *   names its bits in `numerics`. So does backend.numerics, which tells whether two backends give
 *   equal bits. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_CPU_GEMM_FORMAT_H
#define QUIRE_KERNELS_CPU_LEVELS_CPU_GEMM_FORMAT_H

#include "kernels/backend.h"
#include "kernels/cpu/memory/cpu_arena.h"
#include "kernels/cpu/levels/cpu_panel.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GEMM_CHUNK_ROWS 192 /* of a job: whole tiles of every packing */
#define FLOAT_RUN 4         /* activations of a row that lie together in a tile of plain weights */
#define GEMM_MAX_TILES 16
#define GEMM_MAX_PACKINGS 4 /* different packings of one matrix's formats */

/* 32 activations of one row: value = scale * code. One cache line. */
struct gemm_block {
    int32_t codes[PANEL_BLOCK / 4]; /* four signed bytes each, in memory order; -127..127 */
    float scale;
    float scaled_sum;  /* scale * sum of codes */
    int32_t start_8;   /* -8 * sum of codes */
    int32_t start_128; /* -128 * sum of codes */
    float half_scaled_sums[2];
    int32_t half_starts_32[2]; /* -32 * sum of 16 codes */
};

struct gemm_scale {
    float scale;
    float inverse;
};

/* Scale of a block whose largest magnitude has these bits. Blocks so small that the inverse would
 * overflow count as zero; a NaN, whose bits are larger than those of any number, stays one. */
static inline struct gemm_scale gemm_scale_of(uint32_t amax_bits) {
    float amax;
    memcpy(&amax, &amax_bits, sizeof(amax));
    if (amax < 1e-35f)
        return (struct gemm_scale){0.0f, 0.0f};
    return (struct gemm_scale){amax / 127.0f, 127.0f / amax};
}

/* Wraps around only if the scale is infinite or NaN. */
static inline int32_t gemm_start(uint32_t zero, int32_t sum) {
    return (int32_t)(0u - zero * (uint32_t)sum);
}

/* Fills in what follows from the sums of the first and the last 16 codes. */
static inline void gemm_block_finish(struct gemm_block *block, float scale, int32_t first,
                                     int32_t last) {
    int32_t sum = (int32_t)((uint32_t)first + (uint32_t)last);
    block->scale = scale;
    block->scaled_sum = scale * (float)sum;
    block->start_8 = gemm_start(8, sum);
    block->start_128 = gemm_start(128, sum);
    block->half_scaled_sums[0] = scale * (float)first;
    block->half_scaled_sums[1] = scale * (float)last;
    block->half_starts_32[0] = gemm_start(32, first);
    block->half_starts_32[1] = gemm_start(32, last);
}

/* Product of all rows with consecutive panels of one segment. */
struct gemm_job {
    const uint8_t *panels;
    const uint8_t *following; /* panels to be prefetched after these */
    size_t panel_bytes;
    int32_t num_panels;
    int32_t num_columns;     /* outputs of these panels; the last panel may have fewer than 16 */
    int32_t depth;           /* K */
    const void *activations; /* in tiles, as the format packs them */
    int32_t num_rows;        /* at most GEMM_CHUNK_ROWS */
    float *out;              /* element [0, first column of the panels] */
    size_t out_stride;       /* floats from row to row */
    const int32_t *out_rows; /* [num_rows] the rows' places in `out`; NULL: one after the other */
    const float *bias;       /* of the first column of the panels on; NULL: none */
    float scale;             /* of the product, before the bias */
    bool accumulate;
};

/* How activations are packed. The rows of a call are packed once for all segments whose formats
 * point to the same packing. */
struct cpu_row_packing {
    int32_t tile_rows[GEMM_MAX_TILES + 1]; /* descending, then zeros; fewer rows than the last size
                                              make a partly filled tile of that size */
    size_t (*row_bytes)(size_t depth);
    /* Writes row `row` of a tile of tile_rows rows. */
    void (*pack)(const float *x, int32_t depth, void *tile, int32_t row, int32_t tile_rows);
};

/* Returns the rows of the first tile of num_rows rows. The rows are split into as few tiles as
 * possible, of similar sizes, so that none is much smaller, and slower, than the others. */
static inline int32_t gemm_next_tile(const int32_t *tile_rows, int32_t num_rows) {
    int32_t num_tiles = (num_rows + tile_rows[0] - 1) / tile_rows[0];
    int32_t even_share = (num_rows + num_tiles - 1) / num_tiles;
    while (*tile_rows > even_share && tile_rows[1] != 0)
        tile_rows++;
    return *tile_rows;
}

/* Bytes of a row of the packings named above. */
size_t cpu_gemm_float_row_bytes(size_t depth);
size_t cpu_gemm_block_row_bytes(size_t depth);
size_t cpu_gemm_pair_row_bytes(size_t depth);
/* cpu_row_packing.pack for panels of blocks, the same bits by each level's instructions
 * (cpu_gemm_LEVEL.c), and for panels of pairs. */
void cpu_gemm_pack_blocks_portable(const float *x, int32_t depth, void *tile, int32_t row,
                                   int32_t tile_rows);
void cpu_gemm_pack_blocks_avx2(const float *x, int32_t depth, void *tile, int32_t row,
                               int32_t tile_rows);
void cpu_gemm_pack_blocks_avx512vnni(const float *x, int32_t depth, void *tile, int32_t row,
                                     int32_t tile_rows);
void cpu_gemm_pack_blocks_dotprod(const float *x, int32_t depth, void *tile, int32_t row,
                                  int32_t tile_rows);
void cpu_gemm_pack_pairs(const float *x, int32_t depth, void *tile, int32_t row, int32_t tile_rows);

struct cpu_gemm_format {
    const struct cpu_panel_layout *panel;
    const struct cpu_row_packing *rows;
    void (*multiply)(const struct gemm_job *job);
    const char *numerics; /* name of its bits; NULL: the common ones, see above */
};

struct matrix_segment {
    const struct cpu_gemm_format *format;
    enum dtype dtype;  /* of the file's rows */
    int packing;       /* which of the matrix's row packings the format takes */
    int32_t first_row; /* in the matrix */
    int32_t num_rows;
    int32_t first_panel; /* counted over the matrix */
    int32_t num_panels;
    size_t panel_bytes;
    uint8_t *panels; /* aligned to 64 bytes */
};

/* Never changes after its rows were filled in. */
struct matrix {
    int32_t rows;
    int32_t cols;
    int32_t num_panels;
    int32_t number; /* counted over all matrices of the backend so far */
    int num_packings;
    const struct cpu_row_packing
        *packings[GEMM_MAX_PACKINGS]; /* packings of its segments, each once */
    float *bias;                      /* [rows]; NULL: none */
    struct cpu_arena_span memory;
    int num_segments;
    struct matrix_segment segments[];
};

#endif
