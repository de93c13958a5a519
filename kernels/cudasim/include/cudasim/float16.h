/* __nv_bfloat16 and __half as bit patterns: no arithmetic and no implicit conversion, which kernels
 * do in float. Conversions round to nearest, ties to even, as the functions of cuda_bf16.h and
 * cuda_fp16.h of the same names; every NaN becomes 0x7fff. */
#ifndef CUDASIM_FLOAT16_H
#define CUDASIM_FLOAT16_H

#include "cudasim/vector_types.h"

#include <stdint.h>

struct __nv_bfloat16 {
    uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
struct __half {
    uint16_t bits;
};
struct alignas(4) __half2 {
    __half x, y;
};

__nv_bfloat16 __float2bfloat16_rn(float x);
__half __float2half_rn(float x);
float __half2float(__half x);

static inline float __bfloat162float(__nv_bfloat16 x) {
    union {
        uint32_t bits;
        float value;
    } result = {(uint32_t)x.bits << 16};
    return result.value;
}

static inline __nv_bfloat16 __float2bfloat16(float x) {
    return __float2bfloat16_rn(x);
}
static inline __half __float2half(float x) {
    return __float2half_rn(x);
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return {bits};
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
    return x.bits;
}
static inline __half __ushort_as_half(unsigned short bits) {
    return {bits};
}
static inline unsigned short __half_as_ushort(__half x) {
    return x.bits;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
    return {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 pair) {
    return __floats2bfloat162_rn(pair.x, pair.y);
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
    return {low, high};
}
static inline float2 __bfloat1622float2(__nv_bfloat162 pair) {
    return {__bfloat162float(pair.x), __bfloat162float(pair.y)};
}
static inline float __low2float(__nv_bfloat162 pair) {
    return __bfloat162float(pair.x);
}
static inline float __high2float(__nv_bfloat162 pair) {
    return __bfloat162float(pair.y);
}

static inline __half2 __floats2half2_rn(float low, float high) {
    return {__float2half_rn(low), __float2half_rn(high)};
}
static inline __half2 __float22half2_rn(float2 pair) {
    return __floats2half2_rn(pair.x, pair.y);
}
static inline __half2 __halves2half2(__half low, __half high) {
    return {low, high};
}
static inline float2 __half22float2(__half2 pair) {
    return {__half2float(pair.x), __half2float(pair.y)};
}
static inline float __low2float(__half2 pair) {
    return __half2float(pair.x);
}
static inline float __high2float(__half2 pair) {
    return __half2float(pair.y);
}

#endif
