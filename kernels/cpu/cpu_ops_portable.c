#include "kernels/cpu/cpu_attention_template.h"
#include "kernels/cpu/cpu_ops_template.h"
#include "kernels/cpu/cpu_sample_template.h"

const struct cpu_op_kernels cpu_op_kernels_portable = {
    .rmsnorm = rmsnorm,
    .silu_mul = silu_mul,
    .rotate_pairs = rotate_pairs,
    .rotate_halves = rotate_halves,
    .store = store,
    .attend = attend,
    .attention_merge = attention_merge,
    .max = max_logit,
    .find_above = find_above,
    .count_above = count_above,
    .sum_weights = sum_weights,
    .collect = collect,
};
