/* Quantisation of weights: the codes, scales and minima of a block are searched for, so that the
 * weighted sum of squared errors becomes small.
 *
 * All types are one problem: value = scale * c + min with whole c in a range, where symmetric types
 * have no min. For given codes the best scale and min follow from sums (least squares). So each
 * group of a block tries several spacings of its codes, keeps the one that lowers the error most,
 * and takes turns between codes and factors until nothing improves. Types whose groups have small
 * integer scales then round these; each group tries the neighbours of its scale, and the factors of
 * the whole block are fitted once more to what was rounded.
 *
 * Sums have a fixed order, so that the result is the same on every machine. */
#include "kernels/dtype.h"
#include "kernels/dtype_private.h"

#include "config/base/check.h"
#include "kernels/quant_block.h"

#include <math.h>
#include <string.h>

#define LANES 8
#define SPACING_STEP 0.125F
enum { NUM_SPACINGS = 8, MAX_REFINEMENTS = 4, NUM_PASSES = 2, NUM_NEIGHBOURS = 3 };

/* What a type allows. Codes count from its zero point. */
struct search {
    const struct quant_form *form;
    int num_groups;
    float low_code, high_code;
    int low_scale, high_scale, high_min; /* of groups; 1, 1, 1: there are none */
    bool min_is_negative;                /* minima are subtracted, and not negative themselves */
};

/* The elements of a group and the sums that do not depend on its codes. */
struct group {
    const float *x, *w;
    int n;
    float sum_w, sum_x; /* of w; of w * x */
};

/* Of w * c, w * c * c and w * c * x. */
struct sums {
    float c, cc, cx;
};

/* gain: by how much a fit lowers the error below that of zeros. */
struct fit {
    float scale, min, gain;
    float sum_c; /* of w * c, with the codes it was made for */
};

/* --- Sums --- */

/* Rounds to nearest, ties to even; right for magnitudes below 2^22. */
static inline float round_small(float x) {
    return (x + 12582912.0F) - 12582912.0F;
}

/* A NaN becomes low. */
static inline float clamp(float x, float low, float high) {
    x = x > low ? x : low;
    return x < high ? x : high;
}

static inline float code_of(const struct search *s, float x, float inverse, float offset) {
    return round_small(clamp(x * inverse + offset, s->low_code, s->high_code));
}

static inline float add_lanes(const float *lanes) {
    float a = (lanes[0] + lanes[4]) + (lanes[1] + lanes[5]);
    return a + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

static struct sums sum_codes(const struct search *s, const struct group *g, float inverse,
                             float offset) {
    float c[LANES] = {0}, cc[LANES] = {0}, cx[LANES] = {0};
    for (int i = 0; i < g->n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float x = g->x[i + l], code = code_of(s, x, inverse, offset), wc = g->w[i + l] * code;
            c[l] += wc;
            cc[l] += wc * code;
            cx[l] += wc * x;
        }
    return (struct sums){add_lanes(c), add_lanes(cc), add_lanes(cx)};
}

static float sum_products(const float *a, const float *b, int n) {
    float sum[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += a[i + l] * b[i + l];
    return add_lanes(sum);
}

static float sum_of(const float *a, int n) {
    float sum[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += a[i + l];
    return add_lanes(sum);
}

/* --- One group, with a scale and min of any value --- */

static struct fit solve(const struct search *s, const struct group *g, struct sums sums) {
    struct fit fit = {.sum_c = sums.c};
    float determinant = g->sum_w * sums.cc - sums.c * sums.c;
    if (s->form->has_min && determinant > 0.0F) {
        fit.scale = (g->sum_w * sums.cx - g->sum_x * sums.c) / determinant;
        fit.min = (sums.cc * g->sum_x - sums.c * sums.cx) / determinant;
    }
    if (sums.cc > 0.0F && (!s->form->has_min || (s->min_is_negative && fit.min > 0.0F))) {
        fit.scale = sums.cx / sums.cc;
        fit.min = 0.0F;
    }
    fit.gain = fit.scale * sums.cx + fit.min * g->sum_x;
    return fit;
}

static void try_spacing(const struct search *s, const struct group *g, float inverse, float min,
                        struct fit *best) {
    struct fit fit = solve(s, g, sum_codes(s, g, inverse, -min * inverse));
    if (fit.gain > best->gain)
        *best = fit;
}

static void refine(const struct search *s, const struct group *g, struct fit *best) {
    for (int i = 0; i < MAX_REFINEMENTS && best->scale != 0.0F; i++) {
        float gain = best->gain;
        try_spacing(s, g, 1.0F / best->scale, best->min, best);
        if (best->gain <= gain)
            return;
    }
}

/* The extreme value becomes the lowest code, of which there is one more than on the other side. */
static struct fit fit_symmetric(const struct search *s, const struct group *g) {
    struct fit best = {0};
    float extreme = 0.0F;
    for (int i = 0; i < g->n; i++)
        extreme = fabsf(g->x[i]) > fabsf(extreme) ? g->x[i] : extreme;
    if (extreme == 0.0F)
        return best;
    for (int k = -NUM_SPACINGS; k <= NUM_SPACINGS; k++)
        try_spacing(s, g, (s->low_code + (float)k * SPACING_STEP) / extreme, 0.0F, &best);
    refine(s, g, &best);
    return best;
}

static struct fit fit_affine(const struct search *s, const struct group *g) {
    struct fit best = {0};
    float low = g->x[0], high = g->x[0];
    for (int i = 1; i < g->n; i++) {
        low = g->x[i] < low ? g->x[i] : low;
        high = g->x[i] > high ? g->x[i] : high;
    }
    if (s->min_is_negative && low > 0.0F)
        low = 0.0F;
    best.min = low;
    best.gain = -INFINITY;
    if (high == low)
        return best;
    for (int k = -NUM_SPACINGS; k <= NUM_SPACINGS; k++)
        try_spacing(s, g, (s->high_code + (float)k * SPACING_STEP) / (high - low), low, &best);
    refine(s, g, &best);
    return best;
}

/* --- A block of groups with integer scales --- */

/* A block in the making; factors as the file will hold them. */
struct block {
    float d, m;
    float scales[QUANT_MAX_GROUPS], mins[QUANT_MAX_GROUPS]; /* whole numbers; mins are subtracted */
    float gain;
};

static float rounded(float value) {
    return f16_to_f32(f16_from_f32(value));
}

/* What these factors of a group gain over zeros, with the best codes for them. */
static float gain_of(const struct search *s, const struct group *g, float scale, float min,
                     struct sums *out) {
    float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
    struct sums sums = sum_codes(s, g, inverse, -min * inverse);
    *out = sums;
    return 2.0F * (scale * sums.cx + min * g->sum_x) -
           (scale * scale * sums.cc + 2.0F * scale * min * sums.c + min * min * g->sum_w);
}

/* Returns the whole number of m that goes with a group's scale, for the codes of its fit. */
static float best_min(const struct search *s, const struct group *g, const struct fit *fit,
                      const struct block *block, float scale) {
    if (!s->form->has_min || block->m == 0.0F || g->sum_w == 0.0F)
        return 0.0F;
    float min = (block->d * scale * fit->sum_c - g->sum_x) / (g->sum_w * block->m);
    return round_small(clamp(min, 0.0F, (float)s->high_min));
}

/* Chooses the integers of a group next to those of its fit, and adds what its codes say of the
 * block's factors to `system`: A d - B m = P, B d - C m = Q. */
static void choose_integers(const struct search *s, const struct group *g, const struct fit *fit,
                            int index, struct block *block, float system[static 5]) {
    float ideal = block->d != 0.0F ? round_small(clamp(fit->scale / block->d, -1e6F, 1e6F)) : 0.0F;
    float best = -INFINITY, scale = 0.0F, min = 0.0F;
    struct sums chosen = {0};
    for (int k = 0; k < NUM_NEIGHBOURS; k++) {
        struct sums sums;
        float near = clamp(ideal + (float)(k - NUM_NEIGHBOURS / 2), (float)s->low_scale,
                           (float)s->high_scale);
        float near_min = best_min(s, g, fit, block, near);
        float gain = gain_of(s, g, block->d * near, -block->m * near_min, &sums);
        if (gain > best) {
            best = gain;
            scale = near;
            min = near_min;
            chosen = sums;
        }
    }
    block->scales[index] = scale;
    block->mins[index] = min;
    block->gain += best;
    system[0] += scale * scale * chosen.cc;
    system[1] += scale * min * chosen.c;
    system[2] += min * min * g->sum_w;
    system[3] += scale * chosen.cx;
    system[4] += min * g->sum_x;
}

/* Solves the system of choose_integers for d and m. */
static void refit(const float system[static 5], struct block *block) {
    float a = system[0], b = system[1], c = system[2], p = system[3], q = system[4];
    float determinant = a * c - b * b;
    if (c > 0.0F && determinant > 1e-6F * a * c) {
        float m = (b * p - a * q) / determinant;
        if (m > 0.0F) {
            block->d = rounded((c * p - b * q) / determinant);
            block->m = rounded(m);
        }
    } else if (a > 0.0F && block->m == 0.0F) {
        block->d = rounded(p / a);
    }
}

static void first_factors(const struct search *s, const struct fit *fits, struct block *out) {
    float extreme = 0.0F, min = 0.0F;
    for (int g = 0; g < s->num_groups; g++) {
        extreme = fabsf(fits[g].scale) > fabsf(extreme) ? fits[g].scale : extreme;
        min = -fits[g].min > min ? -fits[g].min : min;
    }
    bool is_signed = s->low_scale < 0;
    *out = (struct block){0};
    out->d = rounded(extreme / (float)(is_signed ? s->low_scale : s->high_scale));
    out->m = rounded(min / (float)s->high_min);
}

static struct block search_block(const struct search *s, const struct group *groups) {
    struct fit fits[QUANT_MAX_GROUPS];
    struct block block, best = {.gain = -INFINITY};
    for (int g = 0; g < s->num_groups; g++)
        fits[g] = s->form->has_min ? fit_affine(s, &groups[g]) : fit_symmetric(s, &groups[g]);
    if (s->form->scale_bits == 0) {
        best = (struct block){rounded(fits[0].scale), -rounded(fits[0].min), {1.0F}, {1.0F}, 0.0F};
        return best;
    }
    first_factors(s, fits, &block);
    for (int pass = 0; pass < NUM_PASSES; pass++) {
        float system[5] = {0};
        block.gain = 0.0F;
        for (int g = 0; g < s->num_groups; g++)
            choose_integers(s, &groups[g], &fits[g], g, &block, system);
        if (block.gain > best.gain)
            best = block;
        refit(system, &block);
    }
    return best;
}

/* --- Blocks of a row --- */

static void fill_codes(const struct search *s, const struct group *groups,
                       const struct block *block, struct quant_block *out) {
    int n = s->form->group_elements;
    for (int g = 0; g < s->num_groups; g++) {
        float scale = block->d * block->scales[g], min = -block->m * block->mins[g];
        float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
        for (int i = 0; i < n; i++)
            out->codes[g * n + i] =
                (uint8_t)((int)code_of(s, groups[g].x[i], inverse, -min * inverse) + s->form->zero);
        out->scales[g] = (int8_t)block->scales[g];
        out->mins[g] = (uint8_t)block->mins[g];
    }
    out->d = f16_from_f32(block->d);
    out->m = f16_from_f32(-block->m);
}

static struct search search_of(enum dtype dtype) {
    const struct quant_form *form = &quant_forms[dtype];
    struct search s = {.form = form,
                       .num_groups = form->block_elements / form->group_elements,
                       .low_code = (float)-form->zero,
                       .high_code = (float)((1 << form->code_bits) - 1 - form->zero),
                       .low_scale = 1,
                       .high_scale = 1,
                       .high_min = 1};
    s.min_is_negative = form->has_min && form->scale_bits > 0;
    if (dtype == DTYPE_Q2_K)
        s.high_scale = s.high_min = 15;
    if (dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K)
        s.high_scale = s.high_min = 63;
    if (s.min_is_negative)
        s.low_scale = 0;
    if (dtype == DTYPE_Q3_K || dtype == DTYPE_Q6_K) {
        s.low_scale = dtype == DTYPE_Q3_K ? -32 : -128;
        s.high_scale = -s.low_scale - 1;
    }
    return s;
}

/* Large values matter more: a weight's error is multiplied by an activation, whose size is not
 * known here, and large weights are where the large activations are. */
static void weigh(const float *x, float mean_square, const float *importance, int n, float *out) {
    for (int i = 0; i < n; i++)
        out[i] = (importance != NULL ? importance[i] : 1.0F) * sqrtf(mean_square + x[i] * x[i]);
}

static bool search_one(enum dtype dtype, const struct search *s, const float *src,
                       const float *importance, uint8_t *dst) {
    float weights[DTYPE_MAX_BLOCK_ELEMENTS];
    struct group groups[QUANT_MAX_GROUPS];
    struct quant_block packed = {0};
    int n = s->form->group_elements, all = s->form->block_elements;
    float mean_square = sum_products(src, src, all) / (float)all;
    if (!isfinite(mean_square))
        return false;
    for (int g = 0; g < s->num_groups; g++) {
        const float *x = src + g * n;
        float *w = weights + g * n;
        weigh(x, mean_square, importance != NULL ? importance + g * n : NULL, n, w);
        if (sum_of(w, n) == 0.0F) /* columns that were never used */
            weigh(x, mean_square, NULL, n, w);
        groups[g] = (struct group){x, w, n, sum_of(w, n), sum_products(w, x, n)};
    }
    struct block block = search_block(s, groups);
    if (!isfinite(block.d) || !isfinite(block.m))
        return false;
    fill_codes(s, groups, &block, &packed);
    quant_block_pack(dtype, &packed, dst);
    return true;
}

/* Eight bits leave nothing to search for. */
static bool quantise_q8_0(const float *src, void *dst, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(src[i]) <= 127.0F * 65504.0F))
            return false;
    dtype_from_f32(DTYPE_Q8_0, src, dst, n);
    return true;
}

bool dtype_can_quantise(enum dtype dtype) {
    const uint64_t types = DTYPE_BIT(DTYPE_Q2_K) | DTYPE_BIT(DTYPE_Q3_K) | DTYPE_BIT(DTYPE_Q4_0) |
                           DTYPE_BIT(DTYPE_Q4_1) | DTYPE_BIT(DTYPE_Q4_K) | DTYPE_BIT(DTYPE_Q5_0) |
                           DTYPE_BIT(DTYPE_Q5_1) | DTYPE_BIT(DTYPE_Q5_K) | DTYPE_BIT(DTYPE_Q6_K) |
                           DTYPE_BIT(DTYPE_Q8_0);
    return dtype < DTYPE_COUNT && (types & DTYPE_BIT(dtype)) != 0;
}

bool dtype_quantise(enum dtype dtype, const float *src, const float *importance, void *dst,
                    size_t n) {
    CHECK(dtype_can_quantise(dtype));
    if (dtype == DTYPE_Q8_0)
        return quantise_q8_0(src, dst, n);
    struct search s = search_of(dtype);
    size_t block_elements = (size_t)s.form->block_elements;
    size_t num_blocks = n / block_elements;
    CHECK(num_blocks * block_elements == n);
    for (size_t b = 0; b < num_blocks; b++)
        if (!search_one(dtype, &s, src + b * block_elements,
                        importance != NULL ? importance + b * block_elements : NULL,
                        (uint8_t *)dst + b * dtype_block_bytes(dtype)))
            return false;
    return true;
}
