/* Plain C, one panel of 16 columns at a time. fmaf keeps the sums equal, bit for bit, to those of
 * the levels that have the instruction. */
#include "kernels/cpu/simd_base.h"

#include "kernels/quant_form.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
typedef struct {
    float v[LANES];
} vfloat;
typedef struct {
    int32_t v[LANES];
} vint;

SIMD_INLINE vfloat vfloat_set1(float x) {
    vfloat out;
    for (int i = 0; i < LANES; i++)
        out.v[i] = x;
    return out;
}
SIMD_INLINE vfloat vfloat_zero(void) {
    return vfloat_set1(0.0f);
}
SIMD_INLINE vfloat vfloat_load_f32(const void *p) {
    vfloat out;
    memcpy(&out, p, sizeof(out));
    return out;
}
SIMD_INLINE vfloat vfloat_load_f16(const void *p) {
    vfloat out;
    dtype_to_f32(DTYPE_F16, p, out.v, LANES);
    return out;
}
SIMD_INLINE vfloat vfloat_load_bf16(const void *p) {
    vfloat out;
    dtype_to_f32(DTYPE_BF16, p, out.v, LANES);
    return out;
}
SIMD_INLINE vfloat vfloat_from_int(vint a) {
    vfloat out;
    for (int i = 0; i < LANES; i++)
        out.v[i] = (float)a.v[i];
    return out;
}
SIMD_INLINE vfloat vfloat_add(vfloat a, vfloat b) {
    for (int i = 0; i < LANES; i++)
        a.v[i] += b.v[i];
    return a;
}
SIMD_INLINE vfloat vfloat_mul(vfloat a, vfloat b) {
    for (int i = 0; i < LANES; i++)
        a.v[i] *= b.v[i];
    return a;
}
SIMD_INLINE vfloat vfloat_fma(vfloat a, vfloat b, vfloat c) {
    for (int i = 0; i < LANES; i++)
        c.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}
SIMD_INLINE vfloat vfloat_load_part(const float *p, int n) {
    vfloat out = vfloat_zero();
    memcpy(out.v, p, (size_t)n * sizeof(float));
    return out;
}
SIMD_INLINE void vfloat_store_part(float *p, vfloat a, int n) {
    memcpy(p, a.v, (size_t)n * sizeof(float));
}
SIMD_INLINE vint vint_set1(int32_t x) {
    vint out;
    for (int i = 0; i < LANES; i++)
        out.v[i] = x;
    return out;
}
SIMD_INLINE vint vint_zero(void) {
    return vint_set1(0);
}

SIMD_INLINE vint vint_load(const void *p) {
    vint out;
    memcpy(&out, p, sizeof(out));
    return out;
}
SIMD_INLINE vint vint_load_bytes(const void *p) {
    int8_t bytes[LANES];
    vint out;
    memcpy(bytes, p, sizeof(bytes));
    for (int i = 0; i < LANES; i++)
        out.v[i] = bytes[i];
    return out;
}
SIMD_INLINE vint vint_and(vint a, vint b) {
    for (int i = 0; i < LANES; i++)
        a.v[i] &= b.v[i];
    return a;
}
SIMD_INLINE vint vint_or(vint a, vint b) {
    for (int i = 0; i < LANES; i++)
        a.v[i] |= b.v[i];
    return a;
}
SIMD_INLINE vint vint_shl(vint a, int n) {
    for (int i = 0; i < LANES; i++)
        a.v[i] = (int32_t)((uint32_t)a.v[i] << n);
    return a;
}
SIMD_INLINE vint vint_shr(vint a, int n) {
    for (int i = 0; i < LANES; i++)
        a.v[i] = (int32_t)((uint32_t)a.v[i] >> n);
    return a;
}
SIMD_INLINE vint vint_levels(vint a) {
    uint8_t bytes[sizeof(a)];
    memcpy(bytes, &a, sizeof(a));
    for (size_t i = 0; i < sizeof(a); i++)
        bytes[i] = (uint8_t)(quant_levels[bytes[i]] + 128);
    memcpy(&a, bytes, sizeof(a));
    return a;
}

#include "kernels/cpu/cpu_gemm_codes_template.h"

SIMD_INLINE void dot_words(const struct quant_form *form, const uint8_t *codes, int first,
                           int count, const struct gemm_block *blocks, int num_rows, vint *sums) {
    for (int w = first; w < first + count; w++) {
        vint word = word_codes(form, codes, w);
        uint8_t bytes[4 * LANES];
        memcpy(bytes, &word, sizeof(bytes));
        for (int r = 0; r < num_rows; r++) {
            int8_t x[4];
            memcpy(x, &blocks[r].codes[w], sizeof(x));
            for (int i = 0; i < LANES; i++)
                for (int t = 0; t < 4; t++)
                    sums[r].v[i] += bytes[4 * i + t] * x[t];
        }
    }
}

/* Saturates like the vector conversions; NaN gives the lowest code as they do. */
static int8_t code_of(float scaled) {
    if (!(scaled >= -128.0f))
        return -128;
    return (int8_t)(scaled < 127.0f ? lrintf(scaled) : 127);
}

static uint32_t magnitude_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffff;
}

static void quantise_row(const float *x, int32_t depth, struct gemm_block *out, int32_t stride) {
    for (int32_t k = 0; k < depth; k += PANEL_BLOCK, out += stride) {
        uint32_t amax = 0;
        for (int i = 0; i < PANEL_BLOCK; i++) {
            uint32_t magnitude = magnitude_bits(x[k + i]);
            amax = magnitude > amax ? magnitude : amax;
        }
        struct gemm_scale scale = gemm_scale_of(amax);
        int8_t codes[PANEL_BLOCK];
        int32_t sums[2] = {0, 0};
        for (int i = 0; i < PANEL_BLOCK; i++) {
            codes[i] = code_of(x[k + i] * scale.inverse);
            sums[i / 16] += codes[i];
        }
        memcpy(out->codes, codes, sizeof(codes));
        gemm_block_finish(out, scale.scale, sums[0], sums[1]);
    }
}

#define TILE_ROWS                                                                                  \
    { 1 }
#define FOR_QUANTISED_TILES(X, type) X(type, 1, 1)
#define FOR_PLAIN_TILES(X, type) X(type, 1, 1)
#include "kernels/cpu/cpu_gemm_template.h"

const struct cpu_gemm_kernels cpu_gemm_kernels_portable = GEMM_KERNELS;
