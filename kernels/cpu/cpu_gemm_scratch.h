/* Private to the matrix product: its workspace grows as matrices are created, so that `linear`
 * never allocates. */
#ifndef QUIRE_KERNELS_CPU_CPU_GEMM_SCRATCH_H
#define QUIRE_KERNELS_CPU_CPU_GEMM_SCRATCH_H

#include "kernels/cpu/cpu_backend.h"

/* Makes room for the activations of a matrix with such a part. */
int cpu_gemm_scratch_reserve(struct cpu_backend *b, enum dtype dtype, int32_t cols,
                             struct error *err);

#endif
