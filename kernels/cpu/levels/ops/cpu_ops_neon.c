#include "kernels/cpu/levels/ops/cpu_attention_template.h"
#include "kernels/cpu/levels/cpu_levels.h"
#include "kernels/cpu/levels/ops/cpu_ops_template.h"
#include "kernels/cpu/levels/ops/cpu_sample_template.h"

void cpu_ops_add_neon(struct cpu_kernels *kernels) {
    kernels->op = (struct cpu_op_kernels)OP_KERNELS;
}
