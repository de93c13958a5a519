/* One block per row (rmsnorm), or blocks side by side along a row (the others). All are bound by
 * memory: what counts is 16-byte accesses and enough of them in flight. */
#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/vector_access.cuh"

#define MAX_WARPS 32
#define ROW_BLOCK 256

/* The sum over all threads of the block, to each of them. */
__device__ float block_sum(float value) {
    __shared__ float partial[MAX_WARPS];
    int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    int num_warps = blockDim.x / WARP_SIZE;
#pragma unroll
    for (int d = WARP_SIZE / 2; d > 0; d /= 2)
        value += __shfl_xor_sync(FULL_MASK, value, d);
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    float sum = lane < num_warps ? partial[lane] : 0.0f;
#pragma unroll
    for (int d = WARP_SIZE / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(FULL_MASK, sum, d);
    return sum;
}

template <class T, int N>
__global__ void __launch_bounds__(1024)
    rmsnorm_kernel(const T *x, const float *weight, T *out, int32_t width, float epsilon) {
    const T *row = x + (size_t)blockIdx.x * width;
    T *out_row = out + (size_t)blockIdx.x * width;
    int32_t step = (int32_t)blockDim.x * N, first = (int32_t)threadIdx.x * N;
    float squares = 0.0f;
    for (int32_t i = first; i < width; i += step) {
        float v[N];
        load_floats(v, row + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            squares += v[k] * v[k];
    }
    float scale = rsqrtf(block_sum(squares) / (float)width + epsilon);
    for (int32_t i = first; i < width; i += step) {
        float v[N];
        load_floats(v, row + i);
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = v[k] * scale * weight[i + k];
        store_floats(out_row + i, v);
    }
}

template <class T, int N>
static void rmsnorm(cudaStream_t stream, const T *x, const float *weight, T *out, int32_t num_rows,
                    int32_t width, float epsilon) {
    int32_t warps = (width / N + WARP_SIZE - 1) / WARP_SIZE;
    int32_t block = (warps < 1 ? 1 : warps > MAX_WARPS ? MAX_WARPS : warps) * WARP_SIZE;
    LAUNCH((rmsnorm_kernel<T, N>), num_rows, block, 0, stream, x, weight, out, width, epsilon);
}

template <class T>
static void rmsnorm_rows(cudaStream_t stream, const void *x, const float *weight, void *out,
                         int32_t num_rows, int32_t width, float epsilon) {
    const T *from = static_cast<const T *>(x);
    T *to = static_cast<T *>(out);
    if (width % 8 == 0 && is_aligned_16(x) && is_aligned_16(out))
        rmsnorm<T, 8>(stream, from, weight, to, num_rows, width, epsilon);
    else
        rmsnorm<T, 1>(stream, from, weight, to, num_rows, width, epsilon);
}

cudaError_t launch_rmsnorm(cudaStream_t stream, bool bf16, const void *x, const float *weight,
                           void *out, int32_t num_rows, int32_t width, float epsilon) {
    if (bf16)
        rmsnorm_rows<__nv_bfloat16>(stream, x, weight, out, num_rows, width, epsilon);
    else
        rmsnorm_rows<__half>(stream, x, weight, out, num_rows, width, epsilon);
    return cudaGetLastError();
}

#define LOG2_E 1.4426950408889634f

__device__ __forceinline__ float silu(float x) {
    return x / (1.0f + exp2_fast(-LOG2_E * x));
}

template <class T, int N> __global__ void silu_mul_kernel(const T *gate_up, T *out, int32_t width) {
    int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (i >= width)
        return;
    const T *gate_row = gate_up + (size_t)blockIdx.x * 2 * width;
    float gate[N], up[N];
    load_floats(gate, gate_row + i);
    load_floats(up, gate_row + width + i);
#pragma unroll
    for (int k = 0; k < N; k++)
        gate[k] = silu(gate[k]) * up[k];
    store_floats(out + (size_t)blockIdx.x * width + i, gate);
}

/* Rows along x, which has room for 2^31; pieces of a row along y, of which there are few. */
static dim3 row_grid(int32_t num_rows, int32_t width, int n) {
    return dim3((unsigned)num_rows, (unsigned)((width / n + ROW_BLOCK - 1) / ROW_BLOCK));
}

template <class T>
static void silu_mul_rows(cudaStream_t stream, const void *gate_up, void *out, int32_t num_rows,
                          int32_t width) {
    const T *from = static_cast<const T *>(gate_up);
    T *to = static_cast<T *>(out);
    if (width % 8 == 0 && is_aligned_16(gate_up) && is_aligned_16(out))
        LAUNCH((silu_mul_kernel<T, 8>), row_grid(num_rows, width, 8), ROW_BLOCK, 0, stream, from,
               to, width);
    else
        LAUNCH((silu_mul_kernel<T, 1>), row_grid(num_rows, width, 1), ROW_BLOCK, 0, stream, from,
               to, width);
}

cudaError_t launch_silu_mul(cudaStream_t stream, bool bf16, const void *gate_up, void *out,
                            int32_t num_rows, int32_t width) {
    if (bf16)
        silu_mul_rows<__nv_bfloat16>(stream, gate_up, out, num_rows, width);
    else
        silu_mul_rows<__half>(stream, gate_up, out, num_rows, width);
    return cudaGetLastError();
}

template <int N>
__global__ void gather_rows_kernel(const uint16_t *x, const int32_t *rows, uint16_t *out,
                                   int32_t width) {
    int32_t i = (int32_t)(blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (i < width)
        copy_elements<N>(out + (size_t)blockIdx.x * width + i,
                         x + (size_t)rows[blockIdx.x] * width + i);
}

cudaError_t launch_gather_rows(cudaStream_t stream, const void *x, const int32_t *rows, void *out,
                               int32_t num_rows, int32_t width) {
    const uint16_t *from = static_cast<const uint16_t *>(x);
    uint16_t *to = static_cast<uint16_t *>(out);
    if (width % 8 == 0 && is_aligned_16(x) && is_aligned_16(out))
        LAUNCH(gather_rows_kernel<8>, row_grid(num_rows, width, 8), ROW_BLOCK, 0, stream, from,
               rows, to, width);
    else
        LAUNCH(gather_rows_kernel<1>, row_grid(num_rows, width, 1), ROW_BLOCK, 0, stream, from,
               rows, to, width);
    return cudaGetLastError();
}
