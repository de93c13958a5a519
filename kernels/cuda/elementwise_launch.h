/* Row-wise kernels on 16-bit elements: bf16, or else f16. Pointers are to device memory; rows and
 * widths may be of any size > 0. The bits of a row depend on that row alone. */
#ifndef QUIRE_KERNELS_CUDA_ELEMENTWISE_LAUNCH_H
#define QUIRE_KERNELS_CUDA_ELEMENTWISE_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x and out [num_rows, width], weight [width]; out may be x. The sum of squares is in float. */
cudaError_t launch_rmsnorm(cudaStream_t stream, bool bf16, const void *x, const float *weight,
                           void *out, int32_t num_rows, int32_t width, float epsilon);
/* gate_up [num_rows, 2 * width], out [num_rows, width]; computed in float. */
cudaError_t launch_silu_mul(cudaStream_t stream, bool bf16, const void *gate_up, void *out,
                            int32_t num_rows, int32_t width);
/* out[r] = x[rows[r]], rows of `width` 16-bit elements of whatever type. */
cudaError_t launch_gather_rows(cudaStream_t stream, const void *x, const int32_t *rows, void *out,
                               int32_t num_rows, int32_t width);

#ifdef __cplusplus
}
#endif

#endif
