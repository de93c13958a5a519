#include "kernels/cpu/cpu_attention_template.h"
#include "kernels/cpu/cpu_ops_template.h"
#include "kernels/cpu/cpu_sample_template.h"

const struct cpu_op_kernels cpu_op_kernels_portable = OP_KERNELS;
