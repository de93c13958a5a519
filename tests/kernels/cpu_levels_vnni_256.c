/* The levels of a program that checks the products of "avxvnni" on a processor with AVX-512: it is
 * linked with this list in place of the product's (cpu_levels.h). The level "vnni-256" is the
 * source of "avxvnni", its one new instruction in the encoding that AVX-512 brought. */
#include "kernels/cpu/levels/cpu_levels.h"

#include <immintrin.h>

#define _mm256_dpbusd_avx_epi32 _mm256_dpbusd_epi32
#define cpu_gemm_add_avxvnni add_vnni_256_formats
static void add_vnni_256_formats(struct cpu_kernels *kernels);
#include "kernels/cpu/levels/gemm/cpu_gemm_avxvnni.c"

static bool always(void) {
    return true;
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_vnni_256(void) {
    return has_avx2() && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

const struct cpu_level cpu_levels[] = {
    {"portable", "portable", false, always, cpu_gemm_add_portable, cpu_ops_add_portable},
    {"avx2", "AVX2", false, has_avx2, cpu_gemm_add_avx2, cpu_ops_add_avx2},
    {"vnni-256", "VNNI of 256 bits", false, has_vnni_256, add_vnni_256_formats, NULL},
};
const int num_cpu_levels = sizeof(cpu_levels) / sizeof(cpu_levels[0]);
