/* Private to cuda_matrix.c and cuda_gemm.c: a matrix on the device, and what is known about
 * products with matrices of its shape. */
#ifndef QUIRE_KERNELS_CUDA_MATRIX_CUDA_GEMM_H
#define QUIRE_KERNELS_CUDA_MATRIX_CUDA_GEMM_H

#include "kernels/cuda/state/cuda_state.h"

/* The algorithms chosen for products with weights [rows, cols], filled in as they are first needed.
 * All matrices of a shape share one. */
struct gemm_shape;

struct matrix {
    int32_t rows;
    int32_t cols; /* a multiple of CUDA_MATRIX_COLS_STEP */
    struct buffer memory;
    void *values; /* [rows][cols] of activation_dtype */
    /* [rows] of each type a product can have, NULL without a bias: cuBLASLt wants the bias in the
     * type of the product. */
    void *bias; /* activation_dtype */
    float *float_bias;
    struct gemm_shape *shape;
    int num_parts;
    struct matrix_part parts[]; /* without data and bias: the parts that matrix_fill fills */
};

/* 16 bytes of 16-bit elements: rows then start where the fast kernels of cuBLASLt and the 16-byte
 * copies of the other ops can read them. */
#define CUDA_MATRIX_COLS_STEP 8

/* Finds or creates the shape, which lives as long as the backend. NULL with ERROR_MEMORY. */
struct gemm_shape *cuda_gemm_shape(struct cuda_backend *b, int32_t rows, int32_t cols, bool biased,
                                   struct error *err);

#endif
