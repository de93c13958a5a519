/* Functions that NEON, which every 64-bit ARM has, does better than GNU C's vectors.
 * simd_portable.h includes it in place of its own functions of these names, whose contracts hold
 * here too. A float product that is added is rounded once, as on x86 from AVX2 on. */
#ifndef QUIRE_KERNELS_CPU_SIMD_SIMD_NEON_TEMPLATE_H
#define QUIRE_KERNELS_CPU_SIMD_SIMD_NEON_TEMPLATE_H

#include <arm_neon.h>

SIMD_INLINE rf rf_load_f16(const void *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

SIMD_INLINE rf rf_fma(rf a, rf b, rf c) {
    return vfmaq_f32(c, a, b);
}

SIMD_INLINE ri ri_lookup(ri table, ri indices) {
    return (ri)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)indices);
}

SIMD_INLINE struct vf vf_fma(struct vf a, struct vf b, struct vf c) {
    VF_EACH(vfmaq_f32(c.v[i], a.v[i], b.v[i]));
}

/* Bit i: lane i of the mask. */
SIMD_INLINE unsigned int4_bits(int4 mask) {
    const uint4 bits = {1, 2, 4, 8};
    return vaddvq_u32((uint4)mask & bits);
}

SIMD_INLINE unsigned vf_mask_gt(struct vf a, struct vf b) {
    unsigned mask = 0;
    UNROLL
    for (int i = 0; i < 4; i++)
        mask |= int4_bits(a.v[i] > b.v[i]) << 4 * i;
    return mask;
}

SIMD_INLINE unsigned vf_mask_ge(struct vf a, struct vf b) {
    unsigned mask = 0;
    UNROLL
    for (int i = 0; i < 4; i++)
        mask |= int4_bits(a.v[i] >= b.v[i]) << 4 * i;
    return mask;
}

SIMD_INLINE float vf_reduce_max(struct vf a) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3])));
}

SIMD_INLINE void vf_split_pairs(struct vf a, struct vf b, struct vf *evens, struct vf *odds) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        evens->v[i] = vuzp1q_f32(a.v[2 * i], a.v[2 * i + 1]);
        odds->v[i] = vuzp2q_f32(a.v[2 * i], a.v[2 * i + 1]);
        evens->v[2 + i] = vuzp1q_f32(b.v[2 * i], b.v[2 * i + 1]);
        odds->v[2 + i] = vuzp2q_f32(b.v[2 * i], b.v[2 * i + 1]);
    }
}

SIMD_INLINE void vf_join_pairs(struct vf evens, struct vf odds, struct vf *a, struct vf *b) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        a->v[2 * i] = vzip1q_f32(evens.v[i], odds.v[i]);
        a->v[2 * i + 1] = vzip2q_f32(evens.v[i], odds.v[i]);
        b->v[2 * i] = vzip1q_f32(evens.v[2 + i], odds.v[2 + i]);
        b->v[2 * i + 1] = vzip2q_f32(evens.v[2 + i], odds.v[2 + i]);
    }
}

SIMD_INLINE void vf_store_f16(uint16_t *p, struct vf a) {
    UNROLL
    for (int i = 0; i < 4; i++)
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}

/* The steps of bf16_from_f32. */
SIMD_INLINE void vf_store_bf16(uint16_t *p, struct vf a) {
    UNROLL
    for (int i = 0; i < 4; i++) {
        uint4 bits = (uint4)a.v[i], high = bits >> 16;
        uint4 rounded = (bits + (high & 1) + 0x7fff) >> 16;
        uint4 is_number = (uint4)(a.v[i] == a.v[i]);
        vst1_u16(p + 4 * i, vmovn_u32(vbslq_u32(is_number, rounded, high | 0x40)));
    }
}

/* The low four of eight bytes; no more than four are read. */
SIMD_INLINE uint8x8_t load_four_bytes(const void *p) {
    uint32_t bytes;
    memcpy(&bytes, p, sizeof(bytes));
    return vreinterpret_u8_u32(vdup_n_u32(bytes));
}

SIMD_INLINE uint4 uint4_from_bytes(const uint8_t *p) {
    return vmovl_u16(vget_low_u16(vmovl_u8(load_four_bytes(p))));
}

SIMD_INLINE void vf_store_int8(int8_t *p, struct vf a) {
    int16x8_t low =
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a.v[0])), vmovn_s32(vcvtnq_s32_f32(a.v[1])));
    int16x8_t high =
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a.v[2])), vmovn_s32(vcvtnq_s32_f32(a.v[3])));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

#endif
