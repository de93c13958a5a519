/* Copies blocks within the KV pool. */
#ifndef QUIRE_KERNELS_CUDA_OPS_COPY_BLOCKS_LAUNCH_H
#define QUIRE_KERNELS_CUDA_OPS_COPY_BLOCKS_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Block dst[i] = block src[i]; src and dst are device memory [num_blocks], num_blocks <= 65535;
 * block_bytes is a multiple of 16. */
cudaError_t launch_copy_blocks(cudaStream_t stream, void *pool, size_t block_bytes,
                               const int32_t *src, const int32_t *dst, int32_t num_blocks);

#ifdef __cplusplus
}
#endif

#endif
