/* The instructions of kernels/cuda/device/device_wgmma.cuh, whose comments define them, on a device
 * of compute capability 9.0.
 *
 * A product is as late as it may be. Its sums are 0xff from the call to the wgmma_wait that waits
 * for it, and shared memory and the registers of A must be then what they were at the call. The
 * process ends with a message
 *
 *   at a product without a wgmma_fence since the last wgmma_wait
 *   where warps of a warpgroup do not begin the same products in the same order
 *   where sums' registers were changed since the product before, or before the wait
 *   where shared memory is not what it was at the last fence_async_proxy of any thread
 *   where a descriptor leaves dynamic shared memory, or begins within its swizzle's pattern
 *   where shared memory or A's registers were changed before the wait
 *   at a wait that leaves the sums it is asked for, and at the end of a warp before its wait */
#ifndef CUDASIM_WGMMA_H
#define CUDASIM_WGMMA_H

#include "cudasim/float16.h"
#include "cudasim/thread.h"

#include <stdint.h>

#include <type_traits>

namespace cudasim {

struct wgmma_shape {
    int num_columns;
    bool is_bf16;
    bool is_b_transposed;
    bool has_a_registers; /* else a descriptor */
    bool adds;

    bool operator==(const wgmma_shape &other) const {
        return num_columns == other.num_columns && is_bf16 == other.is_bf16 &&
               is_b_transposed == other.is_b_transposed &&
               has_a_registers == other.has_a_registers && adds == other.adds;
    }
};

/* sums: [num_columns / 8][4]; a_registers [4], or NULL. Both live until the wait. */
void begin_product(const site &where, const wgmma_shape &shape, float *sums,
                   const uint32_t *a_registers, uint64_t a, uint64_t b);
void fence_products(const site &where);
void commit_products(const site &where);
void wait_for_products(const site &where, int unfinished_groups, const float *sums);
void *aligned_shared(size_t alignment);

} // namespace cudasim

#define DYNAMIC_SHARED_AT(alignment, type, name)                                                   \
    type *name = reinterpret_cast<type *>(cudasim::aligned_shared(alignment))

uint64_t matrix_descriptor(const void *shared, int swizzle_bytes, int leading_bytes,
                           int stride_bytes, CUDASIM_CALLER);
void fence_async_proxy();

template <class T, bool TRANSPOSED_B, int N8>
void wgmma_m64k16(float (&acc)[N8][4], const uint32_t (&a)[4], uint64_t b, bool adds,
                  CUDASIM_CALLER) {
    cudasim::begin_product(
        {"wgmma_m64k16", file, line},
        {8 * N8, std::is_same<T, __nv_bfloat16>::value, TRANSPOSED_B, true, adds}, acc[0], a, 0, b);
}
template <class T, bool TRANSPOSED_B, int N8>
void wgmma_m64k16(float (&acc)[N8][4], uint64_t a, uint64_t b, bool adds, CUDASIM_CALLER) {
    cudasim::begin_product(
        {"wgmma_m64k16", file, line},
        {8 * N8, std::is_same<T, __nv_bfloat16>::value, TRANSPOSED_B, false, adds}, acc[0], nullptr,
        a, b);
}
template <int N8> void wgmma_fence(float (&)[N8][4], CUDASIM_CALLER) {
    cudasim::fence_products({"wgmma_fence", file, line});
}
static inline void wgmma_commit(CUDASIM_CALLER) {
    cudasim::commit_products({"wgmma_commit", file, line});
}
template <int N, int N8> void wgmma_wait(float (&acc)[N8][4], CUDASIM_CALLER) {
    cudasim::wait_for_products({"wgmma_wait", file, line}, N, acc[0]);
}

#endif
