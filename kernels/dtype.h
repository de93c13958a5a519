/* Element types of tensors as files store them, and their conversion to and from float.
 *
 * Quantised types are blocks of consecutive elements of one row, laid out as in GGUF v3 / ggml.
 * Fields follow each other without padding; numbers are little-endian; "element i of 32" and the
 * like count from 0. Blocks of 32 elements:
 *   Q4_0    f16 d; 16 bytes: element i in the low nibble of byte i, element i+16 in the high one;
 *           value = d * (code - 8)
 *   Q4_1    f16 d; f16 m; 16 bytes of codes as in Q4_0;  value = d * code + m
 *   Q5_0    f16 d; u32 high: bit i is bit 4 of code i; 16 bytes of low nibbles as in Q4_0;
 *           value = d * (code - 16)
 *   Q5_1    f16 d; f16 m; u32 high; 16 bytes;            value = d * code + m
 *   Q8_0    f16 d; 32 signed bytes;                      value = d * code
 *   IQ4_NL  f16 d; 16 bytes of codes as in Q4_0;         value = d * levels[code], where levels is
 *           a table of 16 signed bytes (quant_form.h)
 *   MXFP4   E8M0 d; 16 bytes of codes as in Q4_0;        value = d * levels[code]; the levels are
 *           twice the values of E2M1, and d is half of its own (e8m0_half_to_f32)
 * Types of quantised checkpoints, whose tensors are rearranged to this when they are read. A block
 * is a group with one zero point z, of which code - z is a multiple of d, or a part of one:
 *   I4_32   f16 d; unsigned byte z; 16 bytes of codes as in Q4_0;    value = d * (code - z)
 *   I4_64   the same for 64 elements: 32 bytes, 16 for 32 elements
 *   I4_128  the same for 128
 *   I8_32   f16 d; unsigned byte z; 32 unsigned bytes;               value = d * (code - z)
 *   I8_128  f32 d; unsigned byte z; 128 unsigned bytes
 *   E4M3_128  f32 d; 128 bytes;       value = d * e4m3(code), where the codes of NaN are +-480
 * Blocks of 256 elements, whose groups of 16 or 32 have a small integer scale s and minimum n each:
 *   Q2_K    16 bytes: s of group i in the low, n in the high nibble of byte i; 64 bytes of 2-bit
 *           codes; f16 d; f16 m;     value = d * s * code - m * n, groups of 16
 *   Q3_K    32 bytes: bit j of byte i is bit 2 of code 32 j + i; 64 bytes with bits 0 and 1 as in
 *           Q2_K; 12 bytes of 6-bit s (below); f16 d;
 *                                    value = d * (s - 32) * (code - 4), groups of 16
 *   Q4_K    f16 d; f16 m; 12 bytes of 6-bit s and n (below); 128 bytes of 4-bit codes;
 *                                    value = d * s * code - m * n, groups of 32
 *   Q5_K    f16 d; f16 m; 12 bytes as in Q4_K; 32 bytes: bit j of byte i is bit 4 of code 32 j + i;
 *           128 bytes with bits 0 to 3 as in Q4_K; values as in Q4_K
 *   Q6_K    128 bytes with bits 0 to 3: byte 64 h + i has codes 128 h + i (low nibble) and
 *           128 h + 64 + i (high), i < 64; 64 bytes with bits 4 and 5 laid out as in Q2_K;
 *           16 signed bytes s; f16 d;
 *                                    value = d * s * (code - 32), groups of 16
 *   IQ4_XS  f16 d; u16 and 4 bytes of 6-bit s: bits 4 and 5 of group g in bits 2g of the u16, the
 *           others in the low (even g) or high nibble of byte g / 2; 128 bytes, 16 for each group,
 *           with codes as in Q4_0;   value = d * (s - 32) * levels[code] as in IQ4_NL, groups of 32
 *   TQ2_0   64 bytes of 2-bit codes; f16 d;                   value = d * (code - 1)
 *   TQ1_0   32 bytes with five codes each, 16 with five, 4 with four; f16 d: of n bytes, byte i has
 *           the codes j n + i, which are 3 * (byte * 3^j, cut to 8 bits) / 256;
 *                                    value = d * (code - 1)
 *
 * Blocks of 256 elements whose codes are points of a grid (quant_grids.h). A point stands for 8
 * elements, in IQ3 for 4; its number is a byte with higher bits from elsewhere. Bit i of 8 signs
 * makes element i of 8 negative; where there are 7, the eighth makes their sum even. Scales s of 4
 * bits are in the low (even groups) or high nibble of their bytes:
 *   IQ1_S   f16 d; 32 bytes of points; for each group a u16: four times 3 bits of points, 3 bits s,
 *           1 bit: e is -1/8, else 1/8;
 *                                    value = d * (2 s + 1) * (point + e), groups of 32
 *   IQ1_M   32 bytes of points; for each a nibble: 3 bits of it, 1 bit for e as in IQ1_S; 4 u16:
 *           four times 3 bits s, 4 bits of f16 d, the lowest first;
 *                                    value as in IQ1_S, groups of 16
 *   IQ2_XXS f16 d; for each group 4 bytes of points and a u32: four times 7 signs, 4 bits s;
 *                                    value = d * (2 s + 1) / 8 * point, groups of 32
 *   IQ2_XS  f16 d; 32 u16: 9 bits of a point, 7 signs; 8 bytes of s;
 *                                    value as in IQ2_XXS, groups of 16
 *   IQ2_S   f16 d; 32 bytes of points; 32 of signs; 8 with 2 bits for each point; 8 of s;
 *                                    value as in IQ2_XXS, groups of 16
 *   IQ3_XXS f16 d; 64 bytes of points; for each group a u32 as in IQ2_XXS;
 *                                    value = d * (2 s + 1) / 4 * point, groups of 32
 *   IQ3_S   f16 d; 64 bytes of points; 8 with a bit for each; 32 of signs; 4 of s;
 *                                    value = d * (2 s + 1) * point, groups of 32
 *
 * 2-bit codes: bits 2j and 2j+1 of byte 32 h + i are code 128 h + 32 j + i (h < 2, j < 4, i < 32).
 *
 * 4-bit codes of Q4_K and Q5_K: byte 32 p + i has codes 64 p + i (low) and 64 p + 32 + i (high).
 *
 * 6-bit scales of Q3_K: s of group i has bits 0 to 3 in byte i % 8 (low nibble for i < 8, else
 * high) and bits 4 and 5 in bits 2 (i / 4) of byte 8 + i % 4.
 *
 * 6-bit scales of Q4_K: for i < 4, s in bits 0 to 5 of byte i and n in those of byte i + 4; for
 * i >= 4, bits 0 to 3 of s and n in the low and the high nibble of byte i + 4, their bits 4 and 5
 * in the two top bits of bytes i - 4 and i.
 *
 * Products are taken from left to right, each rounded to float. (Source: GGUF specification,
 * ggml/docs/gguf.md, and ggml's quantisation block definitions.)
 *
 * To add a type, add a row to the tables of dtype.c and quant_form.h and functions to quant_block.c
 * and quant_pack.c. */
#ifndef QUIRE_KERNELS_DTYPE_H
#define QUIRE_KERNELS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_Q4_0,
    DTYPE_Q4_1,
    DTYPE_Q8_0,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_IQ4_NL,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_MXFP4,
    DTYPE_I4_32,
    DTYPE_I4_64,
    DTYPE_I4_128,
    DTYPE_I8_32,
    DTYPE_I8_128,
    DTYPE_E4M3_128,
    DTYPE_IQ4_XS,
    DTYPE_TQ2_0,
    DTYPE_TQ1_0,
    DTYPE_IQ1_S,
    DTYPE_IQ1_M,
    DTYPE_IQ2_XXS,
    DTYPE_IQ2_XS,
    DTYPE_IQ2_S,
    DTYPE_IQ3_XXS,
    DTYPE_IQ3_S,
    DTYPE_COUNT,              /* how many there are; no value */
    DTYPE_NONE = DTYPE_COUNT, /* not a type, or an unsupported one */
    DTYPE_AUTO                /* value of an option: its reader chooses */
};

/* A set of types is the sum of their bits. */
#define DTYPE_BIT(dtype) (UINT64_C(1) << (dtype))

/* Maximum number of elements of a block of any type, and a multiple of every block's number. */
#define DTYPE_MAX_BLOCK_ELEMENTS 256

/* Lower-case name as in "q4_1"; never NULL for a valid dtype. */
const char *dtype_name(enum dtype dtype);
/* Elements of one block (1 for plain types) and bytes of one block. */
int dtype_block_elements(enum dtype dtype);
size_t dtype_block_bytes(enum dtype dtype);
bool dtype_is_quantised(enum dtype dtype);

/* Bytes of a row of n elements; n must be a multiple of the block's elements (CHECKed). */
size_t dtype_row_bytes(enum dtype dtype, size_t n);

/* Converts one row of n elements; src needs no alignment. */
void dtype_to_f32(enum dtype dtype, const void *src, float *dst, size_t n);
/* Converts with round-to-nearest-even (plain types) or the reference quantisation (Q4_0, Q4_1 and
 * Q8_0). Others are refused (CHECKed). */
void dtype_from_f32(enum dtype dtype, const float *src, void *dst, size_t n);
/* Returns whether dtype_quantise makes a type: Q2_K to Q6_K, Q4_0 to Q5_1 and Q8_0. */
bool dtype_can_quantise(enum dtype dtype);
/* Quantises a row of weights, slowly and well: searches for the scales, minima and codes with the
 * smallest sum of importance[i] * error^2, in which large elements also count more. importance
 * [n], not negative, says how much each column matters, as an importance matrix does; NULL: all
 * alike. Types that dtype_can_quantise (CHECKed). Returns false if a value is not finite, or too
 * large for the type's scales; dst is then undefined. The same bits on every machine. */
bool dtype_quantise(enum dtype dtype, const float *src, const float *importance, void *dst,
                    size_t n);

float f16_to_f32(uint16_t bits);
uint16_t f16_from_f32(float value);
float bf16_to_f32(uint16_t bits);
uint16_t bf16_from_f32(float value);
/* E4M3: 8-bit float of 4 bits exponent (bias 7) and 3 of mantissa, without infinities, largest 448;
 * 0x7f and 0xff are NaN (OCP 8-bit Floating Point Specification 1.0). Rounds to nearest even;
 * larger values become 448. */
float e4m3_to_f32(uint8_t bits);
uint8_t e4m3_from_f32(float value);
/* Half of an E8M0, an 8-bit exponent: 2^(bits - 128), subnormal for 0 and 1; also where the format
 * has its NaN, 0xff (OCP Microscaling Formats 1.0; as ggml reads it). */
float e8m0_half_to_f32(uint8_t bits);

#endif
