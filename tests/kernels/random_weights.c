#include "tests/kernels/random_weights.h"

#include "config/base/numbers.h"
#include "kernels/quant_form.h"

#include <math.h>
#include <string.h>

/* Where a block has its factors, -1: no second one; and what they are to be about. */
static const struct {
    int d, m;
    float size;
} block_factors[DTYPE_COUNT] = {
    [DTYPE_Q4_0] = {0, -1, 0.1f},      [DTYPE_Q4_1] = {0, 2, 0.05f},
    [DTYPE_Q8_0] = {0, -1, 0.008f},    [DTYPE_Q5_0] = {0, -1, 0.06f},
    [DTYPE_Q5_1] = {0, 2, 0.03f},      [DTYPE_IQ4_NL] = {0, -1, 0.008f},
    [DTYPE_Q2_K] = {80, 82, 0.02f},    [DTYPE_Q3_K] = {108, -1, 0.008f},
    [DTYPE_Q4_K] = {0, 2, 1e-3f},      [DTYPE_Q5_K] = {0, 2, 5e-4f},
    [DTYPE_Q6_K] = {208, -1, 2.5e-4f}, [DTYPE_MXFP4] = {0, -1, 0.08f},
    [DTYPE_I4_32] = {0, -1, 0.06f},    [DTYPE_I4_64] = {0, -1, 0.06f},
    [DTYPE_I4_128] = {0, -1, 0.06f},   [DTYPE_I8_32] = {0, -1, 0.004f},
    [DTYPE_I8_128] = {0, -1, 0.004f},  [DTYPE_E4M3_128] = {0, -1, 0.002f},
    [DTYPE_IQ4_XS] = {0, -1, 2.5e-4f}, [DTYPE_TQ2_0] = {64, -1, 0.5f},
    [DTYPE_TQ1_0] = {52, -1, 0.8f},    [DTYPE_IQ1_S] = {0, -1, 0.1f},
    [DTYPE_IQ1_M] = {48, -1, 0.1f},    [DTYPE_IQ2_XXS] = {0, -1, 0.015f},
    [DTYPE_IQ2_XS] = {0, -1, 0.015f},  [DTYPE_IQ2_S] = {0, -1, 0.015f},
    [DTYPE_IQ3_XXS] = {0, -1, 0.005f}, [DTYPE_IQ3_S] = {0, -1, 0.005f},
};

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint32_t next(uint64_t *seed) {
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

/* In [-1, 1). */
static float uniform(uint64_t *seed) {
    return (float)(next(seed) >> 8) * 0x1p-23f - 1;
}

/* A power of 2 from f16's range: half of the E8M0 of 128 is 1. */
static uint8_t e8m0_of(uint16_t f16) {
    int exponent;
    frexpf(f16_to_f32(f16 | 1), &exponent);
    return (uint8_t)(127 + exponent);
}

static void store_factor(enum dtype dtype, uint8_t *dst, uint16_t f16) {
    float f32 = f16_to_f32(f16);
    if (quant_forms[dtype].factor == QUANT_SCALE_E8M0)
        *dst = e8m0_of(f16);
    else if (quant_forms[dtype].factor == QUANT_SCALE_F32)
        memcpy(dst, &f32, sizeof(f32));
    else if (dtype == DTYPE_IQ1_M) /* in the top nibbles of four numbers */
        for (int i = 0; i < 4; i++)
            dst[2 * i + 1] = (uint8_t)((dst[2 * i + 1] & 15) | (f16 >> 4 * i & 15) << 4);
    else
        memcpy(dst, &f16, sizeof(f16));
}

static uint16_t random_factor(uint64_t *seed, enum dtype dtype) {
    return f16_from_f32(block_factors[dtype].size * (1.25f + uniform(seed)));
}

/* Where a block has its zero point, -1: it has none. */
static int zero_at(enum dtype dtype) {
    return quant_forms[dtype].has_zero ? (int)quant_scale_bytes(quant_forms[dtype].factor) : -1;
}

static void random_block(uint64_t *seed, enum dtype dtype, uint8_t *dst) {
    for (size_t i = 0; i < dtype_block_bytes(dtype); i++)
        dst[i] = (uint8_t)next(seed);
    store_factor(dtype, dst + block_factors[dtype].d, random_factor(seed, dtype));
    if (block_factors[dtype].m >= 0)
        store_factor(dtype, dst + block_factors[dtype].m, random_factor(seed, dtype));
    if (zero_at(dtype) >= 0)
        dst[zero_at(dtype)] &= (uint8_t)((1 << quant_forms[dtype].code_bits) - 1);
}

void random_weights_row(uint64_t *seed, enum dtype dtype, void *out, size_t n) {
    uint8_t *dst = out;
    for (size_t i = 0; i < n; i += (size_t)dtype_block_elements(dtype)) {
        float value = uniform(seed);
        if (dtype_is_quantised(dtype))
            random_block(seed, dtype, dst);
        else
            dtype_from_f32(dtype, &value, dst, 1);
        dst += dtype_block_bytes(dtype);
    }
}

void random_weights_fill_block(enum dtype dtype, void *block, uint8_t pattern, uint16_t d) {
    uint8_t *bytes = block, kept[sizeof(uint16_t)];
    int at = zero_at(dtype) >= 0 ? zero_at(dtype) : block_factors[dtype].m;
    size_t kept_bytes = at < 0 ? 0 : zero_at(dtype) >= 0 ? 1 : sizeof(kept);
    memcpy(kept, bytes + max_int32(at, 0), kept_bytes);
    memset(bytes, pattern, dtype_block_bytes(dtype));
    memcpy(bytes + max_int32(at, 0), kept, kept_bytes);
    store_factor(dtype, bytes + block_factors[dtype].d, d);
}

enum dtype random_weights_dtype(uint64_t *seed, int32_t cols) {
    for (;;) {
        enum dtype dtype = (enum dtype)(next(seed) % DTYPE_COUNT);
        if (cols % dtype_block_elements(dtype) == 0)
            return dtype;
    }
}
