#include "kernels/cpu/cpu_attention_template.h"
#include "kernels/cpu/cpu_levels.h"
#include "kernels/cpu/cpu_ops_template.h"
#include "kernels/cpu/cpu_sample_template.h"

void cpu_ops_add_neon(struct cpu_kernels *kernels) {
    kernels->op = (struct cpu_op_kernels)OP_KERNELS;
}
