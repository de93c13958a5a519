/* Plain C, one panel of 16 columns at a time. fmaf keeps the sums equal, bit for bit, to those of
 * the levels that have the instruction. */
#include "kernels/cpu/cpu_gemm_inline.h"

#include "kernels/dtype.h"

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

static ALWAYS_INLINE vfloat vfloat_set1(float x) {
    vfloat out;
    for (int i = 0; i < LANES; i++)
        out.v[i] = x;
    return out;
}
static ALWAYS_INLINE vfloat vfloat_zero(void) {
    return vfloat_set1(0.0f);
}
static ALWAYS_INLINE vfloat vfloat_load_f32(const void *p) {
    vfloat out;
    memcpy(&out, p, sizeof(out));
    return out;
}
static ALWAYS_INLINE vfloat vfloat_load_f16(const void *p) {
    vfloat out;
    dtype_to_f32(DTYPE_F16, p, out.v, LANES);
    return out;
}
static ALWAYS_INLINE vfloat vfloat_load_bf16(const void *p) {
    vfloat out;
    dtype_to_f32(DTYPE_BF16, p, out.v, LANES);
    return out;
}
static ALWAYS_INLINE vfloat vfloat_from_int(vint a) {
    vfloat out;
    for (int i = 0; i < LANES; i++)
        out.v[i] = (float)a.v[i];
    return out;
}
static ALWAYS_INLINE vfloat vfloat_add(vfloat a, vfloat b) {
    for (int i = 0; i < LANES; i++)
        a.v[i] += b.v[i];
    return a;
}
static ALWAYS_INLINE vfloat vfloat_mul(vfloat a, vfloat b) {
    for (int i = 0; i < LANES; i++)
        a.v[i] *= b.v[i];
    return a;
}
static ALWAYS_INLINE vfloat vfloat_fma(vfloat a, vfloat b, vfloat c) {
    for (int i = 0; i < LANES; i++)
        c.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}
static ALWAYS_INLINE vfloat vfloat_load_part(const float *p, int n) {
    vfloat out = vfloat_zero();
    memcpy(out.v, p, (size_t)n * sizeof(float));
    return out;
}
static ALWAYS_INLINE void vfloat_store_part(float *p, vfloat a, int n) {
    memcpy(p, a.v, (size_t)n * sizeof(float));
}
static ALWAYS_INLINE vint vint_set1(int32_t x) {
    vint out;
    for (int i = 0; i < LANES; i++)
        out.v[i] = x;
    return out;
}
static ALWAYS_INLINE vint vint_zero(void) {
    return vint_set1(0);
}

#include "kernels/cpu/cpu_gemm.h"

static ALWAYS_INLINE void block_codes(const struct gemm_block *block, int8_t *out) {
    memcpy(out, block->codes, GEMM_BLOCK);
}

static ALWAYS_INLINE void dot_nibbles(const uint8_t *codes, const struct gemm_block *blocks,
                                      int num_rows, vint *sums) {
    for (int r = 0; r < num_rows; r++) {
        int8_t x[GEMM_BLOCK];
        block_codes(&blocks[r], x);
        for (int g = 0; g < 4; g++)
            for (int i = 0; i < LANES; i++)
                for (int t = 0; t < 4; t++) {
                    uint8_t both = codes[64 * g + 4 * i + t];
                    sums[r].v[i] += (both & 15) * x[8 * g + t] + (both >> 4) * x[8 * g + 4 + t];
                }
    }
}

static ALWAYS_INLINE void dot_bytes(const uint8_t *codes, const struct gemm_block *blocks,
                                    int num_rows, vint *sums) {
    for (int r = 0; r < num_rows; r++) {
        int8_t x[GEMM_BLOCK];
        block_codes(&blocks[r], x);
        for (int g = 0; g < 8; g++)
            for (int i = 0; i < LANES; i++)
                for (int t = 0; t < 4; t++)
                    sums[r].v[i] += codes[64 * g + 4 * i + t] * x[4 * g + t];
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
    for (int32_t k = 0; k < depth; k += GEMM_BLOCK, out += stride) {
        uint32_t amax = 0;
        for (int i = 0; i < GEMM_BLOCK; i++) {
            uint32_t magnitude = magnitude_bits(x[k + i]);
            amax = magnitude > amax ? magnitude : amax;
        }
        struct gemm_scale scale = gemm_scale_of(amax);
        int8_t codes[GEMM_BLOCK];
        int32_t sum = 0;
        for (int i = 0; i < GEMM_BLOCK; i++) {
            codes[i] = code_of(x[k + i] * scale.inverse);
            sum += codes[i];
        }
        memcpy(out->codes, codes, sizeof(codes));
        gemm_block_finish(out, scale.scale, sum);
    }
}

#define TILE_ROWS                                                                                  \
    { 1 }
#define FOR_QUANTISED_TILES(X, type) X(type, 1, 1)
#define FOR_PLAIN_TILES(X, type) X(type, 1, 1)
#include "kernels/cpu/cpu_gemm_template.h"

const struct cpu_gemm_kernels cpu_gemm_kernels_portable = GEMM_KERNELS;
