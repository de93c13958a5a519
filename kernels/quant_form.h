/* Describes how the quantised types differ once their bytes are unpacked, in a table that the
 * conversion to float, the packing of weights and the matrix product share. It is a constant in a
 * header, so that a loop written for any row compiles to code for one. */
#ifndef QUIRE_KERNELS_QUANT_FORM_H
#define QUIRE_KERNELS_QUANT_FORM_H

#include "kernels/dtype.h"

enum quant_scale {
    QUANT_SCALE_F16,
    QUANT_SCALE_E8M0, /* e8m0_half_to_f32 */
    QUANT_SCALE_F32,
};

/* Bytes of a factor. */
static inline size_t quant_scale_bytes(enum quant_scale type) {
    return type == QUANT_SCALE_E8M0 ? 1 : type == QUANT_SCALE_F32 ? 4 : 2;
}

/* Value of an element with code c in group g of its block, d and m being the block's factors:
 *   d / 2^fraction_bits * scale[g] * (c - zero)  [+ m * min[g] where has_min]
 * with levels[c] in place of c - zero if there are levels, and with the zero point that the block
 * has (as a byte) in place of `zero` if has_zero, and the E4M3 that c is if is_e4m3. */
struct quant_form {
    int block_elements; /* 0: not a quantised type */
    int group_elements; /* elements that share a scale and a min; 32 or 16 */
    int code_bits;      /* codes are unsigned; 2, 3, 4, 5, 6 or 8 bits */
    int zero;
    int scale_bits; /* of a group's scale, and of its min; 0: all scales and mins are 1 */
    bool has_min;
    const int8_t *levels;    /* 16 values of 4-bit codes; NULL: codes are numbers */
    enum quant_scale factor; /* how d and m are stored */
    bool has_zero;           /* of such types all scales are 1, and there is no min */
    bool is_e4m3;            /* likewise */
    int fraction_bits;       /* of a code */
};

/* The values of IQ4_NL's codes. */
static const int8_t quant_levels_iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
/* The values of the 4-bit floats of MXFP4 (E2M1), doubled. */
static const int8_t quant_levels_e2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

static const struct quant_form quant_forms[DTYPE_COUNT] = {
    /*                block group bits zero  scale  min   levels  factor */
    [DTYPE_Q4_0] = {32, 32, 4, 8, 0, false, NULL, QUANT_SCALE_F16},
    [DTYPE_Q4_1] = {32, 32, 4, 0, 0, true, NULL, QUANT_SCALE_F16},
    [DTYPE_Q8_0] = {32, 32, 8, 128, 0, false, NULL, QUANT_SCALE_F16},
    [DTYPE_Q5_0] = {32, 32, 5, 16, 0, false, NULL, QUANT_SCALE_F16},
    [DTYPE_Q5_1] = {32, 32, 5, 0, 0, true, NULL, QUANT_SCALE_F16},
    [DTYPE_IQ4_NL] = {32, 32, 4, 0, 0, false, quant_levels_iq4_nl, QUANT_SCALE_F16},
    [DTYPE_Q2_K] = {256, 16, 2, 0, 4, true, NULL, QUANT_SCALE_F16},
    [DTYPE_Q3_K] = {256, 16, 3, 4, 8, false, NULL, QUANT_SCALE_F16},
    [DTYPE_Q4_K] = {256, 32, 4, 0, 8, true, NULL, QUANT_SCALE_F16},
    [DTYPE_Q5_K] = {256, 32, 5, 0, 8, true, NULL, QUANT_SCALE_F16},
    [DTYPE_Q6_K] = {256, 16, 6, 32, 8, false, NULL, QUANT_SCALE_F16},
    [DTYPE_MXFP4] = {32, 32, 4, 0, 0, false, quant_levels_e2m1, QUANT_SCALE_E8M0},
    [DTYPE_I4_32] = {32, 32, 4, 0, 0, false, NULL, QUANT_SCALE_F16, true},
    [DTYPE_I4_64] = {64, 32, 4, 0, 0, false, NULL, QUANT_SCALE_F16, true},
    [DTYPE_I4_128] = {128, 32, 4, 0, 0, false, NULL, QUANT_SCALE_F16, true},
    [DTYPE_I8_32] = {32, 32, 8, 0, 0, false, NULL, QUANT_SCALE_F16, true},
    [DTYPE_I8_128] = {128, 32, 8, 0, 0, false, NULL, QUANT_SCALE_F32, true},
    [DTYPE_E4M3_128] = {128, 32, 8, 0, 0, false, NULL, QUANT_SCALE_F32, false, true},
    [DTYPE_IQ4_XS] = {256, 32, 4, 0, 8, false, quant_levels_iq4_nl, QUANT_SCALE_F16},
    [DTYPE_TQ2_0] = {256, 32, 2, 1, 0, false, NULL, QUANT_SCALE_F16},
    [DTYPE_TQ1_0] = {256, 32, 8, 128, 0, false, NULL, QUANT_SCALE_F16},
    [DTYPE_IQ1_S] = {256, 32, 8, 128, 8, false, NULL, QUANT_SCALE_F16, .fraction_bits = 3},
    [DTYPE_IQ1_M] = {256, 16, 8, 128, 8, false, NULL, QUANT_SCALE_F16, .fraction_bits = 3},
    [DTYPE_IQ2_XXS] = {256, 32, 8, 128, 8, false, NULL, QUANT_SCALE_F16, .fraction_bits = 3},
    [DTYPE_IQ2_XS] = {256, 16, 8, 128, 8, false, NULL, QUANT_SCALE_F16, .fraction_bits = 3},
    [DTYPE_IQ2_S] = {256, 16, 8, 128, 8, false, NULL, QUANT_SCALE_F16, .fraction_bits = 3},
    [DTYPE_IQ3_XXS] = {256, 32, 8, 128, 8, false, NULL, QUANT_SCALE_F16, .fraction_bits = 2},
    [DTYPE_IQ3_S] = {256, 32, 8, 128, 8, false, NULL, QUANT_SCALE_F16},
};

#endif
