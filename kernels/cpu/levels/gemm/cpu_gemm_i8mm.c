/* The dot product of unsigned codes with signed ones (FEAT_I8MM). The extension's products of
 * matrices of 2 x 8 bytes would need panels of another layout. */
#include "kernels/cpu/levels/gemm/cpu_gemm_codes_template.h"
#include "kernels/cpu/levels/cpu_levels.h"

SIMD_INLINE bool signed_codes(const struct quant_form *form) {
    return false;
}

SIMD_INLINE ri dot_lane(ri sum, ri codes, int8x16_t x, int lane) {
    switch (lane) {
    case 0:
        return vusdotq_laneq_s32(sum, (uint8x16_t)codes, x, 0);
    case 1:
        return vusdotq_laneq_s32(sum, (uint8x16_t)codes, x, 1);
    case 2:
        return vusdotq_laneq_s32(sum, (uint8x16_t)codes, x, 2);
    default:
        return vusdotq_laneq_s32(sum, (uint8x16_t)codes, x, 3);
    }
}

#include "kernels/cpu/levels/gemm/cpu_gemm_dot_neon_template.h"

void cpu_gemm_add_i8mm(struct cpu_kernels *kernels) {
    add_quantised_formats(kernels);
}
