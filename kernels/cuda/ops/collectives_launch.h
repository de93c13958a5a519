/* What a rank computes from the gathered parts of all ranks. */
#ifndef QUIRE_KERNELS_CUDA_OPS_COLLECTIVES_LAUNCH_H
#define QUIRE_KERNELS_CUDA_OPS_COLLECTIVES_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = or += the sum of parts[part * n + i] over the parts, in their order and in float; bf16,
 * otherwise f16. out may be the first part if it is the only one. */
cudaError_t launch_sum_parts(cudaStream_t stream, bool bf16, const void *parts, int32_t num_parts,
                             void *out, int64_t n, bool accumulate);

/* Like `struct norm_args` of kernels/backend.h, with one group per row and without `center`. */
struct norm_over_ranks_launch {
    const void *x;
    const float *weight; /* [width] */
    void *out;           /* may be x */
    int32_t num_rows;
    int32_t row_stride; /* elements */
    int32_t width;
    int32_t total_width;
    float epsilon;
    bool accumulate;
    bool bf16;
};

/* sums[row] = sum of the squares of the row's elements, in float. */
cudaError_t launch_square_sums(cudaStream_t stream, const struct norm_over_ranks_launch *args,
                               float *sums);
/* The norm, with the sum of sums[part * num_rows + row] over the parts, in their order. */
cudaError_t launch_norm_by_sums(cudaStream_t stream, const struct norm_over_ranks_launch *args,
                                const float *sums, int32_t num_parts);

/* Copies row r of x, [num_rows, width], to out + r * stride. */
cudaError_t launch_place_columns(cudaStream_t stream, const float *x, int32_t width, float *out,
                                 int64_t stride, int32_t num_rows);

#ifdef __cplusplus
}
#endif

#endif
