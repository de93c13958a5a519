/* Names of the KV cache's element types (kv_layout.h), and rows of them as floats. */
#ifndef QUIRE_KERNELS_KV_TYPE_H
#define QUIRE_KERNELS_KV_TYPE_H

#include "kernels/dtype.h"
#include "kernels/kv_layout.h"

/* "f32", "f16", "bf16", "int8", "fp8"; never NULL for a valid type. */
const char *kv_type_name(enum kv_type type);
/* Returns the type of that name or vLLM's ("float32", "float16", "bfloat16", "fp8_e4m3"), KV_AUTO
 * for "auto", NUM_KV_TYPES for any other. */
enum kv_type kv_type_of(const char *name);

/* Returns the type whose elements are of `dtype`, or NUM_KV_TYPES. */
enum kv_type kv_type_of_dtype(enum dtype dtype);
/* Returns the dtype of a plain type, DTYPE_NONE for a quantised one. */
enum dtype kv_type_dtype(enum kv_type type);

/* Convert one token's row of n elements in order, as kv_layout.h defines it. `scale` is the row's
 * if the type has scales; otherwise it is not accessed, and may be NULL. */
void kv_row_from_f32(enum kv_type type, const float *src, void *dst, float *scale, size_t n);
void kv_row_to_f32(enum kv_type type, const void *src, const float *scale, float *dst, size_t n);

#endif
