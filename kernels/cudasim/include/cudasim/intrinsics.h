/* Functions of one thread: bit casts, integer functions, fences, atomics. Threads of a simulated
 * device take turns, so an atomic is a plain read, change and write. */
#ifndef CUDASIM_INTRINSICS_H
#define CUDASIM_INTRINSICS_H

#include "cudasim/reads.h"
#include "cudasim/thread.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace cudasim {
template <class To, class From> inline To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}
} // namespace cudasim

static inline unsigned __float_as_uint(float x) {
    return cudasim::bit_cast<unsigned>(x);
}
static inline int __float_as_int(float x) {
    return cudasim::bit_cast<int>(x);
}
/* Never part of a fused operation. */
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}

static inline float __uint_as_float(unsigned x) {
    return cudasim::bit_cast<float>(x);
}
static inline float __int_as_float(int x) {
    return cudasim::bit_cast<float>(x);
}

static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __clz(int x) {
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __clzll(long long x) {
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
static inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++)
        result |= (x >> i & 1) << (31 - i);
    return result;
}
/* Byte i of the result is the byte of {a, b} that the i-th hexadecimal digit of `selector` numbers,
 * 0 to 3 of a, 4 to 7 of b. */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= (unsigned)(both >> (8 * (selector >> 4 * i & 7)) & 0xff) << 8 * i;
    return result;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

/* Exact to the last bit but one on a GPU; here the nearest. */
static inline float rsqrtf(float x) {
    return (float)(1.0 / sqrt((double)x));
}
static inline int opaque(int x) {
    return x;
}
/* 2^x to 2 ulp, 0 for -infinity; a result too small to be normal is 0, as on a GPU. */
static inline float exp2_fast(float x) {
    float result = exp2f(x);
    return result < 0x1p-126f ? 0.0f : result;
}

#define CUDASIM_MIN_MAX(type)                                                                      \
    static inline type min(type a, type b) {                                                       \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b) {                                                       \
        return a < b ? b : a;                                                                      \
    }
CUDASIM_MIN_MAX(int)
CUDASIM_MIN_MAX(unsigned)
CUDASIM_MIN_MAX(long)
CUDASIM_MIN_MAX(unsigned long)
CUDASIM_MIN_MAX(long long)
CUDASIM_MIN_MAX(unsigned long long)
#undef CUDASIM_MIN_MAX
static inline float min(float a, float b) {
    return fminf(a, b);
}
static inline float max(float a, float b) {
    return fmaxf(a, b);
}

template <class T> static inline T __ldg(const T *pointer) {
    return load_global(pointer);
}
static inline void __threadfence() {
    if (cudasim::blocks_are_interleaved)
        cudasim::fence();
}
static inline void __threadfence_block() {
}

namespace cudasim {
/* One atomic, from before its read until after its write. */
class atomic_access {
  public:
    atomic_access(const void *place, size_t size) : address(place), bytes(size) {
        if (blocks_are_interleaved)
            begin_atomic(address, bytes);
    }
    atomic_access(const atomic_access &) = delete;
    ~atomic_access() {
        if (blocks_are_interleaved)
            end_atomic(address, bytes);
    }

  private:
    const void *const address;
    const size_t bytes;
};
} // namespace cudasim

#define CUDASIM_ATOMIC(name, type, changed)                                                        \
    static inline type name(type *address, type value) {                                           \
        cudasim::atomic_access access(address, sizeof *address);                                   \
        type old = *address;                                                                       \
        *address = changed;                                                                        \
        return old;                                                                                \
    }
#define CUDASIM_ATOMICS(type)                                                                      \
    CUDASIM_ATOMIC(atomicAdd, type, (type)(old + value))                                           \
    CUDASIM_ATOMIC(atomicMax, type, old < value ? value : old)                                     \
    CUDASIM_ATOMIC(atomicMin, type, value < old ? value : old)                                     \
    CUDASIM_ATOMIC(atomicExch, type, value)                                                        \
    CUDASIM_ATOMIC(atomicOr, type, (type)(old | value))                                            \
    CUDASIM_ATOMIC(atomicAnd, type, (type)(old & value))                                           \
    static inline type atomicCAS(type *address, type expected, type value) {                       \
        cudasim::atomic_access access(address, sizeof *address);                                   \
        type old = *address;                                                                       \
        if (old == expected)                                                                       \
            *address = value;                                                                      \
        return old;                                                                                \
    }
CUDASIM_ATOMICS(unsigned)
CUDASIM_ATOMICS(unsigned long long)
#undef CUDASIM_ATOMICS

/* int wraps around. */
static inline int atomicAdd(int *address, int value) {
    cudasim::atomic_access access(address, sizeof *address);
    int old = *address;
    *address = (int)((unsigned)old + (unsigned)value);
    return old;
}
CUDASIM_ATOMIC(atomicMax, int, old < value ? value : old)
CUDASIM_ATOMIC(atomicMin, int, value < old ? value : old)
CUDASIM_ATOMIC(atomicExch, int, value)
CUDASIM_ATOMIC(atomicOr, int, old | value)
CUDASIM_ATOMIC(atomicAnd, int, old &value)
CUDASIM_ATOMIC(atomicAdd, float, old + value)
CUDASIM_ATOMIC(atomicExch, float, value)
static inline int atomicCAS(int *address, int expected, int value) {
    cudasim::atomic_access access(address, sizeof *address);
    int old = *address;
    if (old == expected)
        *address = value;
    return old;
}
#undef CUDASIM_ATOMIC

#endif
