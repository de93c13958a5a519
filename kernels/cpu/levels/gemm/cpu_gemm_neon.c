/* Float weights; quantised ones need the dot products of the levels above. */
#include "kernels/cpu/levels/cpu_levels.h"

#define FOR_PLAIN_TILES(X, type)                                                                   \
    X(type, 8, 2)                                                                                  \
    X(type, 7, 2)                                                                                  \
    X(type, 6, 2)                                                                                  \
    X(type, 5, 2)                                                                                  \
    X(type, 4, 4)                                                                                  \
    X(type, 3, 4)                                                                                  \
    X(type, 2, 8)                                                                                  \
    X(type, 1, 8)
#include "kernels/cpu/levels/gemm/cpu_gemm_plain_template.h"

void cpu_gemm_add_neon(struct cpu_kernels *kernels) {
    add_plain_formats(kernels);
}
