/* From the exact product of codes in one group to the float sums, written once over a level's
 * registers: applies the scales and minima of a group of weights and a block of activations. All
 * formats of quantised weights use it, so their bits are the same. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_GROUP_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_GEMM_CPU_GEMM_GROUP_TEMPLATE_H

#include "kernels/cpu/levels/cpu_gemm_format.h"
#include "kernels/cpu/simd/simd.h"

/* -zero * sum of the activation codes of group h of a 32-block. */
SIMD_INLINE ri start_value(const struct quant_form *form, const struct gemm_block *block, int h) {
    if (form->has_levels)
        return ri_set1(block->start_128);
    switch (form->zero) {
    case 0:
        return ri_set1(0);
    case 4:
        return ri_set1(block->half_starts_32[h] >> 3);
    case 8:
        return ri_set1(block->start_8);
    case 16:
        return ri_shl(ri_set1(block->start_8), 1);
    case 32:
        return ri_set1(block->half_starts_32[h]);
    default:
        return ri_set1(block->start_128);
    }
}

/* Factors of RF_LANES columns: d multiplies a code, m is added to the product. */
struct factors {
    rf d, m;
};

SIMD_INLINE struct factors block_factors(const struct quant_form *form, const uint8_t *record) {
    struct factors f = {rf_load_f16(record), rf_set1(0)};
    if (form->has_min)
        f.m = rf_load_f16(record + sizeof(uint16_t) * PANEL_COLUMNS);
    return f;
}

/* Exact: 11 bits times 8. */
SIMD_INLINE rf times_int(rf a, ri b) {
    return rf_mul(a, rf_from_int(b));
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
    if (!form->has_min)
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
