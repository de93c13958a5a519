/* Private to dtype*.c: the conversions of one type each, of n elements or of n blocks. */
#ifndef QUIRE_KERNELS_DTYPE_PRIVATE_H
#define QUIRE_KERNELS_DTYPE_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

/* dtype_float.c */
void dtype_convert_f32_to_f32(const uint8_t *src, float *dst, size_t n);
void dtype_convert_f32_from_f32(const float *src, uint8_t *dst, size_t n);
void dtype_convert_f16_to_f32(const uint8_t *src, float *dst, size_t n);
void dtype_convert_f16_from_f32(const float *src, uint8_t *dst, size_t n);
void dtype_convert_bf16_to_f32(const uint8_t *src, float *dst, size_t n);
void dtype_convert_bf16_from_f32(const float *src, uint8_t *dst, size_t n);

/* dtype_quantise.c */
void dtype_convert_q4_0_from_f32(const float *src, uint8_t *dst, size_t num_blocks);
void dtype_convert_q4_1_from_f32(const float *src, uint8_t *dst, size_t num_blocks);
void dtype_convert_q8_0_from_f32(const float *src, uint8_t *dst, size_t num_blocks);

#endif
