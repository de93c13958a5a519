/* Everything that a kernel may use of the device: the .cu files of this folder include this header
 * and nothing else of CUDA, so that the same files compile with nvcc for a GPU and, with
 * kernels/cudasim in front of the include path, with any C++17 compiler for the host.
 *
 *   DYNAMIC_SHARED(type, name)   the block's dynamic shared memory, 16-byte aligned
 *   LAUNCH(kernel, grid, block, shared_bytes, stream, ...)   kernel<<<...>>>(...)
 *   LAUNCH_EARLY, wait_for_earlier_work, let_next_begin   before the kernel before it is done
 *   mma_m16n8k16<T>, mma_m16n8k32_e4m3, subtract2<T>, multiply2<T>, ldmatrix_x4, ldmatrix_x4_trans,
 * copy_async_16, copy_async_4, copy_async_commit, copy_async_wait<N>, exp2_fast, opaque
 * instructions without a CUDA function; load_weights, load_global   reads that the simulator
 * counts; all inline PTX is in device_ptx.cuh and device_wgmma.cuh, all emulation in
 * kernels/cudasim
 *   DYNAMIC_SHARED_AT, matrix_descriptor, wgmma_m64k16<T, TRANSPOSED_B>, wgmma_fence, wgmma_commit,
 * wgmma_wait<N>, fence_async_proxy   of sm_90 alone
 *   __nv_bfloat16, __half        element types; to_float, from_float<T>, pack2<T> convert
 *
 * and of CUDA itself: thread and block indices, __shared__, __syncthreads, __syncwarp,
 * __shfl_*_sync and __ballot_sync with a full mask, atomicAdd, __threadfence, __ldg, the bit casts
 * and float functions. Kernels run with 32-thread warps on sm_80 and later. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_DEVICE_CUH
#define QUIRE_KERNELS_CUDA_DEVICE_DEVICE_CUH

#include <stdint.h>

#ifdef __CUDACC__
#include "kernels/cuda/device/device_ptx.cuh"
#include "kernels/cuda/device/device_wgmma.cuh"
#else
#include <cudasim.h>
#endif

#define WARP_SIZE 32
#define FULL_MASK 0xffffffffu

__device__ __forceinline__ float to_float(float x) {
    return x;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
__device__ __forceinline__ float to_float(__half x) {
    return __half2float(x);
}

/* Rounds to nearest even. */
template <class T> __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_float<__half>(float x) {
    return __float2half_rn(x);
}

/* Two elements in one register, `low` in the lower half: what an mma operand holds. */
template <class T> __device__ __forceinline__ uint32_t pack2(float low, float high) {
    union {
        T element[2];
        uint32_t bits;
    } pair = {{from_float<T>(low), from_float<T>(high)}};
    return pair.bits;
}

#endif
