#include "kernels/cpu/levels/cpu_levels.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023 /* of asm/prctl.h, which older headers lack */

/* clang's __builtin_cpu_supports does not know f16c. */
static bool has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/* __builtin_cpu_supports also checks whether the operating system saves the wide registers. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

/* The compilers' __builtin_cpu_supports does not know it before gcc 13 and clang 17. */
static bool has_avxvnni(void) {
    enum { AVX_VNNI = 1 << 4 };
    unsigned eax, ebx, ecx, edx;
    return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
           (eax & AVX_VNNI) != 0;
}

static bool has_avx512vnni(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512bf16(void) {
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

/* The registers are there, the system saves them, and lets this process use them: Linux gives leave
 * on request only (arch_prctl(2)), to all threads at once. */
static bool has_amx(void) {
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
    enum { TILE_CONFIG = 1 << 17, TILE_DATA = 1 << 18, TILE_DATA_NUMBER = 18 };
    const unsigned wanted = AMX_BF16 | AMX_TILE | AMX_INT8, saved = TILE_CONFIG | TILE_DATA;
    unsigned eax, ebx, ecx, edx, xcr0, xcr0_high;
    if (!has_avx512bf16() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 ||
        (edx & wanted) != wanted)
        return false;
    __asm__("xgetbv" : "=a"(xcr0), "=d"(xcr0_high) : "c"(0));
    return (xcr0 & saved) == saved &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA_NUMBER) == 0;
}

static bool always(void) {
    return true;
}

const struct cpu_level cpu_levels[] = {
    {"portable", "portable", false, always, cpu_gemm_add_portable, cpu_ops_add_portable},
    {"avx2", "AVX2", false, has_avx2, cpu_gemm_add_avx2, cpu_ops_add_avx2},
    {"avxvnni", "AVX-VNNI", false, has_avxvnni, cpu_gemm_add_avxvnni, NULL},
    {"avx512vnni", "AVX-512 VNNI", false, has_avx512vnni, cpu_gemm_add_avx512vnni,
     cpu_ops_add_avx512vnni},
    {"avx512bf16", "AVX-512 BF16", true, has_avx512bf16, cpu_gemm_add_avx512bf16,
     cpu_ops_add_avx512bf16},
    {"amx", "AMX", true, has_amx, cpu_gemm_add_amx, NULL},
};
const int num_cpu_levels = sizeof(cpu_levels) / sizeof(cpu_levels[0]);
