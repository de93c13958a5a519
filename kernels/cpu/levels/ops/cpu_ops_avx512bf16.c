/* Attention with a bf16 cache alone: the templates' other functions are those of the level before,
 * and left out by the compiler. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "kernels/cpu/levels/ops/cpu_attention_template.h"
#include "kernels/cpu/levels/cpu_levels.h"

void cpu_ops_add_avx512bf16(struct cpu_kernels *kernels) {
    kernels->op.attention[KV_BF16] = (struct cpu_attention_kernels)ATTENTION_OF(BF16);
}
