/* The plain types. Sources are read through memcpy, so a row may start anywhere in a file. */
#include "kernels/dtype.h"
#include "kernels/dtype_private.h"

#include <string.h>

static float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static uint16_t load_u16(const uint8_t *src) {
    uint16_t bits;
    memcpy(&bits, src, sizeof(bits));
    return bits;
}

static void store_u16(uint8_t *dst, uint16_t bits) {
    memcpy(dst, &bits, sizeof(bits));
}

float f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = (bits >> 10) & 0x1f;
    uint32_t mantissa = bits & 0x3ff;
    uint32_t magnitude;
    if (exponent == 0)
        magnitude = float_bits((float)mantissa * 0x1p-24f);
    else if (exponent < 31)
        magnitude = (exponent + 112) << 23 | mantissa << 13;
    else if (mantissa == 0)
        magnitude = 0x7f800000;
    else
        magnitude = 0x7fc00000 | mantissa << 13;
    return float_from_bits(sign | magnitude);
}

uint16_t f16_from_f32(float value) {
    uint32_t bits = float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520: halfway from the largest f16 to the next power of two */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) {
        /* Subnormal: the spacing of floats in [0.5, 1) is that of f16 subnormals, so this addition
         * rounds to the nearest even one. */
        float shifted = float_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_bits(shifted) - float_bits(0.5f)));
    }
    uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
}

/* Inlined into the conversion of a row, which position-independent code would not do with a
 * function that others see. */
static float widen_bf16(uint16_t bits) {
    return float_from_bits((uint32_t)bits << 16);
}

float bf16_to_f32(uint16_t bits) {
    return widen_bf16(bits);
}

uint16_t bf16_from_f32(float value) {
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float e4m3_to_f32(uint8_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x80) << 24;
    uint32_t exponent = (bits >> 3) & 15, mantissa = bits & 7;
    uint32_t magnitude;
    if ((bits & 0x7f) == 0x7f)
        magnitude = 0x7fc00000;
    else if (exponent == 0)
        magnitude = float_bits((float)mantissa * 0x1p-9f);
    else
        magnitude = (exponent + 120) << 23 | mantissa << 20;
    return float_from_bits(sign | magnitude);
}

uint8_t e4m3_from_f32(float value) {
    uint32_t bits = float_bits(value);
    uint32_t sign = (bits >> 24) & 0x80;
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint8_t)(sign | 0x7f);
    if (magnitude >= 0x43e00000) /* 448 */
        return (uint8_t)(sign | 0x7e);
    if (magnitude < 0x3c800000) {
        /* Subnormal: the spacing of floats from 2^14 on is that of E4M3 subnormals. */
        float shifted = float_from_bits(magnitude) + 0x1p14f;
        return (uint8_t)(sign | (float_bits(shifted) - float_bits(0x1p14f)));
    }
    uint32_t rounded = magnitude + 0x7ffff + ((magnitude >> 20) & 1);
    return (uint8_t)(sign | ((rounded - (120u << 23)) >> 20));
}

float e8m0_half_to_f32(uint8_t bits) {
    return float_from_bits(bits < 2 ? UINT32_C(0x00200000) << bits : (uint32_t)(bits - 1) << 23);
}

void dtype_convert_f32_to_f32(const uint8_t *src, float *dst, size_t n) {
    memcpy(dst, src, n * sizeof(float));
}

void dtype_convert_f32_from_f32(const float *src, uint8_t *dst, size_t n) {
    memcpy(dst, src, n * sizeof(float));
}

void dtype_convert_f16_to_f32(const uint8_t *src, float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(load_u16(src + 2 * i));
}

void dtype_convert_f16_from_f32(const float *src, uint8_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        store_u16(dst + 2 * i, f16_from_f32(src[i]));
}

void dtype_convert_bf16_to_f32(const uint8_t *src, float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        dst[i] = widen_bf16(load_u16(src + 2 * i));
}

void dtype_convert_bf16_from_f32(const float *src, uint8_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        store_u16(dst + 2 * i, bf16_from_f32(src[i]));
}
