#include "cudasim/float16.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

__nv_bfloat16 __float2bfloat16_rn(float x) {
    if (isnan(x))
        return {0x7fff};
    uint32_t bits = bits_of(x);
    uint32_t odd = bits >> 16 & 1;
    return {(uint16_t)((bits + 0x7fff + odd) >> 16)};
}

/* Below the smallest normal value the steps are 2^-24 wide: scaled there, the nearest integer, ties
 * to even, is the pattern. Above, the pattern is rounded as an integer: a carry moves the exponent,
 * up to infinity. */
__half __float2half_rn(float x) {
    if (isnan(x))
        return {0x7fff};
    uint32_t sign = bits_of(x) >> 16 & 0x8000;
    float magnitude = fabsf(x);
    if (magnitude < 0x1p-14f)
        return {(uint16_t)(sign | (uint32_t)nearbyintf(magnitude * 0x1p24f))};
    if (magnitude >= 65520.0f)
        return {(uint16_t)(sign | 0x7c00)};
    uint32_t bits = bits_of(magnitude) - ((uint32_t)(127 - 15) << 23);
    uint32_t odd = bits >> 13 & 1;
    return {(uint16_t)(sign | (bits + 0xfff + odd) >> 13)};
}

float __half2float(__half x) {
    uint32_t exponent = x.bits >> 10 & 0x1f, fraction = x.bits & 0x3ff;
    uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16;
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    uint32_t bits = exponent == 0x1f ? 0x7f800000 | fraction << 13
                                     : (exponent + (127 - 15)) << 23 | fraction << 13;
    bits |= sign;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
