/* One product out = x W^T as cuBLASLt sees it, and the algorithms that the library offers for it.
 * Shared by the backend, which uses one of them (cuda_gemm.c), and by the benchmark that times all
 * of them (tests/kernels/bench_products.c). It depends only on cuBLASLt, so that a program can use
 * it without a backend.
 *
 * cuBLASLt's matrices are column major, so it sees a row-major matrix as its transpose, and the
 * call is
 *
 *   out^T [N, M] = op_T(W^T [K, N]) x^T [K, M]     M rows of x, W [N, K]; ld: K, K, out_stride
 *
 * in float, with a scale as alpha, a residual as C with beta = 1 and a bias in the epilogue.
 *
 * Everything is on the stack: describing a product allocates nothing. Functions may be called from
 * any thread; they return cuBLASLt's own status. */
#ifndef QUIRE_KERNELS_CUDA_MATRIX_CUDA_PRODUCT_H
#define QUIRE_KERNELS_CUDA_MATRIX_CUDA_PRODUCT_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is fixed before the number of rows of x is known. */
struct cuda_product_form {
    cudaDataType_t type;     /* of x and W: CUDA_R_16BF, CUDA_R_16F or CUDA_R_8F_E4M3 */
    cudaDataType_t out_type; /* that one or, of E4M3, any 16-bit one; or CUDA_R_32F */
    int32_t rows, cols;      /* N and K */
    int32_t out_stride;      /* elements of a row of the result, at least N */
    /* Of E4M3, on the device: what rows of W [N] and of x [M] are multiplied with. Compute
     * capability 9.0 alone takes them, and no bias with an out_type of CUDA_R_32F. */
    const float *weight_scales, *x_scales;
    const void *bias; /* [N] of out_type on the device, aligned as cudaMalloc; NULL: none */
};

/* Not changed by any function but _init; cuBLASLt takes descriptors as not const. */
struct cuda_product {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t weights, x, out;
};

/* The arrays of a call, on the device. */
struct cuda_product_arrays {
    const void *weights, *x;
    const void *addend; /* as out, which it may be; NULL: nothing is added */
    void *out;
    float scale;
    void *workspace; /* [workspace_bytes] */
    size_t workspace_bytes;
};

cublasStatus_t cuda_product_init(struct cuda_product *out, const struct cuda_product_form *form,
                                 int32_t num_rows);

/* Finds the algorithms that need no larger workspace among the first `max` of the heuristic, in its
 * order: the fastest by its estimate first. Finding none is a success too. */
cublasStatus_t cuda_product_candidates(cublasLtHandle_t handle, struct cuda_product *product,
                                       size_t workspace_bytes, int max, cublasLtMatmulAlgo_t out[],
                                       int *out_num);

/* Enqueues. */
cublasStatus_t cuda_product_multiply(cublasLtHandle_t handle, struct cuda_product *product,
                                     const cublasLtMatmulAlgo_t *algorithm,
                                     const struct cuda_product_arrays *arrays, cudaStream_t stream);

/* Returns whether a status means that the algorithm does not support this product: nothing was
 * enqueued, and another algorithm may work. */
bool cuda_product_is_refusal(cublasStatus_t status);

/* The workspace that NVIDIA recommends for GPUs of this compute capability (cuBLAS documentation,
 * cublasSetWorkspace). */
size_t cuda_product_workspace_bytes(int compute_capability_major);

#endif
