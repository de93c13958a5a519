/* The dot product of signed bytes (FEAT_DotProd). Codes of at most 7 bits are signed ones as they
 * are; those of 8 bits are made so by taking 128 away. */
#include "kernels/cpu/levels/gemm/cpu_gemm_codes_template.h"
#include "kernels/cpu/levels/cpu_levels.h"

SIMD_INLINE bool signed_codes(const struct quant_form *form) {
    return form->code_bits == 8 || form->levels != NULL;
}

SIMD_INLINE ri dot_lane(ri sum, ri codes, int8x16_t x, int lane) {
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(sum, (int8x16_t)codes, x, 0);
    case 1:
        return vdotq_laneq_s32(sum, (int8x16_t)codes, x, 1);
    case 2:
        return vdotq_laneq_s32(sum, (int8x16_t)codes, x, 2);
    default:
        return vdotq_laneq_s32(sum, (int8x16_t)codes, x, 3);
    }
}

/* Rounds to nearest even; a NaN, which maxnm takes for less than any number, becomes -128. */
SIMD_INLINE int32x4_t code_of(float32x4_t scaled) {
    float32x4_t bounded = vminq_f32(vmaxnmq_f32(scaled, vdupq_n_f32(-128)), vdupq_n_f32(127));
    return vcvtnq_s32_f32(bounded);
}

void cpu_gemm_pack_blocks_dotprod(const float *x, int32_t depth, void *tile, int32_t row,
                                  int32_t tile_rows) {
    struct gemm_block *out = (struct gemm_block *)tile + row;
    for (int32_t k = 0; k < depth; k += PANEL_BLOCK, out += tile_rows) {
        float32x4_t v[8];
        uint32x4_t amax = vdupq_n_u32(0);
        UNROLL
        for (int i = 0; i < 8; i++) {
            v[i] = vld1q_f32(x + k + 4 * i);
            amax = vmaxq_u32(amax, vreinterpretq_u32_f32(vabsq_f32(v[i])));
        }
        struct gemm_scale scale = gemm_scale_of(vmaxvq_u32(amax));
        int32_t sums[2];
        UNROLL
        for (int h = 0; h < 2; h++) {
            int32x4_t codes[4];
            UNROLL
            for (int i = 0; i < 4; i++)
                codes[i] = code_of(vmulq_n_f32(v[4 * h + i], scale.inverse));
            int16x8_t low = vcombine_s16(vmovn_s32(codes[0]), vmovn_s32(codes[1]));
            int16x8_t high = vcombine_s16(vmovn_s32(codes[2]), vmovn_s32(codes[3]));
            vst1q_s8((int8_t *)&out->codes[4 * h], vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
            sums[h] = vaddlvq_s16(vaddq_s16(low, high));
        }
        gemm_block_finish(out, scale.scale, sums[0], sums[1]);
    }
}

#include "kernels/cpu/levels/gemm/cpu_gemm_dot_neon_template.h"

void cpu_gemm_add_dotprod(struct cpu_kernels *kernels) {
    add_quantised_formats(kernels);
}
