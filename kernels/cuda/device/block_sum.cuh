/* Sums over the threads of a warp or block, in a fixed order. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_BLOCK_SUM_CUH
#define QUIRE_KERNELS_CUDA_DEVICE_BLOCK_SUM_CUH

#include "kernels/cuda/device/device.cuh"

#define MAX_WARPS 32

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int d = WARP_SIZE / 2; d > 0; d /= 2)
        value += __shfl_xor_sync(FULL_MASK, value, d);
    return value;
}

/* The sum over all threads of the block, to each of them. */
static inline __device__ float block_sum(float value) {
    __shared__ float partial[MAX_WARPS];
    int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    int num_warps = blockDim.x / WARP_SIZE;
    value = warp_sum(value);
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    return warp_sum(lane < num_warps ? partial[lane] : 0.0f);
}

#endif
