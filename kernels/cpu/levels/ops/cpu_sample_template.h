/* Included once by each cpu_ops_LEVEL.c: passes over a row of logits. Weights come from the same
 * unfused operations on every level, so a sampled token has the same bits everywhere. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_SAMPLE_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_SAMPLE_TEMPLATE_H

#include "kernels/cpu/levels/cpu_op_kernels.h"
#include "kernels/cpu/simd/simd.h"

#include <float.h>
#include <math.h>

/* Adding it to a number below 2^17 and subtracting it rounds to multiples of 2^-34. */
#define WEIGHT_ROUNDING 0x1.8p18
/* Below e^-30 a weight is zero. */
#define LOWEST_EXPONENT (-30.0f)

/* The n < 16 logits at p, -INFINITY above. */
SIMD_INLINE struct vf load_logits(const float *p, int32_t n) {
    if (n >= 16)
        return vf_load(p);
    float padded[16];
    for (int i = 0; i < 16; i++)
        padded[i] = i < n ? p[i] : -INFINITY;
    return vf_load(padded);
}

static float max_logit(const float *logits, int32_t n) {
    struct vf m0 = vf_set1(-INFINITY), m1 = m0;
    int32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        m0 = vf_max(vf_load(logits + i), m0);
        m1 = vf_max(vf_load(logits + i + 16), m1);
    }
    for (; i < n; i += 16)
        m0 = vf_max(load_logits(logits + i, n - i), m0);
    return fminf(vf_reduce_max(vf_max(m0, m1)), FLT_MAX);
}

static int32_t find_above(const float *logits, int32_t from, int32_t n, float limit) {
    for (int32_t i = from; i < n; i += 16) {
        unsigned mask = vf_mask_gt(load_logits(logits + i, n - i), vf_set1(limit));
        if (mask)
            return i + __builtin_ctz(mask);
    }
    return n;
}

static int32_t count_above(const float *logits, int32_t n, float limit) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i += 16)
        count += __builtin_popcount(vf_mask_gt(load_logits(logits + i, n - i), vf_set1(limit)));
    return count;
}

static void group_max(const float *logits, int32_t n, float out[static SAMPLE_GROUPS]) {
    struct vf m = vf_set1(-INFINITY);
    for (int32_t i = 0; i < n; i += 16)
        m = vf_max(load_logits(logits + i, n - i), m);
    vf_store(out, m);
}

/* (logit - max) / temperature, at most 0; for NaN and very low logits, a little below
 * LOWEST_EXPONENT. */
SIMD_INLINE struct vf exponents(struct vf logits, struct sample_scale scale, bool divides) {
    struct vf x = vf_sub(logits, vf_set1(scale.max));
    if (divides)
        x = vf_div(x, vf_set1(scale.temperature));
    return vf_min(vf_max(x, vf_set1(LOWEST_EXPONENT - 1)), vf_set1(0));
}

SIMD_INLINE double sum_scaled(const float *logits, int32_t n, struct sample_scale scale,
                              bool divides) {
    struct vd sum = vd_zero();
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        struct vf weights = vf_exp_bounded(exponents(vf_load(logits + i), scale, divides));
        sum = vd_add_rounded(sum, weights, WEIGHT_ROUNDING);
    }
    if (i < n) {
        struct vf last = load_logits(logits + i, n - i);
        sum = vd_add_rounded(sum, vf_exp_bounded(exponents(last, scale, divides)), WEIGHT_ROUNDING);
    }
    return vd_reduce_add(sum);
}

/* Dividing by 1 changes no bit. */
static double sum_weights(const float *logits, int32_t n, struct sample_scale scale) {
    return scale.temperature == 1 ? sum_scaled(logits, n, scale, false)
                                  : sum_scaled(logits, n, scale, true);
}

/* Returns a logit such that no token below it is collected, regardless of how its exponent is
 * rounded. */
static float lowest_logit(struct sample_scale scale, float lowest) {
    double limit = scale.max + (double)lowest * scale.temperature * (1 + 0x1p-20);
    return nextafterf((float)fmax(limit, -FLT_MAX), -INFINITY);
}

static int32_t collect(const float *logits, int32_t first, int32_t n, struct sample_scale scale,
                       float lowest, struct sample_candidate *out) {
    int32_t count = 0;
    if (lowest < LOWEST_EXPONENT)
        lowest = LOWEST_EXPONENT;
    const struct vf limit = vf_set1(lowest_logit(scale, lowest));
    for (int32_t i = 0; i < n; i += 16) {
        struct vf values = load_logits(logits + i, n - i);
        if (!vf_mask_ge(values, limit))
            continue;
        struct vf x = exponents(values, scale, true);
        float weights[16];
        vf_store(weights, vf_exp_bounded(x));
        for (unsigned mask = vf_mask_ge(x, vf_set1(lowest)); mask; mask &= mask - 1) {
            int lane = __builtin_ctz(mask);
            out[count++] = (struct sample_candidate){
                .weight = ((double)weights[lane] + WEIGHT_ROUNDING) - WEIGHT_ROUNDING,
                .logit = fminf(logits[i + lane], FLT_MAX),
                .token = first + i + lane};
        }
    }
    return count;
}

#endif
