#include "kernels/cpu/cpu_levels.h"

#include <cpuid.h>

/* clang's __builtin_cpu_supports does not know f16c. */
static bool has_f16c(void) {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

/* __builtin_cpu_supports also checks whether the operating system saves the wide registers. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512vnni(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512bf16(void) {
    return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

static bool always(void) {
    return true;
}

const struct cpu_level cpu_levels[] = {
    {"portable", "portable", false, always, cpu_gemm_add_portable, cpu_ops_add_portable},
    {"avx2", "AVX2", false, has_avx2, cpu_gemm_add_avx2, cpu_ops_add_avx2},
    {"avx512vnni", "AVX-512 VNNI", false, has_avx512vnni, cpu_gemm_add_avx512vnni,
     cpu_ops_add_avx512vnni},
    {"avx512bf16", "AVX-512 BF16", true, has_avx512bf16, cpu_gemm_add_avx512bf16, NULL},
};
const int num_cpu_levels = sizeof(cpu_levels) / sizeof(cpu_levels[0]);
