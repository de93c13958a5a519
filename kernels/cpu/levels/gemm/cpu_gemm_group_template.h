/* From the exact product of codes in one group to the float sums, written once over a level's
 * registers: applies the scales and minima of a group of weights and a block of activations. All
 * formats of quantised weights use it, so their bits are the same. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_GROUP_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_GROUP_TEMPLATE_H

#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/simd/simd.h"

/* -zero * sum of the activation codes of group h of a 32-block. */
SIMD_INLINE ri start_value(const struct quant_form *form, const struct gemm_block *block, int h) {
    if (form->levels != NULL)
        return ri_set1(block->start_128);
    switch (form->zero) {
    case 0:
        return ri_set1(0);
    case 1:
        return ri_set1(block->start_8 >> 3);
    case 4:
        return ri_set1(block->half_starts_32[h] >> 3);
    case 8:
        return ri_set1(block->start_8);
    case 16:
        return ri_shl(ri_set1(block->start_8), 1);
    case 32:
        return ri_set1(block->half_starts_32[h]);
    default:
        return form->group_elements == PANEL_BLOCK ? ri_set1(block->start_128)
                                                   : ri_shl(ri_set1(block->half_starts_32[h]), 2);
    }
}

/* Factors of RF_LANES columns: d multiplies a code, m is added to the product. */
struct factors {
    rf d, m;
};

/* e8m0_half_to_f32 of RF_LANES bytes, as the product of two normal powers of 2: e - 128 is the sum
 * of e / 2 - 64 and (e + 1) / 2 - 64. */
SIMD_INLINE rf load_e8m0(const uint8_t *p) {
    const ri exponent = ri_set1(0x7f800000), bias = ri_set1(63 << 23);
    ri e = ri_and(ri_load_bytes(p), ri_set1(255));
    ri low = ri_and(ri_shl(e, 22), exponent);
    ri high = ri_and(ri_shl(ri_add(e, ri_set1(1)), 22), exponent);
    return rf_mul(rf_from_bits(ri_add(low, bias)), rf_from_bits(ri_add(high, bias)));
}

SIMD_INLINE rf load_factors(const struct quant_form *form, const uint8_t *p) {
    if (form->factor == QUANT_SCALE_F32)
        return rf_load(p);
    return form->factor == QUANT_SCALE_E8M0 ? load_e8m0(p) : rf_load_f16(p);
}

/* Exact unless a is a float: 11 bits times 8. */
SIMD_INLINE rf times_int(rf a, ri b) {
    return rf_mul(a, rf_from_int(b));
}

/* Of the columns from `lane` on. A zero point becomes a minimum. */
SIMD_INLINE struct factors block_factors(const struct quant_form *form, const uint8_t *record,
                                         int32_t lane) {
    const size_t bytes = quant_scale_bytes(form->factor);
    const uint8_t *zeros = record + bytes * PANEL_COLUMNS + lane;
    record += bytes * (size_t)lane;
    struct factors f = {load_factors(form, record), rf_set1(0)};
    if (form->has_min)
        f.m = load_factors(form, record + bytes * PANEL_COLUMNS);
    if (form->has_zero)
        f.m = times_int(rf_mul(f.d, rf_set1(-1)), ri_and(ri_load_bytes(zeros), ri_set1(255)));
    return f;
}

SIMD_INLINE struct factors group_factors(const struct quant_form *form, struct factors f,
                                         const uint8_t *scales) {
    if (form->scale_bits == 0)
        return f;
    ri first = ri_load_bytes(scales);
    if (form->scale_bits == 4)
        return (struct factors){
            times_int(f.d, ri_and(first, ri_set1(15))),
            times_int(f.m, ri_and(ri_shr(first, 4), ri_set1(15))),
        };
    f.d = times_int(f.d, first);
    if (form->has_min)
        f.m = times_int(f.m, ri_load_bytes(scales + PANEL_COLUMNS));
    return f;
}

/* dots[r], the start value included, of group h and row r, into sums[0, step, 2 step ..]. */
SIMD_INLINE void add_dots(const struct quant_form *form, struct factors f,
                          const struct gemm_block *blocks, int h, int num_rows, const ri *dots,
                          rf *sums, int step) {
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        rf scale = rf_mul(f.d, rf_set1(blocks[r].scale));
        sums[r * step] = rf_fma(scale, rf_from_int(dots[r]), sums[r * step]);
    }
    if (!form->has_min && !form->has_zero)
        return;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        const struct gemm_block *b = &blocks[r];
        rf sum =
            rf_set1(form->group_elements == PANEL_BLOCK ? b->scaled_sum : b->half_scaled_sums[h]);
        sums[r * step] = rf_fma(f.m, sum, sums[r * step]);
    }
}

#endif
