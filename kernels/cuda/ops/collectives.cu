/* A thread has its elements of all parts, and adds them in the order of the ranks. */
#include "kernels/cuda/device/block_sum.cuh"
#include "kernels/cuda/ops/collectives_launch.h"
#include "kernels/cuda/device/vector_access.cuh"

#define BLOCK 256

template <class T, int N>
__global__ void sum_parts_kernel(const T *parts, int32_t num_parts, T *out, int64_t n,
                                 bool accumulate) {
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (i >= n)
        return;
    float sum[N];
    load_floats(sum, parts + i);
    for (int32_t p = 1; p < num_parts; p++) {
        float part[N];
        load_floats(part, parts + p * n + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] += part[k];
    }
    if (accumulate) {
        float before[N];
        load_floats(before, out + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] = before[k] + sum[k];
    }
    store_floats(out + i, sum);
}

template <class T>
static void sum_parts(cudaStream_t stream, const void *parts, int32_t num_parts, void *out,
                      int64_t n, bool accumulate) {
    const T *from = static_cast<const T *>(parts);
    T *to = static_cast<T *>(out);
    if (n % 8 == 0 && is_aligned_16(parts) && is_aligned_16(out))
        LAUNCH((sum_parts_kernel<T, 8>), (unsigned)((n / 8 + BLOCK - 1) / BLOCK), BLOCK, 0, stream,
               from, num_parts, to, n, accumulate);
    else
        LAUNCH((sum_parts_kernel<T, 1>), (unsigned)((n + BLOCK - 1) / BLOCK), BLOCK, 0, stream,
               from, num_parts, to, n, accumulate);
}

cudaError_t launch_sum_parts(cudaStream_t stream, bool bf16, const void *parts, int32_t num_parts,
                             void *out, int64_t n, bool accumulate) {
    if (bf16)
        sum_parts<__nv_bfloat16>(stream, parts, num_parts, out, n, accumulate);
    else
        sum_parts<__half>(stream, parts, num_parts, out, n, accumulate);
    return cudaGetLastError();
}

/* --- Norm: a block has a row --- */

template <class T> __global__ void square_sums_kernel(const norm_over_ranks_launch a, float *sums) {
    const T *x = static_cast<const T *>(a.x) + (size_t)blockIdx.x * a.row_stride;
    float squares = 0.0f;
    for (int32_t i = (int32_t)threadIdx.x; i < a.width; i += BLOCK) {
        float v = to_float(x[i]);
        squares += v * v;
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = squares;
}

cudaError_t launch_square_sums(cudaStream_t stream, const struct norm_over_ranks_launch *args,
                               float *sums) {
    if (args->bf16)
        LAUNCH(square_sums_kernel<__nv_bfloat16>, (unsigned)args->num_rows, BLOCK, 0, stream, *args,
               sums);
    else
        LAUNCH(square_sums_kernel<__half>, (unsigned)args->num_rows, BLOCK, 0, stream, *args, sums);
    return cudaGetLastError();
}

template <class T>
__global__ void norm_by_sums_kernel(const norm_over_ranks_launch a, const float *sums,
                                    int32_t num_parts) {
    const T *x = static_cast<const T *>(a.x) + (size_t)blockIdx.x * a.row_stride;
    T *out = static_cast<T *>(a.out) + (size_t)blockIdx.x * a.row_stride;
    float squares = 0.0f;
    for (int32_t p = 0; p < num_parts; p++)
        squares += sums[(size_t)p * a.num_rows + blockIdx.x];
    float scale = rsqrtf(squares / (float)a.total_width + a.epsilon);
    for (int32_t i = (int32_t)threadIdx.x; i < a.width; i += BLOCK) {
        float v = to_float(x[i]) * scale * a.weight[i];
        out[i] = from_float<T>(a.accumulate ? v + to_float(out[i]) : v);
    }
}

cudaError_t launch_norm_by_sums(cudaStream_t stream, const struct norm_over_ranks_launch *args,
                                const float *sums, int32_t num_parts) {
    if (args->bf16)
        LAUNCH(norm_by_sums_kernel<__nv_bfloat16>, (unsigned)args->num_rows, BLOCK, 0, stream,
               *args, sums, num_parts);
    else
        LAUNCH(norm_by_sums_kernel<__half>, (unsigned)args->num_rows, BLOCK, 0, stream, *args, sums,
               num_parts);
    return cudaGetLastError();
}

__global__ void place_columns_kernel(const float *x, int32_t width, float *out, int64_t stride) {
    int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x);
    if (i < width)
        out[(int64_t)blockIdx.x * stride + i] = x[(size_t)blockIdx.x * width + i];
}

cudaError_t launch_place_columns(cudaStream_t stream, const float *x, int32_t width, float *out,
                                 int64_t stride, int32_t num_rows) {
    dim3 grid((unsigned)num_rows, (unsigned)((width + BLOCK - 1) / BLOCK));
    LAUNCH(place_columns_kernel, grid, BLOCK, 0, stream, x, width, out, stride);
    return cudaGetLastError();
}
