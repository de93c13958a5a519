/* One block of a quantised type, unpacked: the same form for all of them, between the file's layout
 * (dtype.h) and whatever a device keeps. */
#ifndef QUIRE_KERNELS_QUANT_BLOCK_H
#define QUIRE_KERNELS_QUANT_BLOCK_H

#include "kernels/quant_form.h"

#define QUANT_MAX_GROUPS (DTYPE_MAX_BLOCK_ELEMENTS / 16)

/* Valid are the type's block_elements codes, one scale a group, and m and the mins where it has
 * them (quant_form.h says what the fields mean). */
struct quant_block {
    uint8_t codes[DTYPE_MAX_BLOCK_ELEMENTS]; /* in the order of the elements */
    uint16_t d, m;                           /* f16 */
    int8_t scales[QUANT_MAX_GROUPS];
    uint8_t mins[QUANT_MAX_GROUPS];
};

/* From the bytes of one block in a file, aligned to nothing. `dtype` is quantised (CHECKed). */
void quant_block_unpack(enum dtype dtype, const uint8_t *src, struct quant_block *out);
/* The values of the block's elements, exactly those that dtype_to_f32 gives. */
void quant_block_to_f32(enum dtype dtype, const struct quant_block *block, float *out);

#endif
