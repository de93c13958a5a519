/* Included once by each cpu_ops_LEVEL.c: the row-wise ops. Tails that do not fill a vector are
 * computed in a zero-padded one, by the same operations. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_OPS_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_OPS_TEMPLATE_H

#include "kernels/cpu/levels/cpu_op_kernels.h"
#include "kernels/cpu/simd/simd.h"

#include <math.h>

/* The first n < 16 floats at p, zeros above. */
SIMD_INLINE struct vf load_tail(const float *p, int32_t n) {
    float padded[16] = {0};
    memcpy(padded, p, (size_t)n * sizeof(float));
    return vf_load(padded);
}

SIMD_INLINE void store_tail(float *p, struct vf a, int32_t n) {
    float padded[16];
    vf_store(padded, a);
    memcpy(p, padded, (size_t)n * sizeof(float));
}

SIMD_INLINE float mean_of(const float *x, int32_t width) {
    struct vf sum = vf_set1(0);
    int32_t i = 0;
    for (; i + 16 <= width; i += 16)
        sum = vf_add(sum, vf_load(x + i));
    if (i < width)
        sum = vf_add(sum, load_tail(x + i, width - i));
    return vf_reduce_add(sum) / (float)width;
}

/* The first n elements at p less the mean, zeros above. */
SIMD_INLINE struct vf load_centered(const float *p, int32_t n, bool center, struct vf mean) {
    struct vf a = n >= 16 ? vf_load(p) : load_tail(p, n);
    if (!center)
        return a;
    return vf_first(n, vf_sub(a, mean), vf_set1(0));
}

SIMD_INLINE float sum_squares_of(const float *x, int32_t width, bool center, float mean) {
    struct vf means = vf_set1(mean), sum0 = vf_set1(0), sum1 = vf_set1(0);
    int32_t i = 0;
    for (; i + 32 <= width; i += 32) {
        struct vf a = load_centered(x + i, 16, center, means);
        struct vf b = load_centered(x + i + 16, 16, center, means);
        sum0 = vf_fma(a, a, sum0);
        sum1 = vf_fma(b, b, sum1);
    }
    for (; i < width; i += 16) {
        struct vf a = load_centered(x + i, width - i, center, means);
        sum0 = vf_fma(a, a, sum0);
    }
    return vf_reduce_add(vf_add(sum0, sum1));
}

SIMD_INLINE void scale_group(const struct norm_args *args, const float *x, float *out, bool center,
                             bool accumulate, float mean, float factor) {
    const float *weight = args->weight;
    int32_t width = args->width, i = 0;
    struct vf means = vf_set1(mean), scale = vf_set1(factor);
    for (; i + 16 <= width; i += 16) {
        struct vf a = load_centered(x + i, 16, center, means);
        a = vf_mul(vf_mul(a, scale), vf_load(weight + i));
        if (center && args->bias != NULL)
            a = vf_add(a, vf_load(args->bias + i));
        vf_store(out + i, accumulate ? vf_add(vf_load(out + i), a) : a);
    }
    for (; i < width; i++) {
        float a = (center ? x[i] - mean : x[i]) * factor * weight[i];
        if (center && args->bias != NULL)
            a += args->bias[i];
        out[i] = accumulate ? out[i] + a : a;
    }
}

/* Written for constant `center` and `accumulate`. */
SIMD_INLINE void norm_group(const struct norm_args *args, const float *x, float *out, bool center,
                            bool accumulate) {
    float mean = center ? mean_of(x, args->width) : 0;
    float mean_square = sum_squares_of(x, args->width, center, mean) / (float)args->width;
    scale_group(args, x, out, center, accumulate, mean, 1 / sqrtf(mean_square + args->epsilon));
}

static float sum_squares(const float *x, int32_t n) {
    return sum_squares_of(x, n, false, 0);
}

static void norm_scale(const struct norm_args *args, const float *x, float *out, float factor) {
    scale_group(args, x, out, false, args->accumulate, 0, factor);
}

static void norm(const struct norm_args *args, const float *x, float *out) {
    if (!args->center && !args->accumulate)
        norm_group(args, x, out, false, false);
    else if (!args->center)
        norm_group(args, x, out, false, true);
    else
        norm_group(args, x, out, true, args->accumulate);
}

SIMD_INLINE struct vf silu(struct vf x) {
    return vf_div(x, vf_add(vf_set1(1), vf_exp(vf_sub(vf_set1(0), x))));
}

/* x/2 (1 + tanh u) = x / (1 + e^-2u), which is exact where tanh u is near -1. Below -10 the result
 * is less than 1e-36; x is clamped there, where the exponential still works. A NaN stays NaN. */
SIMD_INLINE struct vf gelu_tanh(struct vf x) {
    x = vf_max(vf_set1(-10), x);
    struct vf cube = vf_mul(vf_mul(x, x), x);
    struct vf u = vf_add(x, vf_mul(cube, vf_set1(0.044715f)));
    struct vf e = vf_exp(vf_mul(u, vf_set1(-1.5957691216f))); /* -2 sqrt(2 / pi) */
    return vf_div(x, vf_add(vf_set1(1), e));
}

/* Below -50 the gate's factor is less than 1e-35; it is clamped there, where the exponential still
 * works. A NaN stays one. */
SIMD_INLINE struct vf clamped_swiglu(struct vf gate, struct vf up) {
    struct vf limit = vf_set1(CLAMPED_SWIGLU_LIMIT);
    gate = vf_max(vf_set1(-50), vf_min(limit, gate));
    up = vf_max(vf_set1(-CLAMPED_SWIGLU_LIMIT), vf_min(limit, up));
    struct vf e = vf_exp(vf_mul(gate, vf_set1(-CLAMPED_SWIGLU_ALPHA)));
    struct vf one = vf_set1(1);
    return vf_mul(vf_div(gate, vf_add(one, e)), vf_add(up, one));
}

SIMD_INLINE struct vf act_mul_vector(enum activation activation, struct vf gate, struct vf up) {
    if (activation == ACTIVATION_CLAMPED_SWIGLU)
        return clamped_swiglu(gate, up);
    return vf_mul(activation == ACTIVATION_SILU ? silu(gate) : gelu_tanh(gate), up);
}

SIMD_INLINE void act_mul_row(enum activation activation, const float *gate, const float *up,
                             float *out, int32_t n) {
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store(out + i, act_mul_vector(activation, vf_load(gate + i), vf_load(up + i)));
    if (i < n) {
        struct vf a = load_tail(gate + i, n - i), b = load_tail(up + i, n - i);
        store_tail(out + i, act_mul_vector(activation, a, b), n - i);
    }
}

static void act_mul(enum activation activation, const float *gate, const float *up, float *out,
                    int32_t n) {
    if (activation == ACTIVATION_SILU)
        act_mul_row(ACTIVATION_SILU, gate, up, out, n);
    else if (activation == ACTIVATION_CLAMPED_SWIGLU)
        act_mul_row(ACTIVATION_CLAMPED_SWIGLU, gate, up, out, n);
    else
        act_mul_row(ACTIVATION_GELU_TANH, gate, up, out, n);
}

SIMD_INLINE struct vf soft_cap_vector(struct vf x, struct vf cap) {
    return vf_mul(vf_tanh(vf_div(x, cap)), cap);
}

static void soft_cap(float *x, int64_t n, float cap) {
    struct vf caps = vf_set1(cap);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store(x + i, soft_cap_vector(vf_load(x + i), caps));
    if (i < n) {
        int32_t left = (int32_t)(n - i);
        store_tail(x + i, soft_cap_vector(load_tail(x + i, left), caps), left);
    }
}

SIMD_INLINE void rotate_vectors(struct vf *a, struct vf *b, const float *cosines,
                                const float *sines) {
    struct vf c = vf_load(cosines), s = vf_load(sines);
    struct vf rotated = vf_sub(vf_mul(*a, c), vf_mul(*b, s));
    *b = vf_add(vf_mul(*a, s), vf_mul(*b, c));
    *a = rotated;
}

SIMD_INLINE void rotate_scalars(float *a, float *b, float c, float s) {
    float rotated = *a * c - *b * s;
    *b = *a * s + *b * c;
    *a = rotated;
}

static void rotate_pairs(float *head, const float *cosines, const float *sines, int32_t num_pairs) {
    int32_t i = 0;
    for (; i + 16 <= num_pairs; i += 16) {
        struct vf low = vf_load(head + 2 * i), high = vf_load(head + 2 * i + 16), a, b;
        vf_split_pairs(low, high, &a, &b);
        rotate_vectors(&a, &b, cosines + i, sines + i);
        vf_join_pairs(a, b, &low, &high);
        vf_store(head + 2 * i, low);
        vf_store(head + 2 * i + 16, high);
    }
    for (; i < num_pairs; i++)
        rotate_scalars(&head[2 * i], &head[2 * i + 1], cosines[i], sines[i]);
}

static void rotate_halves(float *head, const float *cosines, const float *sines,
                          int32_t num_pairs) {
    int32_t i = 0;
    for (; i + 16 <= num_pairs; i += 16) {
        struct vf a = vf_load(head + i), b = vf_load(head + num_pairs + i);
        rotate_vectors(&a, &b, cosines + i, sines + i);
        vf_store(head + i, a);
        vf_store(head + num_pairs + i, b);
    }
    for (; i < num_pairs; i++)
        rotate_scalars(&head[i], &head[num_pairs + i], cosines[i], sines[i]);
}

/* The largest magnitude among n numbers; NaN when one is not finite, which x - x reveals: it is 0
 * for a finite number. */
SIMD_INLINE float largest_magnitude(const float *src, int32_t n) {
    struct vf zero = vf_set1(0), largest = zero, check = zero;
    for (int32_t i = 0; i < n; i += 16) {
        struct vf a = i + 16 <= n ? vf_load(src + i) : load_tail(src + i, n - i);
        largest = vf_max(vf_max(a, vf_sub(zero, a)), largest);
        check = vf_add(check, vf_sub(a, a));
    }
    return vf_reduce_add(check) == 0 ? vf_reduce_max(largest) : NAN;
}

/* The same as in kv_type.c. */
SIMD_INLINE float e4m3_scale(const float *src, float least, int32_t n) {
    const struct vf low = vf_set1(-448), high = vf_set1(448), rounder = vf_set1(KV_E4M3_ROUNDER);
    float best = least, best_error = INFINITY;
    for (int c = 0; c < KV_E4M3_FACTORS; c++) {
        float factor = 1 + (float)c / KV_E4M3_FACTORS, scale = least * factor;
        struct vf scales = vf_set1(scale), sum = vf_set1(0);
        for (int32_t i = 0; i < n; i += 16) {
            struct vf a = i + 16 <= n ? vf_load(src + i) : load_tail(src + i, n - i);
            a = vf_min(vf_max(vf_div(a, scales), low), high);
            struct vf error = vf_sub(vf_round_e4m3(a), a);
            struct vf square = vf_add(vf_mul(error, error), rounder);
            sum = vf_add(sum, vf_sub(square, rounder));
        }
        float error = vf_reduce_add(sum) * (factor * factor);
        if (error < best_error) {
            best_error = error;
            best = scale;
        }
    }
    return best;
}

/* Written for constant types. */
SIMD_INLINE void store_codes(enum kv_type type, const float *src, uint8_t *dst, float *scale,
                             int32_t n) {
    float most = type == KV_INT8 ? 127 : 448;
    *scale = largest_magnitude(src, n) / most;
    if (!(*scale > 0)) {
        memset(dst, 0, (size_t)n);
        return;
    }
    if (type == KV_E4M3)
        *scale = e4m3_scale(src, *scale, n);
    struct vf scales = vf_set1(*scale), low = vf_set1(-most), high = vf_set1(most);
    for (int32_t i = 0; i < n; i += 16) {
        uint8_t codes[16];
        struct vf a = i + 16 <= n ? vf_load(src + i) : load_tail(src + i, n - i);
        a = vf_min(vf_max(vf_div(a, scales), low), high);
        if (type == KV_INT8)
            vf_store_int8((int8_t *)codes, a);
        else
            vf_store_e4m3(codes, a);
        memcpy(dst + i, codes, (size_t)(n - i < 16 ? n - i : 16));
    }
}

static void store(enum kv_type type, const float *src, void *dst, float *scale, int32_t n) {
    if (type == KV_INT8) {
        store_codes(KV_INT8, src, dst, scale, n);
        return;
    }
    if (type == KV_E4M3) {
        store_codes(KV_E4M3, src, dst, scale, n);
        return;
    }
    if (type == KV_F32) {
        memcpy(dst, src, (size_t)n * sizeof(float));
        return;
    }
    for (int32_t i = 0; i < n; i += 16) {
        uint16_t converted[16];
        struct vf a = i + 16 <= n ? vf_load(src + i) : load_tail(src + i, n - i);
        if (type == KV_F16)
            vf_store_f16(converted, a);
        else
            vf_store_bf16(converted, a);
        memcpy((uint16_t *)dst + i, converted,
               (size_t)(n - i < 16 ? n - i : 16) * sizeof(uint16_t));
    }
}

/* The level's table; its file includes the attention and sampling templates too. */
#define OP_KERNELS                                                                                 \
    {                                                                                              \
        .norm = norm, .sum_squares = sum_squares, .norm_scale = norm_scale, .act_mul = act_mul,    \
        .soft_cap = soft_cap, .rotate_pairs = rotate_pairs, .rotate_halves = rotate_halves,        \
        .store = store, .attention = ATTENTION_KERNELS, .attention_merge = attention_merge,        \
        .max = max_logit, .group_max = group_max, .find_above = find_above,                        \
        .count_above = count_above, .sum_weights = sum_weights, .collect = collect,                \
    }

#endif
