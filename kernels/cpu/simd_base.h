/* What every simd_*.h needs. */
#ifndef QUIRE_KERNELS_CPU_SIMD_BASE_H
#define QUIRE_KERNELS_CPU_SIMD_BASE_H

#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIMD_INLINE static inline __attribute__((always_inline, unused))

/* Before a loop of constant length whose arrays shall live in registers. */
#ifdef __clang__
#define SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SIMD_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
