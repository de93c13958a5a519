/* Grid: as many blocks as the GPU holds, each goes through the memory in strides of the grid. A
 * thread has UNROLL loads of 16 bytes in flight; a warp adds its sum to the result once. */
#include "kernels/cuda/device/device.cuh"
#include "tests/kernels/read_limit_launch.h"

#define BLOCK 512
#define UNROLL 8

__global__ void __launch_bounds__(BLOCK)
    read_kernel(const uint4 *x, size_t num_vectors, uint32_t *sum) {
    uint32_t own = 0;
    size_t stride = (size_t)gridDim.x * (BLOCK * UNROLL);
    for (size_t first = (size_t)blockIdx.x * (BLOCK * UNROLL) + threadIdx.x; first < num_vectors;
         first += stride) {
        uint4 v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
            v[i] = first + i * BLOCK < num_vectors ? x[first + i * BLOCK] : uint4{0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < UNROLL; i++)
            own += v[i].x + v[i].y + v[i].z + v[i].w;
    }
    for (int lanes = WARP_SIZE / 2; lanes > 0; lanes /= 2)
        own += __shfl_xor_sync(FULL_MASK, own, lanes);
    if (threadIdx.x % WARP_SIZE == 0)
        atomicAdd(sum, own);
}

cudaError_t launch_read(cudaStream_t stream, const void *x, size_t bytes, int num_multiprocessors,
                        uint32_t *sum) {
    LAUNCH(read_kernel, dim3((unsigned)num_multiprocessors * 4), BLOCK, 0, stream,
           static_cast<const uint4 *>(x), bytes / sizeof(uint4), sum);
    return cudaGetLastError();
}
