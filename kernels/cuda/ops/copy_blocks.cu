/* Grid: chunks of a block along x, blocks along y. A thread has UNROLL loads of 16 bytes in flight
 * before it stores. */
#include "kernels/cuda/ops/copy_blocks_launch.h"
#include "kernels/cuda/device/device.cuh"

#define BLOCK 256
#define UNROLL 4

__global__ void copy_blocks_kernel(uint4 *pool, size_t block_vectors, const int32_t *src,
                                   const int32_t *dst) {
    const uint4 *from = pool + (size_t)src[blockIdx.y] * block_vectors;
    uint4 *to = pool + (size_t)dst[blockIdx.y] * block_vectors;
    size_t first = (size_t)blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
    uint4 v[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (first + i * BLOCK < block_vectors)
            v[i] = from[first + i * BLOCK];
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
        if (first + i * BLOCK < block_vectors)
            to[first + i * BLOCK] = v[i];
}

cudaError_t launch_copy_blocks(cudaStream_t stream, void *pool, size_t block_bytes,
                               const int32_t *src, const int32_t *dst, int32_t num_blocks) {
    size_t vectors = block_bytes / sizeof(uint4);
    size_t chunks = (vectors + BLOCK * UNROLL - 1) / (BLOCK * UNROLL);
    LAUNCH(copy_blocks_kernel, dim3((unsigned)chunks, (unsigned)num_blocks), BLOCK, 0, stream,
           static_cast<uint4 *>(pool), vectors, src, dst);
    return cudaGetLastError();
}
