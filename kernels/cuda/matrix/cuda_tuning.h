/* Private to cuda_gemm.c and cuda_backend.c: the fastest algorithm for a product, of cuBLASLt's and
 * our own, by the device's clock (kernels/tuning.h).
 *
 * Each algorithm runs once for its result, which must equal the first one's except for rounding,
 * and five times for its time, alternating with the others. The L2 cache holds nothing of the
 * product, as in a step, where the weights of all other products were read in between. The median
 * decides, and an algorithm other than the first is chosen only if it is 2 % faster, so that starts
 * seldom differ. */
#ifndef QUIRE_KERNELS_CUDA_MATRIX_CUDA_TUNING_H
#define QUIRE_KERNELS_CUDA_MATRIX_CUDA_TUNING_H

#include "kernels/cuda/matrix/cuda_packed_weights.h"
#include "kernels/cuda/matrix/cuda_product.h"

/* Number of the first algorithms of a product that are tried. */
#define CUDA_TUNING_MAX_ALGORITHMS 8

struct cuda_algorithm {
    bool is_ours; /* cuda_multiply_ours */
    cublasLtMatmulAlgo_t of_cublaslt;
};

struct cuda_tuned_product {
    const struct gemm_part *part;
    cublasLtHandle_t handle;
    struct cuda_product_form form;
    int32_t num_rows;
    struct cuda_product_arrays arrays; /* out is not written */
    void *widened;                     /* where packed weights are to be; NULL: they are plain */
};

/* Returns the index of the fastest algorithm, waiting for the device; 0 if it is not measured
 * because no tuning is in progress or its budget is spent. Algorithms that are refused, or whose
 * result differs from the first one's, are left out. One other than the first is chosen only if it
 * is faster by more than runs vary. */
int cuda_tuning_fastest(struct cuda_backend *b, const struct cuda_tuned_product *product,
                        const struct cuda_algorithm algorithms[], int num_algorithms);

/* Ends a tuning in progress, if any. */
void cuda_tuning_destroy(struct cuda_backend *b);

extern const struct tuning_ops cuda_tuning_ops;

#endif
