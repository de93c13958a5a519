/* Memory read and nothing else: what a kernel's bandwidth is compared with. */
#ifndef QUIRE_TESTS_KERNELS_READ_LIMIT_LAUNCH_H
#define QUIRE_TESTS_KERNELS_READ_LIMIT_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *sum, device memory, += the 32-bit numbers of x, modulo 2^32. bytes is a multiple of 16, x
 * aligned to it. */
cudaError_t launch_read(cudaStream_t stream, const void *x, size_t bytes, int num_multiprocessors,
                        uint32_t *sum);

#ifdef __cplusplus
}
#endif

#endif
