/* CUDA_TRY and CUDA_START of cuda_check.h for calls of cuBLASLt, named without their arguments:
 * CUBLAS_TRY(b, cublasLtMatmul, handle, ...). */
#ifndef QUIRE_KERNELS_CUDA_MATRIX_CUBLAS_CHECK_H
#define QUIRE_KERNELS_CUDA_MATRIX_CUBLAS_CHECK_H

#include "kernels/cuda/state/cuda_check.h"

#include <cublasLt.h>

/* While running: calls unless something failed before, and keeps the failure. True when it
 * succeeded. */
#define CUBLAS_TRY(b, function, ...)                                                               \
    (CUDA_OK(b) ? cublas_check_keep(b, function(__VA_ARGS__), #function, __FILE__, __LINE__)       \
                : false)

/* While handles are released: like CUDA_RELEASE. */
#define CUBLAS_RELEASE(b, function, ...)                                                           \
    cublas_check_keep(b, function(__VA_ARGS__), #function, __FILE__, __LINE__)

/* At start: 0, or -1 with err: ERROR_MEMORY if the library says so, otherwise ERROR_DEVICE. */
#define CUBLAS_START(err, function, ...)                                                           \
    cublas_check_start(function(__VA_ARGS__), #function, __FILE__, __LINE__, err)

/* Returns whether `status` is success; the first failure is kept in b->failure. */
bool cublas_check_keep(struct cuda_backend *b, cublasStatus_t status, const char *function,
                       const char *file, int line);
int cublas_check_start(cublasStatus_t status, const char *function, const char *file, int line,
                       struct error *err);

#endif
