/* Included once by each cpu_ops_LEVEL.c: the row-wise ops. Tails that fill no vector are computed
 * in a zero-padded one, by the same operations. */
#ifndef QUIRE_KERNELS_CPU_CPU_OPS_TEMPLATE_H
#define QUIRE_KERNELS_CPU_CPU_OPS_TEMPLATE_H

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

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

static void rmsnorm(const float *x, const float *weight, float *out, int32_t width, float epsilon) {
    struct vf sum0 = vf_set1(0), sum1 = vf_set1(0);
    int32_t i = 0;
    for (; i + 32 <= width; i += 32) {
        struct vf a = vf_load(x + i), b = vf_load(x + i + 16);
        sum0 = vf_fma(a, a, sum0);
        sum1 = vf_fma(b, b, sum1);
    }
    for (; i < width; i += 16) {
        struct vf a = i + 16 <= width ? vf_load(x + i) : load_tail(x + i, width - i);
        sum0 = vf_fma(a, a, sum0);
    }
    float mean = vf_reduce_add(vf_add(sum0, sum1)) / (float)width;
    struct vf scale = vf_set1(1 / sqrtf(mean + epsilon));
    for (i = 0; i + 16 <= width; i += 16)
        vf_store(out + i, vf_mul(vf_mul(vf_load(x + i), scale), vf_load(weight + i)));
    for (float factor = 1 / sqrtf(mean + epsilon); i < width; i++)
        out[i] = x[i] * factor * weight[i];
}

SIMD_INLINE struct vf silu_mul_vector(struct vf gate, struct vf up) {
    struct vf one = vf_set1(1);
    struct vf denominator = vf_add(one, vf_exp(vf_sub(vf_set1(0), gate)));
    return vf_mul(vf_div(gate, denominator), up);
}

static void silu_mul(const float *gate, const float *up, float *out, int32_t n) {
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        vf_store(out + i, silu_mul_vector(vf_load(gate + i), vf_load(up + i)));
    if (i < n)
        store_tail(out + i, silu_mul_vector(load_tail(gate + i, n - i), load_tail(up + i, n - i)),
                   n - i);
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

static void store(enum dtype dtype, const float *src, void *dst, int32_t n) {
    if (dtype == DTYPE_F32) {
        memcpy(dst, src, (size_t)n * sizeof(float));
        return;
    }
    for (int32_t i = 0; i < n; i += 16) {
        uint16_t converted[16];
        struct vf a = i + 16 <= n ? vf_load(src + i) : load_tail(src + i, n - i);
        if (dtype == DTYPE_F16)
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
        .rmsnorm = rmsnorm, .silu_mul = silu_mul, .rotate_pairs = rotate_pairs,                    \
        .rotate_halves = rotate_halves, .store = store, .attend = attend,                          \
        .attention_merge = attention_merge, .max = max_logit, .find_above = find_above,            \
        .count_above = count_above, .sum_weights = sum_weights, .collect = collect,                \
    }

#endif
