/* One row per element type. The converters work on whole blocks and read their source bytewise or
 * through memcpy, so a row may start anywhere in a file. */
#include "kernels/dtype.h"

#include "config/check.h"

#include <math.h>
#include <string.h>

#define BLOCK_ELEMENTS 32
#define BLOCK_HALF (BLOCK_ELEMENTS / 2)

struct dtype_info {
    const char *name;
    int block_elements;
    size_t block_bytes;
    void (*to_f32)(const uint8_t *src, float *dst, size_t num_blocks);
    void (*from_f32)(const float *src, uint8_t *dst, size_t num_blocks);
};

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

float bf16_to_f32(uint16_t bits) {
    return float_from_bits((uint32_t)bits << 16);
}

uint16_t bf16_from_f32(float value) {
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static void f32_to_f32(const uint8_t *src, float *dst, size_t n) {
    memcpy(dst, src, n * sizeof(float));
}

static void f32_from_f32(const float *src, uint8_t *dst, size_t n) {
    memcpy(dst, src, n * sizeof(float));
}

static void f16_row_to_f32(const uint8_t *src, float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(load_u16(src + 2 * i));
}

static void f16_row_from_f32(const float *src, uint8_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        store_u16(dst + 2 * i, f16_from_f32(src[i]));
}

static void bf16_row_to_f32(const uint8_t *src, float *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        dst[i] = bf16_to_f32(load_u16(src + 2 * i));
}

static void bf16_row_from_f32(const float *src, uint8_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        store_u16(dst + 2 * i, bf16_from_f32(src[i]));
}

static float inverse_or_zero(float d) {
    return d != 0.0f ? 1.0f / d : 0.0f;
}

/* Rounds a non-negative scaled value half up to a 4-bit code. */
static uint8_t nibble(float scaled) {
    int code = (int)(scaled + 0.5f);
    return (uint8_t)(code > 15 ? 15 : code);
}

static void q4_0_to_f32(const uint8_t *src, float *dst, size_t num_blocks) {
    for (size_t b = 0; b < num_blocks; b++, src += 18, dst += BLOCK_ELEMENTS) {
        float d = f16_to_f32(load_u16(src));
        for (int i = 0; i < BLOCK_HALF; i++) {
            dst[i] = d * (float)((src[2 + i] & 15) - 8);
            dst[i + BLOCK_HALF] = d * (float)((src[2 + i] >> 4) - 8);
        }
    }
}

/* The value of largest magnitude becomes code 0, that is -8 * d, so d takes its opposite sign. */
static void q4_0_from_f32(const float *src, uint8_t *dst, size_t num_blocks) {
    for (size_t b = 0; b < num_blocks; b++, src += BLOCK_ELEMENTS, dst += 18) {
        float extreme = 0.0f;
        for (int i = 0; i < BLOCK_ELEMENTS; i++)
            if (fabsf(src[i]) > fabsf(extreme))
                extreme = src[i];
        float d = extreme / -8.0f;
        float inverse = inverse_or_zero(d);
        store_u16(dst, f16_from_f32(d));
        for (int i = 0; i < BLOCK_HALF; i++) {
            uint8_t low = nibble(src[i] * inverse + 8.0f);
            uint8_t high = nibble(src[i + BLOCK_HALF] * inverse + 8.0f);
            dst[2 + i] = (uint8_t)(low | high << 4);
        }
    }
}

static void q4_1_to_f32(const uint8_t *src, float *dst, size_t num_blocks) {
    for (size_t b = 0; b < num_blocks; b++, src += 20, dst += BLOCK_ELEMENTS) {
        float d = f16_to_f32(load_u16(src));
        float m = f16_to_f32(load_u16(src + 2));
        for (int i = 0; i < BLOCK_HALF; i++) {
            dst[i] = d * (float)(src[4 + i] & 15) + m;
            dst[i + BLOCK_HALF] = d * (float)(src[4 + i] >> 4) + m;
        }
    }
}

static void q4_1_from_f32(const float *src, uint8_t *dst, size_t num_blocks) {
    for (size_t b = 0; b < num_blocks; b++, src += BLOCK_ELEMENTS, dst += 20) {
        float min = src[0], max = src[0];
        for (int i = 1; i < BLOCK_ELEMENTS; i++) {
            min = fminf(min, src[i]);
            max = fmaxf(max, src[i]);
        }
        float d = (max - min) / 15.0f;
        float inverse = inverse_or_zero(d);
        store_u16(dst, f16_from_f32(d));
        store_u16(dst + 2, f16_from_f32(min));
        for (int i = 0; i < BLOCK_HALF; i++) {
            uint8_t low = nibble((src[i] - min) * inverse);
            uint8_t high = nibble((src[i + BLOCK_HALF] - min) * inverse);
            dst[4 + i] = (uint8_t)(low | high << 4);
        }
    }
}

static void q8_0_to_f32(const uint8_t *src, float *dst, size_t num_blocks) {
    for (size_t b = 0; b < num_blocks; b++, src += 34, dst += BLOCK_ELEMENTS) {
        float d = f16_to_f32(load_u16(src));
        for (int i = 0; i < BLOCK_ELEMENTS; i++)
            dst[i] = d * (float)(int8_t)src[2 + i];
    }
}

static void q8_0_from_f32(const float *src, uint8_t *dst, size_t num_blocks) {
    for (size_t b = 0; b < num_blocks; b++, src += BLOCK_ELEMENTS, dst += 34) {
        float amax = 0.0f;
        for (int i = 0; i < BLOCK_ELEMENTS; i++)
            amax = fmaxf(amax, fabsf(src[i]));
        float d = amax / 127.0f;
        float inverse = inverse_or_zero(d);
        store_u16(dst, f16_from_f32(d));
        for (int i = 0; i < BLOCK_ELEMENTS; i++)
            dst[2 + i] = (uint8_t)(int8_t)roundf(src[i] * inverse);
    }
}

static const struct dtype_info dtype_infos[DTYPE_COUNT] = {
    [DTYPE_F32] = {"f32", 1, 4, f32_to_f32, f32_from_f32},
    [DTYPE_F16] = {"f16", 1, 2, f16_row_to_f32, f16_row_from_f32},
    [DTYPE_BF16] = {"bf16", 1, 2, bf16_row_to_f32, bf16_row_from_f32},
    [DTYPE_Q4_0] = {"q4_0", BLOCK_ELEMENTS, 18, q4_0_to_f32, q4_0_from_f32},
    [DTYPE_Q4_1] = {"q4_1", BLOCK_ELEMENTS, 20, q4_1_to_f32, q4_1_from_f32},
    [DTYPE_Q8_0] = {"q8_0", BLOCK_ELEMENTS, 34, q8_0_to_f32, q8_0_from_f32},
};

static const struct dtype_info *info_of(enum dtype dtype) {
    CHECK((unsigned)dtype < DTYPE_COUNT);
    return &dtype_infos[dtype];
}

static size_t num_blocks_of(const struct dtype_info *info, size_t n) {
    CHECK(n % (size_t)info->block_elements == 0);
    return n / (size_t)info->block_elements;
}

const char *dtype_name(enum dtype dtype) {
    return info_of(dtype)->name;
}

int dtype_block_elements(enum dtype dtype) {
    return info_of(dtype)->block_elements;
}

size_t dtype_block_bytes(enum dtype dtype) {
    return info_of(dtype)->block_bytes;
}

bool dtype_is_quantised(enum dtype dtype) {
    return info_of(dtype)->block_elements > 1;
}

size_t dtype_row_bytes(enum dtype dtype, size_t n) {
    const struct dtype_info *info = info_of(dtype);
    return num_blocks_of(info, n) * info->block_bytes;
}

void dtype_to_f32(enum dtype dtype, const void *src, float *dst, size_t n) {
    const struct dtype_info *info = info_of(dtype);
    info->to_f32(src, dst, num_blocks_of(info, n));
}

void dtype_from_f32(enum dtype dtype, const float *src, void *dst, size_t n) {
    const struct dtype_info *info = info_of(dtype);
    info->from_f32(src, dst, num_blocks_of(info, n));
}
