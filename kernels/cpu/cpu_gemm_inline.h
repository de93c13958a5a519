/* Compiler spellings for cpu_gemm_LEVEL.c and their template. */
#ifndef QUIRE_KERNELS_CPU_CPU_GEMM_INLINE_H
#define QUIRE_KERNELS_CPU_CPU_GEMM_INLINE_H

#define ALWAYS_INLINE __attribute__((always_inline)) inline

/* Before a loop with a constant count over vectors that must end up in registers. Under a sanitizer
 * it would cost minutes of compilation. */
#if defined(SIMD_SMALL_CODE)
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
