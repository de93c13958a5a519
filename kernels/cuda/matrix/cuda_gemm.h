/* Private to cuda_matrix.c, cuda_gemm.c and cuda_packed_weights.c: a matrix on the device, what is
 * known about products with matrices of its shape, and what is done with packed ones. */
#ifndef QUIRE_KERNELS_CUDA_MATRIX_CUDA_GEMM_H
#define QUIRE_KERNELS_CUDA_MATRIX_CUDA_GEMM_H

#include "kernels/cuda/packed/packed_launch.h"
#include "kernels/cuda/state/cuda_state.h"

/* The algorithms chosen for products with weights [rows, cols], filled in as they are first needed.
 * All matrices of a shape share one. */
struct gemm_shape;

/* Neighbouring parts of one type. */
struct matrix_segment {
    enum dtype dtype; /* of the file */
    int32_t first_row, num_rows;
    int form;                    /* of packed weights (packed_layout.h) */
    struct packed_planes planes; /* likewise */
};

struct matrix {
    int32_t rows;
    int32_t cols; /* a multiple of CUDA_MATRIX_COLS_STEP */
    struct buffer memory;
    void *values; /* [rows][cols] of activation_dtype; NULL: the segments are packed */
    /* [rows] of each type a product can have, NULL without a bias: cuBLASLt wants the bias in the
     * type of the product. */
    void *bias; /* activation_dtype; NULL of packed ones too */
    float *float_bias;
    struct gemm_shape *shape; /* NULL: packed */
    int num_segments;
    struct matrix_segment segments[];
};

/* 16 bytes of 16-bit elements: rows then start where the fast kernels of cuBLASLt and the 16-byte
 * copies of the other ops can read them. */
#define CUDA_MATRIX_COLS_STEP 8

/* Finds or creates the shape, which lives as long as the backend. NULL with ERROR_MEMORY. */
struct gemm_shape *cuda_gemm_shape(struct cuda_backend *b, int32_t rows, int32_t cols, bool biased,
                                   struct error *err);

/* Memory of the backend for products of our own, of which one is enqueued at a time. */
struct packed_splits cuda_gemm_splits(const struct cuda_backend *b);

/* cuda_packed_weights.c */
/* Packs rows of a file, of which `data` has num_rows, and sends them to rows first_row on of the
 * segment. Fails when the device does. */
int cuda_packed_fill(struct cuda_backend *b, const struct matrix_segment *segment, int32_t cols,
                     int32_t first_row, int32_t num_rows, const void *data, struct error *err);
/* Without values. */
void cuda_packed_linear(struct cuda_backend *b, const struct linear_args *args);
/* With values, of any number of rows. Writes to `out` what the product would leave in args->out,
 * which may be the same. */
void cuda_plain_linear(struct cuda_backend *b, const struct linear_args *args, void *out);
void cuda_packed_embed(struct cuda_backend *b, const struct embed_args *args);

#endif
