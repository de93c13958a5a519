/* Kernels that read packed weights (packed_layout.h). Activations are bf16, otherwise f16. Pointers
 * are to device memory. */
#ifndef QUIRE_KERNELS_CUDA_PACKED_PACKED_LAUNCH_H
#define QUIRE_KERNELS_CUDA_PACKED_PACKED_LAUNCH_H

#include "kernels/backend.h"
#include "kernels/cuda/packed/packed_layout.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PACKED_NARROW_ROWS 8 /* of x, up to which tiles are narrow */
/* Rows of a wide tile: of the weights, and at most of x. */
#define PACKED_WIDE_ROWS 128
#define PACKED_WIDE_X 64
#define PACKED_SPLIT_TILE_BYTES ((size_t)4 * PACKED_WIDE_ROWS * PACKED_WIDE_X * sizeof(float))

/* Where the sums of tiles that are split wait for each other. */
struct packed_splits {
    float *sums;       /* [max_tiles] of PACKED_SPLIT_TILE_BYTES */
    int32_t *counts;   /* [max_tiles], zeros between launches */
    int32_t max_tiles; /* that are split; more are enough for the device as they are */
};

/* Like struct linear_args, of weights of one form. The bits of a row of the result depend only on
 * that row of x. */
struct packed_product_launch {
    struct packed_planes planes;
    const void *x;         /* [num_rows, cols], rows begin at multiples of 16 bytes */
    const float *x_scales; /* [num_rows] of launch_packed_fp8 */
    const float *bias;     /* [rows]; NULL: none */
    const void *addend;    /* as out, which it may be; NULL: nothing is added */
    void *out;             /* [num_rows, out_stride]; float, or as x */
    struct packed_splits splits;
    int32_t num_rows;
    int32_t rows, cols;
    int32_t out_stride;
    float scale;
    bool float_out;
    bool bf16;
    bool begins_early; /* before what the stream has before it is done: only if packed_code says
                          that the product was compiled for 9.0 or later */
    /* Rows of the weights are those of a gate, then as many of an up, and out [num_rows, rows / 2]
     * is that of `linear_gated`. num_rows <= PACKED_NARROW_ROWS, scale is 1, there is no addend and
     * no float_out. */
    bool gated;
    enum activation activation;
};

/* Of a form, by its number in packed_forms: those before Q2_K, those before I4_32, and the others.
 * Each of the functions takes long to compile. */
cudaError_t launch_packed_32(cudaStream_t stream, int form,
                             const struct packed_product_launch *args);
cudaError_t launch_packed_256(cudaStream_t stream, int form,
                              const struct packed_product_launch *args);
cudaError_t launch_packed_checkpoint(cudaStream_t stream, int form,
                                     const struct packed_product_launch *args);

/* Returns the compute capability that the products of this device were compiled for, as 80 for 8.0:
 * its own, or an earlier one. */
cudaError_t packed_code(int *out);

/* Of weights [rows, cols] of the activations' type, at planes.at[PACKED_LOW]; cols is a multiple of
 * 8. */
cudaError_t launch_plain_product(cudaStream_t stream, const struct packed_product_launch *args);

/* Of weights of E4M3 and x of codes of E4M3 in the order of packed_layout.h, each row of it times
 * its scale. No weight is a NaN. For sm_89 and later. */
cudaError_t launch_packed_fp8(cudaStream_t stream, const struct packed_product_launch *args);

/* Each row's codes for that, and its scale: its largest magnitude is code 448. A row of zeros has
 * scale 0, and one that is not finite NaN, each with zeros as codes. */
struct quantise_launch {
    const void *x;  /* [num_rows, cols], rows begin at multiples of 16 bytes */
    uint8_t *codes; /* likewise */
    float *scales;  /* [num_rows] */
    int32_t num_rows;
    int32_t cols; /* a multiple of PACKED_CHUNK */
    bool bf16;
};

cudaError_t launch_quantise(cudaStream_t stream, const struct quantise_launch *args);

/* out[t] = scale * the row of token t (struct embed_launch), for tokens whose row is in a segment
 * of the table: rows segment_row to segment_row + num_rows - 1. Others are left alone, or, those
 * without a row in the table, cleared. */
struct packed_embed_launch {
    struct packed_planes planes;
    const int32_t *token_ids;  /* [num_tokens]; NULL: the table's rows in order */
    const int32_t *token_rows; /* [num_tokens] or NULL */
    const int32_t *sampled_tokens;
    void *out;         /* [num_tokens, width] */
    int32_t first_row; /* token whose row is the table's first */
    int32_t table_rows, segment_row, num_rows;
    int32_t num_tokens, width;
    float scale;
    bool clears; /* what has no row in the table */
    bool bf16;
};

cudaError_t launch_packed_embed(cudaStream_t stream, int form,
                                const struct packed_embed_launch *args);

#ifdef __cplusplus
}
#endif

#endif
