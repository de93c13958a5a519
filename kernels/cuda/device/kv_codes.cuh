/* Codes of a quantised KV cache, by the definitions of kv_layout.h. Uses only bits and float
 * arithmetic, the same on every GPU, on the simulator and on the CPU (dtype.h, kv_type.c): FP8
 * instructions exist only from sm_89 on. */
#ifndef QUIRE_KERNELS_CUDA_DEVICE_KV_CODES_CUH
#define QUIRE_KERNELS_CUDA_DEVICE_KV_CODES_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/kv_layout.h"

/* The unit of a code's value: codes are unpacked without this factor, which is folded into the
 * scale that they are multiplied by anyway. */
template <kv_type KV> constexpr float kv_code_unit = KV == KV_E4M3 ? 256.0f : 1.0f;

/* Two codes, of bytes i and i + 1 of the word, over kv_code_unit as T: exact, and finite for every
 * byte.
 *   INT8 in half   1024 has a last bit worth 1: a byte of 0 .. 255 put there, and 1024 + 128 taken
 *                  off
 *   INT8 in bf16   so has 128, and the byte's upper bit is next to the exponent's last: of a
 *                  negative code's bits all but that one are 256 + code, and 256 is taken off
 *   E4M3 in half   sign, exponent and mantissa where those of a half are; of the biases, 7 and 15,
 *                  the difference is 2^8; subnormals are subnormals */
template <kv_type KV, class T>
__device__ __forceinline__ uint32_t unpack_pair(uint32_t word, int i);
template <> __device__ __forceinline__ uint32_t unpack_pair<KV_INT8, __half>(uint32_t word, int i) {
    uint32_t magic = __byte_perm(word ^ 0x80808080, 0x64646464, i == 0 ? 0x4140 : 0x4342);
    return subtract2<__half>(magic, 0x64806480);
}
template <>
__device__ __forceinline__ uint32_t unpack_pair<KV_INT8, __nv_bfloat16>(uint32_t word, int i) {
    uint32_t magic = __byte_perm(word, 0x43434343, i == 0 ? 0x4140 : 0x4342);
    return subtract2<__nv_bfloat16>(magic & 0xff7fff7f, magic & 0xff80ff80);
}
template <> __device__ __forceinline__ uint32_t unpack_pair<KV_E4M3, __half>(uint32_t word, int i) {
    uint32_t high_bytes = __byte_perm(word, 0, i == 0 ? 0x1404 : 0x3424);
    return (high_bytes & 0x80008000) | (high_bytes >> 1 & 0x3f803f80);
}
/* Likewise as floats. INT8: 2^23 has a last bit worth 1. */
template <kv_type KV>
__device__ __forceinline__ void unpack_floats(float (&out)[2], uint32_t word, int i) {
    if constexpr (KV == KV_INT8) {
        uint32_t unsigned_codes = word ^ 0x80808080;
        out[0] = __uint_as_float(__byte_perm(unsigned_codes, 0x4b000000, 0x7540 | i)) - 8388736.0f;
        out[1] = __uint_as_float(__byte_perm(unsigned_codes, 0x4b000000, 0x7541 | i)) - 8388736.0f;
    } else {
        uint32_t halves = unpack_pair<KV_E4M3, __half>(word, i);
        out[0] = to_float(__ushort_as_half((unsigned short)halves));
        out[1] = to_float(__ushort_as_half((unsigned short)(halves >> 16)));
    }
}

template <>
__device__ __forceinline__ uint32_t unpack_pair<KV_E4M3, __nv_bfloat16>(uint32_t word, int i) {
    float x[2];
    unpack_floats<KV_E4M3>(x, word, i);
    return pack2<__nv_bfloat16>(x[0], x[1]);
}

/* Eight codes, in the order of memory, as T. */
template <kv_type KV, class T> __device__ __forceinline__ uint4 unpack_codes(uint2 codes) {
    return make_uint4(unpack_pair<KV, T>(codes.x, 0), unpack_pair<KV, T>(codes.x, 2),
                      unpack_pair<KV, T>(codes.y, 0), unpack_pair<KV, T>(codes.y, 2));
}

/* The same times a scale, in float, rounded to T. */
template <kv_type KV, class T>
__device__ __forceinline__ uint4 unpack_scaled(uint2 codes, float scale) {
    uint32_t out[4];
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
        float x[2];
        unpack_floats<KV>(x, pair < 2 ? codes.x : codes.y, pair % 2 * 2);
        out[pair] = pack2<T>(x[0] * scale, x[1] * scale);
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

/* The code of a finite x / scale; to the nearest even, at most the largest. */
__device__ __forceinline__ uint32_t int8_code(float quotient) {
    return (uint32_t)(int)rintf(fminf(fmaxf(quotient, -127.0f), 127.0f)) & 0xff;
}
__device__ __forceinline__ uint32_t e4m3_code(float quotient) {
    uint32_t sign = __float_as_uint(quotient) >> 24 & 0x80;
    float magnitude = fminf(fabsf(quotient), 448.0f);
    if (magnitude < 0x1p-6f) /* subnormal: their spacing is that of floats from 2^14 on */
        return sign | (__float_as_uint(magnitude + 0x1p14f) - __float_as_uint(0x1p14f));
    uint32_t bits = __float_as_uint(magnitude);
    return sign | ((bits + 0x7ffff + (bits >> 20 & 1) - (120u << 23)) >> 20);
}

/* Returns the value of the code of a finite quotient. */
__device__ __forceinline__ float e4m3_rounded(float quotient) {
    uint32_t exponent = max(__float_as_uint(quotient) & 0x7f800000, 0x3c800000u);
    float rounder = __uint_as_float(exponent + (20u << 23 | 0x400000));
    return quotient + rounder - rounder;
}

/* This thread's part of the sum of squared errors of a row; exact to add up. */
__device__ __forceinline__ float e4m3_errors(const float (&x)[8], float scale) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float quotient = fminf(fmaxf(x[i] / scale, -448.0f), 448.0f);
        float error = e4m3_rounded(quotient) - quotient;
        sum += __fadd_rn(__fadd_rn(__fmul_rn(error, error), KV_E4M3_ROUNDER), -KV_E4M3_ROUNDER);
    }
    return sum;
}

/* Returns the smallest scale of a row whose largest magnitude has these bits; NaN if that is not
 * finite. */
__device__ __forceinline__ float kv_scale_of(kv_type type, uint32_t largest) {
    if (largest >= 0x7f800000)
        return __uint_as_float(0x7fc00000);
    return __uint_as_float(largest) / (type == KV_INT8 ? 127.0f : 448.0f);
}

/* Packs eight elements of a row with that scale; zeros if the scale is 0 or NaN. */
__device__ __forceinline__ uint2 pack_codes(kv_type type, const float (&x)[8], float scale) {
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float quotient = scale > 0 ? x[i] / scale : 0.0f;
        uint32_t code = type == KV_INT8 ? int8_code(quotient) : e4m3_code(quotient);
        words[i / 4] |= code << 8 * (i % 4);
    }
    return make_uint2(words[0], words[1]);
}

#endif
