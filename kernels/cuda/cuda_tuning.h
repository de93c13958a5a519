/* Private to cuda_gemm.c and cuda_backend.c: the fastest of cuBLASLt's algorithms for a product, by
 * the device's clock (kernels/tuning.h).
 *
 * Each algorithm runs once for its result, which must be the first one's but for rounding, and five
 * times for its time, in turns with the others, with an L2 cache that holds nothing of the product,
 * as in a step, where the weights of all other products were read meanwhile. The median decides,
 * and another one than the first is taken only where it is 2 % faster, so that starts seldom
 * differ. */
#ifndef QUIRE_KERNELS_CUDA_CUDA_TUNING_H
#define QUIRE_KERNELS_CUDA_CUDA_TUNING_H

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_product.h"

/* Algorithms of a product that are looked at, the first that cuBLASLt names. */
#define CUDA_TUNING_MAX_ALGORITHMS 8

struct cuda_tuned_product {
    cublasLtHandle_t handle;
    struct cuda_product_form form;
    int32_t num_rows;
    struct cuda_product_arrays arrays; /* out is not written */
};

/* Returns the index of the fastest, waiting for the device; 0 where it is not found out: there is
 * no tuning now, or its budget is spent. Algorithms that are refused, or whose result is not that
 * of the first one, are left out, and another one than the first is taken only where it is faster
 * by more than what runs differ by. */
int cuda_tuning_fastest(struct cuda_backend *b, const struct cuda_tuned_product *product,
                        const cublasLtMatmulAlgo_t algorithms[], int num_algorithms);

/* Ends what was begun, if anything. */
void cuda_tuning_destroy(struct cuda_backend *b);

extern const struct tuning_ops cuda_tuning_ops;

#endif
