/* AMX by the processor's instructions. A thread's tiles are configured at the start of each portion
 * of a product and released at its end, so that no thread keeps their 8 KiB of state between two.
 * The compiler's intrinsics do not say that they read memory, hence the barriers. */
#include <immintrin.h>

#define BARRIER __asm__ volatile("" ::: "memory")
#define tile_configure(p)                                                                          \
    do {                                                                                           \
        BARRIER;                                                                                   \
        _tile_loadconfig(p);                                                                       \
    } while (0)
#define tile_release() _tile_release()
#define tile_zero(t) _tile_zero(t)
#define tile_load(t, p, stride)                                                                    \
    do {                                                                                           \
        BARRIER;                                                                                   \
        _tile_loadd(t, p, stride);                                                                 \
    } while (0)
#define tile_store(t, p, stride)                                                                   \
    do {                                                                                           \
        _tile_stored(t, p, stride);                                                                \
        BARRIER;                                                                                   \
    } while (0)
#define tile_dot_bytes(c, a, b) _tile_dpbsud(c, a, b)
#define tile_dot_bf16(c, a, b) _tile_dpbf16ps(c, a, b)

#define PACK_BLOCKS cpu_gemm_pack_blocks_avx512vnni
#include "kernels/cpu/levels/gemm/cpu_gemm_amx_template.h"

void cpu_gemm_add_amx(struct cpu_kernels *kernels) {
    add_amx_formats(kernels);
}
