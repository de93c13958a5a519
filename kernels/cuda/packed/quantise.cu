/* Rows of activations as codes of E4M3, a block for each. */
#include "kernels/cuda/device/kv_codes.cuh"
#include "kernels/cuda/device/vector_access.cuh"
#include "kernels/cuda/packed/packed_launch.h"

namespace {

constexpr int row_threads = 256, row_warps = row_threads / WARP_SIZE;
constexpr int unit = 8; /* columns of a thread at a time: the codes of a lane and group */

/* Of all threads, to each of them. */
__device__ __forceinline__ uint32_t block_max(uint32_t value) {
    __shared__ uint32_t of_warps[row_warps];
#pragma unroll
    for (int d = WARP_SIZE / 2; d > 0; d /= 2)
        value = max(value, (uint32_t)__shfl_xor_sync(FULL_MASK, value, d));
    if (threadIdx.x % WARP_SIZE == 0)
        of_warps[threadIdx.x / WARP_SIZE] = value;
    __syncthreads();
#pragma unroll
    for (int warp = 0; warp < row_warps; warp++)
        value = max(value, of_warps[warp]);
    return value;
}

/* Where the codes of 8 columns from `column` on lie (packed_layout.h). */
__device__ __forceinline__ int place_of(int column) {
    const int j = column % PACKED_CHUNK / 32, t = column % 32 / 8;
    return column / PACKED_CHUNK * PACKED_CHUNK + 32 * t + 8 * j;
}

template <class T>
__global__ void __launch_bounds__(row_threads)
    quantise_kernel(const __grid_constant__ quantise_launch a) {
    const T *x = static_cast<const T *>(a.x) + (int64_t)blockIdx.x * a.cols;
    uint8_t *codes = a.codes + (int64_t)blockIdx.x * a.cols;
    let_next_begin();
    uint32_t largest = 0; /* bits of a magnitude; a NaN's are more than any number's */
    for (int column = (int)threadIdx.x * unit; column < a.cols; column += row_threads * unit) {
        float values[unit];
        load_floats(values, x + column);
#pragma unroll
        for (int i = 0; i < unit; i++)
            largest = max(largest, __float_as_uint(values[i]) & 0x7fffffff);
    }
    const float scale = kv_scale_of(KV_E4M3, block_max(largest));
    for (int column = (int)threadIdx.x * unit; column < a.cols; column += row_threads * unit) {
        float values[unit];
        load_floats(values, x + column);
        *reinterpret_cast<uint2 *>(codes + place_of(column)) = pack_codes(KV_E4M3, values, scale);
    }
    if (threadIdx.x == 0)
        a.scales[blockIdx.x] = scale;
}

} // namespace

cudaError_t launch_quantise(cudaStream_t stream, const struct quantise_launch *args) {
    if (args->bf16)
        LAUNCH(quantise_kernel<__nv_bfloat16>, (unsigned)args->num_rows, row_threads, 0, stream,
               *args);
    else
        LAUNCH(quantise_kernel<__half>, (unsigned)args->num_rows, row_threads, 0, stream, *args);
    return cudaGetLastError();
}
