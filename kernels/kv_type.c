#include "kernels/kv_type.h"

#include "config/base/check.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    const char *other_name; /* vLLM's */
    enum dtype dtype;
} types[NUM_KV_TYPES] = {
    [KV_F32] = {"f32", "float32", DTYPE_F32},     [KV_F16] = {"f16", "float16", DTYPE_F16},
    [KV_BF16] = {"bf16", "bfloat16", DTYPE_BF16}, [KV_INT8] = {"int8", "int8", DTYPE_NONE},
    [KV_E4M3] = {"fp8", "fp8_e4m3", DTYPE_NONE},
};

const char *kv_type_name(enum kv_type type) {
    CHECK((unsigned)type < NUM_KV_TYPES);
    return types[type].name;
}

enum kv_type kv_type_of(const char *name) {
    if (strcmp(name, "auto") == 0)
        return KV_AUTO;
    enum kv_type type = 0;
    while (type < NUM_KV_TYPES && strcmp(name, types[type].name) != 0 &&
           strcmp(name, types[type].other_name) != 0)
        type++;
    return type;
}

enum kv_type kv_type_of_dtype(enum dtype dtype) {
    enum kv_type type = 0;
    while (type < NUM_KV_TYPES && types[type].dtype != dtype)
        type++;
    return type;
}

enum dtype kv_type_dtype(enum kv_type type) {
    CHECK((unsigned)type < NUM_KV_TYPES);
    return types[type].dtype;
}

/* NaN when one of them is not finite. */
static float largest_magnitude(const float *values, size_t n) {
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return NAN;
        largest = fmaxf(largest, fabsf(values[i]));
    }
    return largest;
}

static float quotient(float x, float scale, float most) {
    return fminf(fmaxf(x / scale, -most), most);
}

/* The best scale of a row whose largest magnitude is 448 times `least`. */
static float e4m3_scale(const float *src, float least, size_t n) {
    float best = least, best_error = INFINITY;
    for (int c = 0; c < KV_E4M3_FACTORS && least > 0; c++) {
        float factor = 1 + (float)c / KV_E4M3_FACTORS, scale = least * factor, sum = 0;
        for (size_t i = 0; i < n; i++) {
            float code = quotient(src[i], scale, 448);
            float error = e4m3_to_f32(e4m3_from_f32(code)) - code;
            sum += (error * error + KV_E4M3_ROUNDER) - KV_E4M3_ROUNDER;
        }
        if (sum * (factor * factor) < best_error) {
            best_error = sum * (factor * factor);
            best = scale;
        }
    }
    return best;
}

void kv_row_from_f32(enum kv_type type, const float *src, void *dst, float *scale, size_t n) {
    CHECK((unsigned)type < NUM_KV_TYPES);
    if (!kv_type_has_scales(type)) {
        dtype_from_f32(types[type].dtype, src, dst, n);
        return;
    }
    *scale = largest_magnitude(src, n) / (type == KV_INT8 ? 127 : 448);
    if (type == KV_E4M3)
        *scale = e4m3_scale(src, *scale, n);
    for (size_t i = 0; i < n; i++) {
        float code = *scale > 0 ? quotient(src[i], *scale, type == KV_INT8 ? 127 : 448) : 0;
        if (type == KV_INT8)
            ((int8_t *)dst)[i] = (int8_t)rintf(code);
        else
            ((uint8_t *)dst)[i] = e4m3_from_f32(code);
    }
}

void kv_row_to_f32(enum kv_type type, const void *src, const float *scale, float *dst, size_t n) {
    CHECK((unsigned)type < NUM_KV_TYPES);
    if (!kv_type_has_scales(type)) {
        dtype_to_f32(types[type].dtype, src, dst, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        dst[i] = *scale * (type == KV_INT8 ? ((const int8_t *)src)[i]
                                           : e4m3_to_f32(((const uint8_t *)src)[i]));
}
