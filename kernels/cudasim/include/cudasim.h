/* Compiles the .cu files of kernels/cuda for the host: what kernels/cuda/device/device_ptx.cuh and
 * CUDA give a kernel, simulated. The README.md next to this folder says what it catches and what it
 * cannot show. */
#ifndef CUDASIM_H
#define CUDASIM_H

#include "cuda_runtime_api.h"

#include "cudasim/float16.h"
#include "cudasim/intrinsics.h"
#include "cudasim/launch.h"
#include "cudasim/matrix.h"
#include "cudasim/reads.h"
#include "cudasim/thread.h"
#include "cudasim/vector_types.h"
#include "cudasim/wgmma.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
/* Static memory: the device runs one block at a time. Its bytes are found by the tag in its name
 * (static_shared.h). */
#define __shared__ static __attribute__((used, abi_tag("cudasim_shared")))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

#define DYNAMIC_SHARED(type, name)                                                                 \
    type *name = reinterpret_cast<type *>(cudasim::current_grid.dynamic_shared)

#endif
