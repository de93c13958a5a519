#include "kernels/cpu/levels/cpu_levels.h"

#include <asm/hwcap.h>
#include <sys/auxv.h>

static bool always(void) {
    return true;
}

static bool has_dotprod(void) {
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

static bool has_i8mm(void) {
    return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

const struct cpu_level cpu_levels[] = {
    {"portable", "portable", false, always, cpu_gemm_add_portable, cpu_ops_add_portable},
    {"neon", "NEON", false, always, cpu_gemm_add_neon, cpu_ops_add_neon},
    {"dotprod", "NEON dotprod", false, has_dotprod, cpu_gemm_add_dotprod, NULL},
    {"i8mm", "NEON i8mm", false, has_i8mm, cpu_gemm_add_i8mm, NULL},
};
const int num_cpu_levels = sizeof(cpu_levels) / sizeof(cpu_levels[0]);
