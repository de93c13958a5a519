/* One block of a quantised type, unpacked: the same form for all types, between the file's layout
 * (dtype.h) and a device's own layout. */
#ifndef QUIRE_KERNELS_QUANT_BLOCK_H
#define QUIRE_KERNELS_QUANT_BLOCK_H

#include "kernels/quant_form.h"

#define QUANT_MAX_GROUPS (DTYPE_MAX_BLOCK_ELEMENTS / 16)

/* Only the type's block_elements codes, one scale per group, and m and the mins if it has them are
 * valid (quant_form.h defines the fields). */
struct quant_block {
    uint8_t codes[DTYPE_MAX_BLOCK_ELEMENTS]; /* in the order of the elements */
    uint32_t d, m;                           /* bits, as the form's factor says */
    uint8_t zero;
    int8_t scales[QUANT_MAX_GROUPS];
    uint8_t mins[QUANT_MAX_GROUPS];
};

/* Unpacks the bytes of one block of a file, which need no alignment. `dtype` is quantised
 * (CHECKed). */
void quant_block_unpack(enum dtype dtype, const uint8_t *src, struct quant_block *out);
/* What the scales are multiplied with: d / 2^fraction_bits. */
float quant_block_factor(enum dtype dtype, const struct quant_block *block);
/* Computes the values of the block's elements, exactly those of dtype_to_f32. */
void quant_block_to_f32(enum dtype dtype, const struct quant_block *block, float *out);
/* Writes the dtype_block_bytes of a block in the file's layout (quant_pack.c): the inverse of
 * quant_block_unpack, with scales and mins within the type's bits. For types that
 * dtype_can_quantise (CHECKed). */
void quant_block_pack(enum dtype dtype, const struct quant_block *block, uint8_t *dst);

#endif
