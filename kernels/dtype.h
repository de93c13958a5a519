/* Element types of tensors as files store them, and their conversion to and from float.
 *
 * Quantised types are blocks of 32 consecutive elements of one row, laid out as in GGUF v3 / ggml:
 *   Q4_0  f16 d; 16 bytes: element i in the low nibble of byte i, element i+16 in the high nibble;
 *         value = d * (code - 8)
 *   Q4_1  f16 d; f16 m; 16 bytes of codes as in Q4_0;  value = d * code + m
 *   Q8_0  f16 d; 32 signed bytes;                      value = d * code
 * (Source: GGUF specification, ggml/docs/gguf.md, and ggml's quantisation block definitions.)
 * Further types join by one row in the table of dtype.c and one pair of conversions. */
#ifndef QUIRE_KERNELS_DTYPE_H
#define QUIRE_KERNELS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q8_0, DTYPE_COUNT };

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
/* Converts with round-to-nearest-even (plain types) or the reference quantisation (quantised). */
void dtype_from_f32(enum dtype dtype, const float *src, void *dst, size_t n);

float f16_to_f32(uint16_t bits);
uint16_t f16_from_f32(float value);
float bf16_to_f32(uint16_t bits);
uint16_t bf16_from_f32(float value);

#endif
