/* Describes how the quantised types differ once their bytes are unpacked, in a table that the
 * conversion to float, the packing of weights and the matrix product share. It is a constant in a
 * header, so that a loop written for any row compiles to code for one. */
#ifndef QUIRE_KERNELS_QUANT_FORM_H
#define QUIRE_KERNELS_QUANT_FORM_H

#include "kernels/dtype.h"

/* Value of an element with code c in group g of its block, d and m being the block's factors:
 *   d * scale[g] * (c - zero)  [+ m * min[g] where has_min]
 * with quant_levels[c] in place of c - zero if has_levels. */
struct quant_form {
    int block_elements; /* 0: not a quantised type */
    int group_elements; /* elements that share a scale and a min; 32 or 16 */
    int code_bits;      /* codes are unsigned; 2, 3, 4, 5, 6 or 8 bits */
    int zero;
    int scale_bits; /* of a group's scale, and of its min; 0: all scales and mins are 1 */
    bool has_min;
    bool has_levels;
};

static const struct quant_form quant_forms[DTYPE_COUNT] = {
    /*                block group bits zero  scale  min   levels */
    [DTYPE_Q4_0] = {32, 32, 4, 8, 0, false, false},
    [DTYPE_Q4_1] = {32, 32, 4, 0, 0, true, false},
    [DTYPE_Q8_0] = {32, 32, 8, 128, 0, false, false},
    [DTYPE_Q5_0] = {32, 32, 5, 16, 0, false, false},
    [DTYPE_Q5_1] = {32, 32, 5, 0, 0, true, false},
    [DTYPE_IQ4_NL] = {32, 32, 4, 0, 0, false, true},
    [DTYPE_Q2_K] = {256, 16, 2, 0, 4, true, false},
    [DTYPE_Q3_K] = {256, 16, 3, 4, 8, false, false},
    [DTYPE_Q4_K] = {256, 32, 4, 0, 8, true, false},
    [DTYPE_Q5_K] = {256, 32, 5, 0, 8, true, false},
    [DTYPE_Q6_K] = {256, 16, 6, 32, 8, false, false},
};

/* The values of IQ4_NL's codes. */
static const int8_t quant_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

#endif
