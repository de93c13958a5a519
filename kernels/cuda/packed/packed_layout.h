/* Quantised weights on the device, as packed as in the file: codes are unpacked only in the
 * registers of a product. This header says where each bit of a row lies.
 *
 * A row is cut into chunks of PACKED_CHUNK columns, the last one filled up with zeros, and a
 * chunk's bits lie in several planes, each [rows][bytes of a row]:
 *
 *   low, high  bits of the codes: bits 0 to low_bits - 1, and those above
 *
 *   scales     one byte for each `group` columns, if there are any: the scale, or, where there is
 *              no min, the scale + 128
 *
 *   mins       likewise one byte, if types with scales have a min; Q2_K's, of 4 bits, are the upper
 *              ones of its scales' bytes
 *
 *   factors    d for each `block` columns, as the type stores it; then m, if it has a min
 *
 *   zeros      one byte for each `block` columns, if the type has zero points
 *
 *   value = d * scale * (code - zero) [+ m * min]     scales and mins that are not there count as 1
 *
 * Lane 4 g + t of a warp multiplies rows g and g + 8 of a tile with tensor cores. Of each chunk it
 * takes 8 columns of each 32, its codes e = 0 to 7 of group j: 32 j + 8 t + e, or, so that a
 * product of 16 columns has one scale, where scales are for 16: 32 j + 16 (e / 4) + 4 t + e % 4.
 * The codes of a chunk are ordered [t][j][e]. A lane's 32 codes of b bits take 4 b bytes, as words
 * with the lowest first:
 *
 *   8 bits      in order. Those without a zero point are signed: code - 128
 *   4 bits      word j has the codes of j: e = 2 i in nibble i, e = 2 i + 1 in nibble i + 4
 *   2 bits      word j / 2: e = 2 i in bits 2 p, e = 2 i + 1 in bits 16 + 2 p, p = 4 (j % 2) + i
 *   1 bit       the word: e = 2 i in bit 4 j + i, e = 2 i + 1 in bit 16 + 4 j + i
 *
 * so that a shift and a mask give a pair of neighbours, which is what an operand of tensor cores
 * holds. */
#ifndef QUIRE_KERNELS_CUDA_PACKED_PACKED_LAYOUT_H
#define QUIRE_KERNELS_CUDA_PACKED_PACKED_LAYOUT_H

#include "kernels/dtype.h"

#define PACKED_CHUNK 128

enum packed_codes {
    PACKED_INTEGERS,
    PACKED_IQ4_NL, /* of quant_levels_iq4_nl */
    PACKED_E2M1,   /* of quant_levels_e2m1: twice the 4-bit float */
    PACKED_E4M3,
};

enum packed_factor { PACKED_F16, PACKED_E8M0, PACKED_F32 }; /* 2, 1 and 4 bytes */

struct packed_form {
    enum dtype dtype;
    int low_bits, high_bits;
    int zero; /* of types without zero points: what is subtracted from an integer */
    enum packed_codes codes;
    enum packed_factor factor;
    int block; /* columns of a factor: 32, 64, 128, or 256, which is two chunks */
    int group; /* columns of a scale: 16 or 32; 0: there are none */
    bool has_min, has_zero;
    bool has_nibbles; /* scales and mins are of 4 bits */
};

#ifdef __cplusplus
#define PACKED_CONSTEXPR constexpr
#else
#define PACKED_CONSTEXPR
#endif

/* The types that are held packed. */
static PACKED_CONSTEXPR const struct packed_form packed_forms[] = {
    /* low, high bits, zero; block, group; has_min, has_zero, has_nibbles */
    {DTYPE_Q4_0, 4, 0, 8, PACKED_INTEGERS, PACKED_F16, 32, 0, false, false, false},
    {DTYPE_Q4_1, 4, 0, 0, PACKED_INTEGERS, PACKED_F16, 32, 0, true, false, false},
    {DTYPE_Q5_0, 4, 1, 16, PACKED_INTEGERS, PACKED_F16, 32, 0, false, false, false},
    {DTYPE_Q5_1, 4, 1, 0, PACKED_INTEGERS, PACKED_F16, 32, 0, true, false, false},
    {DTYPE_Q8_0, 8, 0, 128, PACKED_INTEGERS, PACKED_F16, 32, 0, false, false, false},
    {DTYPE_IQ4_NL, 4, 0, 0, PACKED_IQ4_NL, PACKED_F16, 32, 0, false, false, false},
    {DTYPE_MXFP4, 4, 0, 0, PACKED_E2M1, PACKED_E8M0, 32, 0, false, false, false},
    {DTYPE_Q2_K, 2, 0, 0, PACKED_INTEGERS, PACKED_F16, 256, 16, true, false, true},
    {DTYPE_Q3_K, 2, 1, 4, PACKED_INTEGERS, PACKED_F16, 256, 16, false, false, false},
    {DTYPE_Q4_K, 4, 0, 0, PACKED_INTEGERS, PACKED_F16, 256, 32, true, false, false},
    {DTYPE_Q5_K, 4, 1, 0, PACKED_INTEGERS, PACKED_F16, 256, 32, true, false, false},
    {DTYPE_Q6_K, 4, 2, 32, PACKED_INTEGERS, PACKED_F16, 256, 16, false, false, false},
    {DTYPE_IQ4_XS, 4, 0, 0, PACKED_IQ4_NL, PACKED_F16, 256, 32, false, false, false},
    {DTYPE_I4_32, 4, 0, 0, PACKED_INTEGERS, PACKED_F16, 32, 0, false, true, false},
    {DTYPE_I4_64, 4, 0, 0, PACKED_INTEGERS, PACKED_F16, 64, 0, false, true, false},
    {DTYPE_I4_128, 4, 0, 0, PACKED_INTEGERS, PACKED_F16, 128, 0, false, true, false},
    {DTYPE_I8_32, 8, 0, 0, PACKED_INTEGERS, PACKED_F16, 32, 0, false, true, false},
    {DTYPE_I8_128, 8, 0, 0, PACKED_INTEGERS, PACKED_F32, 128, 0, false, true, false},
    {DTYPE_E4M3_128, 8, 0, 0, PACKED_E4M3, PACKED_F32, 128, 0, false, false, false},
};

#define PACKED_NUM_FORMS ((int)(sizeof(packed_forms) / sizeof(packed_forms[0])))

/* Returns the number of the type's form; -1: it is not held packed. */
static inline PACKED_CONSTEXPR int packed_form_index(enum dtype dtype) {
    for (int i = 0; i < PACKED_NUM_FORMS; i++)
        if (packed_forms[i].dtype == dtype)
            return i;
    return -1;
}

static inline PACKED_CONSTEXPR int packed_factor_bytes(enum packed_factor factor) {
    return factor == PACKED_F32 ? 4 : factor == PACKED_F16 ? 2 : 1;
}

enum packed_plane {
    PACKED_LOW,
    PACKED_HIGH,
    PACKED_SCALES,
    PACKED_MINS,
    PACKED_FACTORS,
    PACKED_ZEROS,
    PACKED_NUM_PLANES
};

/* Returns the bytes of two chunks in a plane: an even number of chunks has whole blocks. */
static inline PACKED_CONSTEXPR int packed_pair_bytes(const struct packed_form *form, int plane) {
    const int blocks = 2 * PACKED_CHUNK / form->block;
    const int groups = form->group > 0 ? 2 * PACKED_CHUNK / form->group : 0;
    const int factor = packed_factor_bytes(form->factor) * (form->has_min ? 2 : 1);
    const int bytes[PACKED_NUM_PLANES] = {
        2 * PACKED_CHUNK / 8 * form->low_bits,
        2 * PACKED_CHUNK / 8 * form->high_bits,
        groups,
        form->has_min && !form->has_nibbles ? groups : 0,
        blocks * factor,
        form->has_zero ? blocks : 0,
    };
    return bytes[plane];
}

/* Where the planes of some rows are, on the device or in host memory; those that a type does not
 * have are NULL. */
struct packed_planes {
    uint8_t *at[PACKED_NUM_PLANES];
};

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the bytes of a plane of one row. */
size_t packed_row_bytes(const struct packed_form *form, int plane, int32_t cols);
/* Returns the bytes of all planes of some rows, and fills in where they are if they begin at
 * `memory`, which may be NULL, each at a multiple of 256 bytes. */
size_t packed_planes_init(const struct packed_form *form, char *memory, int32_t num_rows,
                          int32_t cols, struct packed_planes *out);
/* Packs a row of a file into row `row` of planes in host memory, which are written as a whole. */
void packed_row_pack(const struct packed_form *form, const uint8_t *src, int32_t cols,
                     const struct packed_planes *planes, int32_t row);

#ifdef __cplusplus
}
#endif

#endif
