/* Private to kernels/cpu: how a panel of 16 columns (cpu_gemm_format.h) keeps weights of one type.
 * There are several layouts; a format of the product names the one it reads.
 *
 * cpu_panel_elements, of plain types: [K][16] elements, as the file has them (2 or 4 bytes).
 *
 * cpu_panel_pairs, of BF16: [K/2][16][2] elements, K rounded up to a multiple of 32 by zeros, as
 * the dot products of x86 take them.
 *
 * cpu_panel_file_blocks, of types whose codes are points of a grid or trits: [K/256][16] blocks, as
 * the file has them. The product decodes one block of all columns at a time.
 *
 * cpu_panel_blocks, of the other quantised types: codes, then records.
 *
 * Codes are [K/32] blocks of 32 elements, each of as many bits as a code has, split into planes
 * that follow each other:
 *
 *   bits of a code   planes: 8 bits      4 bits       2 bits        1 bit
 *                            [8][16][4]  [4][16][4]   [2][16][4]    [1][16][4]
 *   2                                                 bits 0, 1
 *   3                                                 bits 0, 1     bit 2
 *   4                                    bits 0 to 3
 *   5                                    bits 0 to 3                bit 4
 *   6                                    bits 0 to 3  bits 4, 5
 *   8                        bits 0 to 7
 *
 * A 32-block is 8 words of four elements; four consecutive bytes of a plane hold part of one word
 * or, in ascending bits, of 2, 4 or 8 consecutive ones: in the nibble plane byte t of column j in
 * row p has element 8p+t in its low and 8p+4+t in its high nibble.
 *
 * Records are [K/B], B being the elements of the file's block: [16] d, [16] m where there is a
 * minimum, both as the file has them (quant_form.factor), [16] bytes of zero points where there
 * are, and then, if groups have integer scales, for every group in order of K:
 *
 *   scales of 8 bits   [16] signed bytes, [16] bytes of minima where there are
 *   scales of 4 bits   [16] bytes, scale in the low and minimum in the high nibble
 *
 * So a panel is as large as the file's 16 rows, except for Q3_K, Q4_K, Q5_K and IQ4_XS, whose 6-bit
 * scales take 8 bits: 3.6, 2.8, 2.3 and 1.5 % more.
 *
 * Codes stay unsigned, because the integer dot product of x86 multiplies unsigned by signed
 * bytes. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_CPU_PANEL_H
#define QUIRE_KERNELS_CPU_LEVELS_CPU_PANEL_H

#include "kernels/quant_form.h"

#include <stddef.h>
#include <stdint.h>

#define PANEL_COLUMNS 16
#define PANEL_BLOCK 32

/* Returns the depth of a panel of pairs and of rows packed for it. */
static inline size_t cpu_panel_pairs_depth(size_t depth) {
    return (depth + PANEL_BLOCK - 1) / PANEL_BLOCK * PANEL_BLOCK;
}

/* Return which planes codes of code_bits bits have, and the lowest bit of a code in each. */
static inline bool cpu_panel_has_nibbles(int code_bits) {
    return code_bits >= 4 && code_bits <= 6;
}
static inline bool cpu_panel_has_pairs(int code_bits) {
    return code_bits == 2 || code_bits == 3 || code_bits == 6;
}
static inline bool cpu_panel_has_singles(int code_bits) {
    return code_bits == 3 || code_bits == 5;
}
static inline int cpu_panel_pairs_shift(int code_bits) {
    return code_bits == 6 ? 4 : 0;
}
static inline int cpu_panel_singles_shift(int code_bits) {
    return code_bits - 1;
}

/* Bytes of a 32-block's codes, all columns. */
static inline size_t cpu_panel_code_bytes(const struct quant_form *form) {
    return (size_t)form->code_bits * (PANEL_BLOCK * PANEL_COLUMNS / 8);
}
static inline size_t cpu_panel_factor_bytes(const struct quant_form *form) {
    return ((form->has_min ? 2 : 1) * quant_scale_bytes(form->factor) + (form->has_zero ? 1 : 0)) *
           PANEL_COLUMNS;
}
/* Bytes of a group's scales and minima, all columns. */
static inline size_t cpu_panel_group_bytes(const struct quant_form *form) {
    return form->scale_bits == 8 && form->has_min ? 2 * PANEL_COLUMNS
           : form->scale_bits > 0                 ? PANEL_COLUMNS
                                                  : 0;
}
static inline size_t cpu_panel_record_bytes(const struct quant_form *form) {
    return cpu_panel_factor_bytes(form) +
           (size_t)(form->block_elements / form->group_elements) * cpu_panel_group_bytes(form);
}

struct cpu_panel_layout {
    /* Bytes of one column of a panel; `depth` is a multiple of the file's blocks. */
    size_t (*column_bytes)(enum dtype dtype, size_t depth);
    /* Packs consecutive rows of a file, row_bytes apart and unaligned, into the columns from
     * first_column on of a panel. */
    void (*pack)(enum dtype dtype, const uint8_t *src, size_t row_bytes, size_t depth,
                 uint8_t *panel, size_t first_column, size_t num_columns);
    /* Unpacks one column, with exactly the values of dtype_to_f32 of the file's row. */
    void (*unpack)(enum dtype dtype, const uint8_t *panel, size_t depth, size_t column, float *out);
};

extern const struct cpu_panel_layout cpu_panel_elements;
extern const struct cpu_panel_layout cpu_panel_pairs;
extern const struct cpu_panel_layout cpu_panel_blocks;
extern const struct cpu_panel_layout cpu_panel_file_blocks;

/* 256 elements of all columns: codes of 8 bits, which count from 128, as in cpu_panel_blocks, and
 * for every group what they are multiplied with. */
struct cpu_panel_decoded {
    uint8_t codes[DTYPE_MAX_BLOCK_ELEMENTS * PANEL_COLUMNS];
    float factors[DTYPE_MAX_BLOCK_ELEMENTS / 16][PANEL_COLUMNS];
};

/* Decodes the blocks of 16 columns from a panel of file blocks. */
void cpu_panel_decode(enum dtype dtype, const uint8_t *blocks, struct cpu_panel_decoded *out);

#endif
