/* The instructions of kernels/cuda/device/device_ptx.cuh, whose comments define them: tensor-core
 * products, arithmetic of pairs and asynchronous copies. An address that would be a fault on a GPU,
 * misaligned or not in the block's shared memory, ends the process with a message.
 *
 * A copy is as late as it may be: the destination becomes 0xff at the call, the bytes arrive in the
 * copy_async_wait that waits for them. */
#ifndef CUDASIM_MATRIX_H
#define CUDASIM_MATRIX_H

#include "cudasim/float16.h"
#include "cudasim/thread.h"

#include <stdint.h>

template <class T>
void mma_m16n8k16(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], CUDASIM_CALLER);
template <>
void mma_m16n8k16<__nv_bfloat16>(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                 const char *file, int line);
template <>
void mma_m16n8k16<__half>(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                          const char *file, int line);

void mma_m16n8k32_e4m3(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       CUDASIM_CALLER);

void ldmatrix_x4(uint32_t (&out)[4], const void *shared_row, CUDASIM_CALLER);
void ldmatrix_x4_trans(uint32_t (&out)[4], const void *shared_row, CUDASIM_CALLER);

template <class T> uint32_t subtract2(uint32_t a, uint32_t b);
template <> inline uint32_t subtract2<__nv_bfloat16>(uint32_t a, uint32_t b) {
    auto difference = [](uint32_t x, uint32_t y) -> uint32_t {
        return __float2bfloat16_rn(__bfloat162float({(uint16_t)x}) -
                                   __bfloat162float({(uint16_t)y}))
            .bits;
    };
    return difference(a >> 16, b >> 16) << 16 | difference(a, b);
}
template <> inline uint32_t subtract2<__half>(uint32_t a, uint32_t b) {
    auto difference = [](uint32_t x, uint32_t y) -> uint32_t {
        return __float2half_rn(__half2float({(uint16_t)x}) - __half2float({(uint16_t)y})).bits;
    };
    return difference(a >> 16, b >> 16) << 16 | difference(a, b);
}

template <class T> uint32_t multiply2(uint32_t a, uint32_t b);
template <> inline uint32_t multiply2<__nv_bfloat16>(uint32_t a, uint32_t b) {
    auto product = [](uint32_t x, uint32_t y) -> uint32_t {
        return __float2bfloat16_rn(__bfloat162float({(uint16_t)x}) *
                                   __bfloat162float({(uint16_t)y}))
            .bits;
    };
    return product(a >> 16, b >> 16) << 16 | product(a, b);
}
template <> inline uint32_t multiply2<__half>(uint32_t a, uint32_t b) {
    auto product = [](uint32_t x, uint32_t y) -> uint32_t {
        return __float2half_rn(__half2float({(uint16_t)x}) * __half2float({(uint16_t)y})).bits;
    };
    return product(a >> 16, b >> 16) << 16 | product(a, b);
}

void copy_async_16(void *shared, const void *global, bool valid, CUDASIM_CALLER);
void copy_async_4(void *shared, const void *global, bool valid, CUDASIM_CALLER);
void copy_async_commit();
namespace cudasim {
void wait_for_copies(int unfinished_groups);
}
template <int N> void copy_async_wait() {
    cudasim::wait_for_copies(N);
}

#endif
