#include "kernels/cpu/levels/cpu_levels.h"

static bool always(void) {
    return true;
}

const struct cpu_level cpu_levels[] = {
    {"portable", "portable", false, always, cpu_gemm_add_portable, cpu_ops_add_portable},
};
const int num_cpu_levels = sizeof(cpu_levels) / sizeof(cpu_levels[0]);
