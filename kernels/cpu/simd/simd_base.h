/* Needed by every simd_*.h, every cpu_gemm_LEVEL.c with its template, and cpu_panel.c. */
#ifndef QUIRE_KERNELS_CPU_SIMD_SIMD_BASE_H
#define QUIRE_KERNELS_CPU_SIMD_SIMD_BASE_H

#include "kernels/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The kernels need everything inlined into loops with constant bounds. Under a sanitizer that would
 * take minutes to compile, so there the compiler decides. */
#ifdef SIMD_SMALL_CODE
#define SIMD_INLINE static inline __attribute__((unused))
#else
#define SIMD_INLINE static inline __attribute__((always_inline, unused))
#endif

/* Put before a loop of constant length whose arrays should stay in registers. */
#if defined(SIMD_SMALL_CODE)
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
