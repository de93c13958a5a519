/* Assembly with fixed registers, because a compiler may change what a loop of intrinsics does.
 * Twelve independent chains cover latency times throughput of every processor so far. */
#include "tests/kernels/machine_loops.h"

#define REPEAT_12(op, r)                                                                           \
    op " %%" r "14,%%" r "15,%%" r "0\n" op " %%" r "14,%%" r "15,%%" r "1\n" op " %%" r "14,%%" r \
       "15,%%" r "2\n" op " %%" r "14,%%" r "15,%%" r "3\n" op " %%" r "14,%%" r "15,%%" r         \
       "4\n" op " %%" r "14,%%" r "15,%%" r "5\n" op " %%" r "14,%%" r "15,%%" r "6\n" op " %%" r  \
       "14,%%" r "15,%%" r "7\n" op " %%" r "14,%%" r "15,%%" r "8\n" op " %%" r "14,%%" r         \
       "15,%%" r "9\n" op " %%" r "14,%%" r "15,%%" r "10\n" op " %%" r "14,%%" r "15,%%" r "11\n"
#define VECTOR_REGISTERS                                                                           \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",       \
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define DEFINE_LOOP(name, op, r)                                                                   \
    static void name(long num_loops) {                                                             \
        __asm__ volatile("vxorps %%ymm14,%%ymm14,%%ymm14\n vxorps %%ymm15,%%ymm15,%%ymm15\n"       \
                         "1:\n" REPEAT_12(op, r) "dec %0\n jnz 1b\n vzeroupper\n"                  \
                         : "+r"(num_loops)                                                         \
                         :                                                                         \
                         : VECTOR_REGISTERS, "cc");                                                \
    }

DEFINE_LOOP(dpbusd_512, "vpdpbusd", "zmm")
DEFINE_LOOP(fma_512, "vfmadd231ps", "zmm")
DEFINE_LOOP(fma_256, "vfmadd231ps", "ymm")
DEFINE_LOOP(maddubs_256, "vpmaddubsw", "ymm")

#define DEFINE_READ(name, r, step)                                                                 \
    static void name(const char *data, size_t bytes) {                                             \
        const char *end = data + bytes;                                                            \
        __asm__ volatile("1:\n vmovups (%0),%%" r "0\n vmovups " step "(%0),%%" r "1\n"            \
                         " vmovups 2*" step "(%0),%%" r "2\n vmovups 3*" step "(%0),%%" r "3\n"    \
                         " add $4*" step ",%0\n cmp %1,%0\n jb 1b\n vzeroupper\n"                  \
                         : "+r"(data)                                                              \
                         : "r"(end)                                                                \
                         : VECTOR_REGISTERS, "cc", "memory");                                      \
    }

DEFINE_READ(read_512, "zmm", "64")
DEFINE_READ(read_256, "ymm", "32")

static void read_128(const char *data, size_t bytes) {
    const char *end = data + bytes;
    __asm__ volatile("1:\n movups (%0),%%xmm0\n movups 16(%0),%%xmm1\n movups 32(%0),%%xmm2\n"
                     " movups 48(%0),%%xmm3\n add $64,%0\n cmp %1,%0\n jb 1b\n"
                     : "+r"(data)
                     : "r"(end)
                     : VECTOR_REGISTERS, "cc", "memory");
}

struct machine_loops machine_loops_select(void) {
    if (__builtin_cpu_supports("avx512vnni"))
        return (struct machine_loops){
            "vpdpbusd, vfmadd231ps zmm", dpbusd_512, 12 * 64, fma_512, 12 * 16, read_512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct machine_loops){
            "vpmaddubsw, vfmadd231ps ymm", maddubs_256, 12 * 32, fma_256, 12 * 8, read_256};
    return (struct machine_loops){.vectors = "none", .read = read_128};
}
