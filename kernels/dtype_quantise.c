/* Reference quantisation of the types that something is quantised to. */
#include "kernels/dtype.h"
#include "kernels/dtype_private.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define BLOCK_ELEMENTS 32
#define BLOCK_HALF (BLOCK_ELEMENTS / 2)

static void store_u16(uint8_t *dst, uint16_t bits) {
    memcpy(dst, &bits, sizeof(bits));
}

static float inverse_or_zero(float d) {
    return d != 0.0f ? 1.0f / d : 0.0f;
}

/* Rounds a non-negative scaled value half up to a 4-bit code. */
static uint8_t nibble(float scaled) {
    int code = (int)(scaled + 0.5f);
    return (uint8_t)(code > 15 ? 15 : code);
}

/* The value of largest magnitude becomes code 0, that is -8 * d, so d takes its opposite sign. */
void dtype_convert_q4_0_from_f32(const float *src, uint8_t *dst, size_t num_blocks) {
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

void dtype_convert_q4_1_from_f32(const float *src, uint8_t *dst, size_t num_blocks) {
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

/* Largest magnitude of a block. By bits, as those of non-negative floats are ordered like integers,
 * of which compilers find the largest many at a time. */
static float largest_magnitude(const float *src) {
    int32_t largest = 0;
    for (int i = 0; i < BLOCK_ELEMENTS; i++) {
        int32_t bits;
        memcpy(&bits, &src[i], sizeof(bits));
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    float magnitude;
    memcpy(&magnitude, &largest, sizeof(magnitude));
    return magnitude;
}

/* Rounds as roundf does, halves away from zero, without a call: adding the float below 0.5 and
 * truncating. Right for magnitudes below 2^22. */
static int8_t round_to_int8(float x) {
    return (int8_t)(int32_t)(x + copysignf(0.49999997f, x));
}

/* A block whose scale has no inverse has codes 0: without normal numbers it reads as zeros, as its
 * scale is 0 in float16; with a NaN or an infinity, which is the scale then, it reads as NaN. */
void dtype_convert_q8_0_from_f32(const float *src, uint8_t *dst, size_t num_blocks) {
    for (size_t b = 0; b < num_blocks; b++, src += BLOCK_ELEMENTS, dst += 34) {
        float d = largest_magnitude(src) / 127.0f;
        store_u16(dst, f16_from_f32(d));
        if (!(d >= FLT_MIN && d <= FLT_MAX)) {
            memset(dst + 2, 0, BLOCK_ELEMENTS);
            continue;
        }
        float inverse = 1.0f / d;
        for (int i = 0; i < BLOCK_ELEMENTS; i++)
            dst[2 + i] = (uint8_t)round_to_int8(src[i] * inverse);
    }
}
