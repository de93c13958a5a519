#include "kernels/cpu/cpu_gemm.h"
#include "kernels/cpu/cpu_levels.h"
#include "kernels/cpu/cpu_ops.h"

static bool always(void) {
    return true;
}

const struct cpu_level cpu_levels[] = {
    {"portable", "portable", always, &cpu_gemm_kernels_portable, &cpu_op_kernels_portable},
};
const int num_cpu_levels = sizeof(cpu_levels) / sizeof(cpu_levels[0]);
