/* Included once by each cpu_ops_LEVEL.c: attention of a tile of query rows over one chunk.
 *
 * Per step of 64 tokens: the scores of every row ([rows][64]), their softmax relative to the
 * running maximum, and the weighted sum of V. Each phase processes all rows before the next begins,
 * in register tiles of the level's VF_ sizes. Tiles do not change the bits. If a row does not see
 * all of a step, its weights outside the visible tokens are 0 and V is not read for it there, so
 * that nothing outside ever affects its result.
 *
 * The products, of queries with K and of weights with V, are written per kind of cache:
 * cpu_attention_float_template.h for types that are widened to float,
 * cpu_attention_codes_template.h for int8, and cpu_attention_pairs_template.h for bf16 on a level
 * that multiplies pairs, which gives different bits. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_TEMPLATE_H

#include "kernels/cpu/levels/cpu_attention_tile.h"
#include "kernels/cpu/levels/ops/cpu_ops_template.h"

#include <math.h>

#ifdef SIMD_PAIRS
#define MULTIPLIES_PAIRS(type) ((type) == KV_BF16)
#else
#define MULTIPLIES_PAIRS(type) false
#endif
#ifdef SIMD_FIXED
#define IS_FIXED(type) ((type) == KV_F16 || ((type) == KV_BF16 && !MULTIPLIES_PAIRS(type)))
#else
#define IS_FIXED(type) false
#endif

/* Tokens first .. end-1 of a step. */
struct seen {
    int32_t first, end;
};

/* 2^x for x <= 0, at least 2^-100, which is also the result for NaN. The relative error is below
 * 2^-22, or 2^-12 if `coarse`; of 0 it is 1. 2^r, |r| <= 1/2, by a polynomial that interpolates it
 * at the Chebyshev points. */
SIMD_INLINE struct vf exp2_weight(struct vf x, bool coarse) {
    static const float fine[] = {0x1.62e43p-1f, 0x1.ebfa4cp-3f, 0x1.c6afeep-5f, 0x1.3cbf6p-7f,
                                 0x1.5ec866p-10f};
    static const float short_one[] = {0x1.62e43p-1f, 0x1.efb038p-3f, 0x1.c8bdfap-5f};
    const struct vf rounder = vf_set1(0x1.8p23f);
    x = vf_max(x, vf_set1(-100));
    struct vf shifted = vf_add(x, rounder);
    struct vf r = vf_sub(x, vf_sub(shifted, rounder));
    const int degree = coarse ? 3 : 5;
    const float *c = coarse ? short_one : fine;
    struct vf p = vf_set1(c[degree - 1]);
    UNROLL
    for (int i = degree - 2; i >= 0; i--)
        p = vf_add(vf_mul(p, r), vf_set1(c[i]));
    return vf_add_exponent(vf_add(vf_mul(p, r), vf_set1(1)), shifted);
}

/* Prefetches what the next step reads while this step's K is processed: the elements from `index`
 * on of the groups one step ahead, into the L2 cache, because L1 has no room for two steps. Blocks
 * are too short for the hardware to detect a stream. */
SIMD_INLINE void prefetch_step(enum kv_type type, const struct attention_tile *tile, int32_t group,
                               size_t index, const int num_groups) {
    size_t offset = index * kv_type_bytes(type);
    const void *const *k = tile->k + group + ATTENTION_STEP_GROUPS;
    const void *const *v = tile->v + group + ATTENTION_STEP_GROUPS;
    if (offset % 64 != 0)
        return;
    UNROLL
    for (int g = 0; g < num_groups; g++) {
        __builtin_prefetch((const char *)k[g] + offset, 0, 2);
        __builtin_prefetch((const char *)v[g] + offset, 0, 2);
        if (kv_type_has_scales(type) && offset == 0) {
            __builtin_prefetch(tile->k_scales[group + ATTENTION_STEP_GROUPS + g], 0, 3);
            __builtin_prefetch(tile->v_scales[group + ATTENTION_STEP_GROUPS + g], 0, 3);
        }
    }
}

SIMD_INLINE struct vi load_quad(const void *p) {
    int32_t quad;
    memcpy(&quad, p, sizeof(quad));
    return vi_set1(quad);
}

/* Returns the visible lanes of scores i .. i+15 from x, the others from `other`. */
SIMD_INLINE struct vf visible(struct seen seen, int32_t i, struct vf x, struct vf other) {
    struct vf up_to_end = vf_first(seen.end > i ? seen.end - i : 0, x, other);
    return i < seen.first ? vf_first(seen.first - i, other, up_to_end) : up_to_end;
}

#include "kernels/cpu/levels/ops/cpu_attention_codes_template.h"
#include "kernels/cpu/levels/ops/cpu_attention_float_template.h"
#ifdef SIMD_PAIRS
#include "kernels/cpu/levels/ops/cpu_attention_pairs_template.h"
#endif

SIMD_INLINE void score_groups(enum kv_type type, const struct attention_tile *tile, int32_t row,
                              const int num_rows, int32_t first_group, int32_t group,
                              const int num_groups, const bool prefetch) {
    if (type == KV_INT8)
        score_codes_tile(tile, row, num_rows, first_group, group, num_groups, prefetch);
#ifdef SIMD_PAIRS
    else if (MULTIPLIES_PAIRS(type))
        score_pairs_tile(tile, row, num_rows, first_group, group, num_groups, prefetch);
#endif
    else
        score_tile(type, tile, row, num_rows, first_group, group, num_groups, prefetch);
}

/* Scores the groups of the step that hold tokens of `seen`. */
SIMD_INLINE void score_rows(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, int32_t first_group, struct seen seen) {
    int32_t group = seen.first / KV_GROUP, end = (seen.end + KV_GROUP - 1) / KV_GROUP;
    for (; group + VF_GROUP_TILE <= end; group += VF_GROUP_TILE)
        if (row == 0)
            score_groups(type, tile, row, num_rows, first_group, group, VF_GROUP_TILE, true);
        else
            score_groups(type, tile, row, num_rows, first_group, group, VF_GROUP_TILE, false);
    for (; group < end; group++)
        score_groups(type, tile, row, num_rows, first_group, group, 1, false);
}

/* Calls f with row tiles of all sizes. */
#define FOR_ROW_TILES(num_all, f, ...)                                                             \
    do {                                                                                           \
        int32_t row = 0, end = num_all;                                                            \
        for (; row + VF_ROW_TILE <= end; row += VF_ROW_TILE)                                       \
            f(type, tile, row, VF_ROW_TILE, __VA_ARGS__);                                          \
        if (VF_ROW_TILE > 3)                                                                       \
            for (; row + 3 <= end; row += 3)                                                       \
                f(type, tile, row, 3, __VA_ARGS__);                                                \
        if (VF_ROW_TILE > 2)                                                                       \
            for (; row + 2 <= end; row += 2)                                                       \
                f(type, tile, row, 2, __VA_ARGS__);                                                \
        for (; row < end; row++)                                                                   \
            f(type, tile, row, 1, __VA_ARGS__);                                                    \
    } while (0)

/* Adds the keys' missing biases to the scores of the step that starts at `begin`; unfused, for the
 * same bits on every level. Scores of tokens that no row sees may be anything. */
SIMD_INLINE void add_key_bias(const struct attention_tile *tile, int32_t num_rows, int32_t begin) {
    const struct key_biases *turning = tile->turning;
    const ptrdiff_t to_sines = (ptrdiff_t)turning->rotary_dim / 2 * turning->stride;
    for (int32_t row = 0; row < num_rows; row++) {
        const float *terms = tile->queries.terms + (size_t)row * ATTENTION_MAX_TERMS;
        float *scores = tile->scores + (size_t)row * ATTENTION_STEP;
        struct vf sums[ATTENTION_STEP_GROUPS];
        UNROLL
        for (int g = 0; g < ATTENTION_STEP_GROUPS; g++)
            sums[g] = vf_set1(0);
        for (int32_t i = 0; i < tile->key_bias->num_pairs; i++) {
            const float *cosines = turning->rope_columns +
                                   (ptrdiff_t)tile->key_bias->pairs[i] * turning->stride + begin;
            struct vf u = vf_set1(terms[2 * i]), v = vf_set1(terms[2 * i + 1]);
            UNROLL
            for (int g = 0; g < ATTENTION_STEP_GROUPS; g++) {
                const float *at = cosines + g * KV_GROUP;
                sums[g] = vf_add(sums[g], vf_mul(u, vf_load(at)));
                sums[g] = vf_add(sums[g], vf_mul(v, vf_load(at + to_sines)));
            }
        }
        UNROLL
        for (int g = 0; g < ATTENTION_STEP_GROUPS; g++)
            vf_store(scores + g * KV_GROUP, vf_add(vf_load(scores + g * KV_GROUP), sums[g]));
    }
}

/* Caps a row's scores, and scales them to exponents of 2. */
SIMD_INLINE void cap_row(const struct attention_tile *tile, int32_t row, struct seen seen) {
    struct vf cap = vf_set1(tile->soft_cap), log2e = vf_set1(ATTENTION_LOG2E);
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP;
    for (int32_t i = seen.first / 16 * 16; i < seen.end; i += 16) {
        struct vf capped = vf_mul(vf_tanh(vf_div(vf_load(scores + i), cap)), cap);
        vf_store(scores + i, vf_mul(capped, log2e));
    }
}

SIMD_INLINE float largest_score(const struct attention_tile *tile, int32_t row, struct seen seen,
                                const bool whole) {
    const struct vf nothing = vf_set1(-INFINITY);
    const float *scores = tile->scores + (size_t)row * ATTENTION_STEP;
    struct vf largest = nothing;
    for (int32_t i = seen.first / 16 * 16; i < seen.end; i += 16) {
        struct vf x = vf_load(scores + i);
        largest = vf_max(whole ? x : visible(seen, i, x, nothing), largest);
    }
    return vf_reduce_max(largest);
}

/* Sets state.max to the largest score so far, and `decays` to the factors of the earlier
 * results. */
SIMD_INLINE void raise_maxima(const struct attention_tile *tile, int32_t num_rows) {
    for (int32_t r = num_rows; r % ATTENTION_ROW_STEP != 0; r++)
        tile->peaks[r] = -INFINITY; /* rows of another part of the tile stay as they are */
    for (int32_t r = 0; r < num_rows; r += 16) {
        struct vf old = vf_load(tile->state.max + r);
        struct vf max = vf_max(vf_load(tile->peaks + r), old);
        vf_store(tile->state.max + r, max);
        vf_store(tile->decays + r, exp2_weight(vf_sub(old, max), false));
    }
}

/* Turns a row's scores of the tokens `step` into weights, times V's scales if V is quantised; 0 for
 * tokens that it does not see. For codes, `peaks` becomes the largest weight. `spoilt`: some scale
 * may be NaN; if one is, so becomes `decays`, and with it the row. */
SIMD_INLINE void soften_row(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            int32_t first_group, struct seen step, struct seen seen,
                            const bool whole, const bool spoilt) {
#ifdef SIMD_PAIRS
    if (MULTIPLIES_PAIRS(type)) {
        soften_pairs(tile, row, seen, whole);
        return;
    }
#endif
    const struct vf zero = vf_set1(0);
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP;
    float *sums = tile->sums + (size_t)row * 16;
    struct vf max = vf_set1(tile->state.max[row]);
    struct vf total = vf_mul(vf_load(sums), vf_set1(tile->decays[row]));
    struct vf largest = zero, check = zero;
    for (int32_t i = step.first / 16 * 16; i < step.end; i += 16) {
        struct vf p = exp2_weight(vf_sub(vf_load(scores + i), max), type == KV_INT8);
        p = whole ? p : visible(seen, i, p, zero);
        total = vf_add(total, p);
        if (kv_type_has_scales(type)) {
            p = vf_mul(p, load_scales(type, tile->v_scales[first_group + i / KV_GROUP]));
            p = whole ? p : visible(seen, i, p, zero);
        }
        if (type == KV_INT8)
            largest = vf_max(p, largest);
        if (type == KV_INT8 && spoilt)
            check = vf_add(check, vf_sub(p, p));
        vf_store(scores + i, p);
    }
    vf_store(sums, total);
    if (type == KV_INT8)
        tile->peaks[row] = vf_reduce_max(largest);
    if (type == KV_INT8 && spoilt)
        tile->decays[row] += vf_reduce_add(check);
}

SIMD_INLINE void weigh_columns(enum kv_type type, const struct attention_tile *tile, int32_t row,
                               const int num_rows, const void *const *v, struct seen seen,
                               const bool decay, const bool parts, int32_t column,
                               const int num_columns, const bool half) {
    if (type == KV_INT8)
        weigh_codes_tile(tile, row, num_rows, v, seen, column, num_columns, half);
#ifdef SIMD_PAIRS
    else if (MULTIPLIES_PAIRS(type))
        weigh_pairs_tile(tile, row, num_rows, v, seen, decay, parts, column, num_columns, half);
#endif
    else
        weigh_tile(type, tile, row, num_rows, v, seen, decay, parts, column, num_columns, half);
}

SIMD_INLINE void weigh_rows(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, const void *const *v, struct seen seen,
                            const bool decay, const bool parts) {
    int32_t c = 0;
    for (; c + 16 * VF_COLUMN_TILE <= tile->value_dim; c += 16 * VF_COLUMN_TILE)
        weigh_columns(type, tile, row, num_rows, v, seen, decay, parts, c, VF_COLUMN_TILE, false);
    for (; c + 16 <= tile->value_dim; c += 16)
        weigh_columns(type, tile, row, num_rows, v, seen, decay, parts, c, 1, false);
    if (c < tile->value_dim)
        weigh_columns(type, tile, row, num_rows, v, seen, decay, parts, c, 1, true);
}

#ifdef SIMD_FIXED
#include "kernels/cpu/levels/ops/cpu_attention_fixed_template.h"
#endif

/* Returns what a row sees of the step that starts at `begin`; end <= first: nothing. */
SIMD_INLINE struct seen seen_by(const struct attention_tile *tile, int32_t row, int32_t begin) {
    int32_t end = tile->first_length + row / tile->num_heads - begin;
    int32_t first = end > tile->window ? end - tile->window : 0;
    return (struct seen){first, end < ATTENTION_STEP ? end : ATTENTION_STEP};
}

SIMD_INLINE void weigh_one(enum kv_type type, const struct attention_tile *tile, int32_t row,
                           const void *const *v, int32_t first, int32_t end) {
    if (first < end)
        weigh_rows(type, tile, row, 1, v, (struct seen){first, end}, false, true);
}

/* Weighs rows that see different parts: in order of tokens, together what all of them see, in whole
 * packs, and row by row what is before and after it. */
SIMD_INLINE void weigh_edge(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, const void *const *v, int32_t begin) {
    const int32_t pack = KV_PACK(type);
    int32_t first = 0, end = ATTENTION_STEP;
    for (int r = 0; r < num_rows; r++) {
        struct seen seen = seen_by(tile, row + r, begin);
        first = seen.first > first ? seen.first : first;
        end = seen.end < end ? seen.end : end;
    }
    first = (first + pack - 1) / pack * pack;
    end = end / pack * pack;
    end = end < first ? first : end;
    for (int r = 0; r < num_rows; r++) {
        struct seen seen = seen_by(tile, row + r, begin);
        float *out = tile->state.out + (size_t)(row + r) * (size_t)tile->stride;
        struct vf decay = vf_set1(tile->decays[row + r]);
        for (int32_t d = 0; d < tile->stride; d += 16)
            vf_store(out + d, vf_mul(vf_load(out + d), decay));
        weigh_one(type, tile, row + r, v, seen.first, seen.end < first ? seen.end : first);
    }
    if (first < end)
        weigh_rows(type, tile, row, num_rows, v, (struct seen){first, end}, false, false);
    for (int r = 0; r < num_rows; r++) {
        struct seen seen = seen_by(tile, row + r, begin);
        weigh_one(type, tile, row + r, v, seen.first > end ? seen.first : end, seen.end);
    }
}

/* Attends to a step that every row sees completely. */
SIMD_INLINE void attend_whole(enum kv_type type, const struct attention_tile *tile,
                              int32_t num_rows, int32_t first_group, int32_t begin,
                              const bool spoilt) {
    const struct seen all = {0, ATTENTION_STEP};
#ifdef SIMD_FIXED
    if (IS_FIXED(type)) {
        attend_fixed(type, tile, num_rows, first_group);
        return;
    }
#endif
    FOR_ROW_TILES(num_rows, score_rows, first_group, all);
    if (kv_type_has_scales(type) && tile->key_bias != NULL && tile->key_bias->num_pairs > 0)
        add_key_bias(tile, num_rows, begin);
    for (int32_t r = 0; r < num_rows; r++) {
        if (tile->soft_cap > 0)
            cap_row(tile, r, all);
        tile->peaks[r] = largest_score(tile, r, all, true);
    }
    raise_maxima(tile, num_rows);
    for (int32_t r = 0; r < num_rows; r++)
        soften_row(type, tile, r, first_group, all, all, true, spoilt);
    if (type == KV_INT8)
        quantise_weights(tile, num_rows);
    FOR_ROW_TILES(num_rows, weigh_rows, tile->v + first_group, all, true, false);
}

/* Attends to any other step that starts at `begin`, if some row sees some of the tokens `step`. */
SIMD_INLINE void attend_edge(enum kv_type type, const struct attention_tile *tile, int32_t num_rows,
                             int32_t first_group, int32_t begin, struct seen step) {
    FOR_ROW_TILES(num_rows, score_rows, first_group, step);
    if (kv_type_has_scales(type) && tile->key_bias != NULL && tile->key_bias->num_pairs > 0)
        add_key_bias(tile, num_rows, begin);
    for (int32_t r = 0; r < num_rows; r++) {
        struct seen seen = seen_by(tile, r, begin);
        if (tile->soft_cap > 0)
            cap_row(tile, r, seen);
        tile->peaks[r] = largest_score(tile, r, seen, false);
    }
    raise_maxima(tile, num_rows);
    for (int32_t r = 0; r < num_rows; r++)
        soften_row(type, tile, r, first_group, step, seen_by(tile, r, begin), false, true);
    if (type == KV_INT8) {
        quantise_weights(tile, num_rows);
        FOR_ROW_TILES(num_rows, weigh_rows, tile->v + first_group, step, true, false);
    } else {
        FOR_ROW_TILES(num_rows, weigh_edge, tile->v + first_group, begin);
    }
}

/* Returns the tile of the tokens first .. end-1 alone. */
SIMD_INLINE struct attention_tile part_of(const struct attention_tile *tile, int32_t first,
                                          int32_t end) {
    struct attention_tile part = *tile;
    const size_t row = (size_t)first * (size_t)tile->num_heads;
    const size_t elements = row * ATTENTION_QUERY_STRIDE;
    part.num_tokens = end - first;
    part.first_length += first;
    part.queries.rows = (float *)part.queries.rows + elements;
    part.queries.codes += elements;
    part.queries.scales += row;
    part.scores += row * ATTENTION_STEP;
    part.sums += row * 16;
    part.state.max += row;
    part.state.out += row * (size_t)tile->stride;
    return part;
}

SIMD_INLINE void attend_part(enum kv_type type, const struct attention_tile *tile, int32_t group,
                             int32_t begin) {
    int32_t num_rows = tile->num_tokens * tile->num_heads;
    int32_t first = seen_by(tile, 0, begin).first;
    struct seen last = seen_by(tile, num_rows - 1, begin);
    if (first < ATTENTION_STEP && last.end > 0)
        attend_edge(type, tile, num_rows, group, begin, (struct seen){first, last.end});
}

/* Attends to a step that some rows do not see completely. In fixed point the others are kept apart:
 * the bits of a row depend on what it sees itself. */
SIMD_INLINE void attend_parts(enum kv_type type, const struct attention_tile *tile, int32_t group,
                              int32_t begin) {
    if (!IS_FIXED(type)) {
        attend_part(type, tile, group, begin);
        return;
    }
    const int32_t n = tile->num_tokens, past = begin - tile->first_length;
    int32_t first = past + ATTENTION_STEP > 0 ? past + ATTENTION_STEP : 0;
    int32_t end = tile->window < n - past ? past + tile->window + 1 : n;
    first = first < n ? first : n;
    end = end < n ? end : n;
    end = end > first ? end : first;
    if (first > 0) {
        struct attention_tile part = part_of(tile, 0, first);
        attend_part(type, &part, group, begin);
    }
    if (end > first) {
        struct attention_tile part = part_of(tile, first, end);
        attend_whole(type, &part, part.num_tokens * part.num_heads, group, begin, false);
    }
    if (n > end) {
        struct attention_tile part = part_of(tile, end, n);
        attend_part(type, &part, group, begin);
    }
}

SIMD_INLINE void attend_chunk(enum kv_type type, const struct attention_tile *tile) {
    int32_t num_rows = tile->num_tokens * tile->num_heads;
    int32_t last_length = tile->first_length + tile->num_tokens - 1, end = last_length;
    if (end > tile->chunk_begin + ATTENTION_CHUNK)
        end = tile->chunk_begin + ATTENTION_CHUNK;
    for (int32_t begin = tile->chunk_begin; begin < end; begin += ATTENTION_STEP) {
        int32_t group = (begin - tile->chunk_begin) / KV_GROUP;
        if (begin + ATTENTION_STEP > tile->first_length || last_length - begin > tile->window)
            attend_parts(type, tile, group, begin);
        else if (type == KV_INT8 && is_spoilt(tile, group))
            attend_whole(type, tile, num_rows, group, begin, true);
        else
            attend_whole(type, tile, num_rows, group, begin, false);
    }
}

SIMD_INLINE void attend(enum kv_type type, const struct attention_tile *tile) {
    int32_t num_rows = tile->num_tokens * tile->num_heads;
    for (int32_t r = 0; r < num_rows; r += 16)
        vf_store(tile->state.max + r, vf_set1(-INFINITY));
    memset(tile->sums, 0, (size_t)num_rows * 16 * sizeof(float));
    memset(tile->state.out, 0, (size_t)num_rows * (size_t)tile->stride * sizeof(float));
    attend_chunk(type, tile);
    for (int32_t r = 0; r < num_rows; r++)
        tile->state.sum[r] = vf_reduce_add(vf_load(tile->sums + 16 * (size_t)r));
}

SIMD_INLINE void load_query(enum kv_type type, const float *src, float factor, int32_t n,
                            const struct attention_queries *out, int32_t row) {
    float scaled[KV_MAX_LATENT_ROW];
    size_t at = (size_t)row * ATTENTION_QUERY_STRIDE;
    bool is_float = type != KV_INT8 && !MULTIPLIES_PAIRS(type);
    float *target = is_float ? (float *)out->rows + at : scaled;
    for (int32_t i = 0; i < n; i++)
        target[i] = src[i] * factor;
#ifdef SIMD_FIXED
    if (IS_FIXED(type))
        load_fixed_query(target, n, out, row);
#endif
    if (type == KV_INT8)
        load_codes_query(scaled, n, out, row);
    else if (!is_float)
        store(KV_BF16, scaled, (uint16_t *)out->rows + at, NULL, n);
}

/* The level's functions for one type, and their entry in its table. */
#define DEFINE_ATTENTION(type)                                                                     \
    static void load_query_##type(const float *src, float factor, int32_t n,                       \
                                  const struct attention_queries *out, int32_t row) {              \
        load_query(KV_##type, src, factor, n, out, row);                                           \
    }                                                                                              \
    static void attend_##type(const struct attention_tile *tile) {                                 \
        attend(KV_##type, tile);                                                                   \
    }

#define ATTENTION_OF(type)                                                                         \
    {                                                                                              \
        load_query_##type, attend_##type,                                                          \
            MULTIPLIES_PAIRS(KV_##type) ? "vdpbf16ps"                                              \
            : IS_FIXED(KV_##type)       ? "vpdpwssd"                                               \
                                        : NULL                                                     \
    }

DEFINE_ATTENTION(F32)
DEFINE_ATTENTION(F16)
DEFINE_ATTENTION(BF16)
DEFINE_ATTENTION(INT8)
DEFINE_ATTENTION(E4M3)

#define ATTENTION_KERNELS                                                                          \
    {                                                                                              \
        [KV_F32] = ATTENTION_OF(F32), [KV_F16] = ATTENTION_OF(F16),                                \
        [KV_BF16] = ATTENTION_OF(BF16), [KV_INT8] = ATTENTION_OF(INT8),                            \
        [KV_E4M3] = ATTENTION_OF(E4M3),                                                            \
    }

static void attention_merge(int32_t num_rows, int32_t stride, const struct attention_state *part,
                            struct attention_state *total) {
    for (int32_t first = 0; first < num_rows; first += 16) {
        float part_scales[16], total_scales[16];
        struct vf part_max = vf_load(part->max + first), total_max = vf_load(total->max + first);
        struct vf max = vf_max(part_max, total_max);
        vf_store(part_scales, exp2_weight(vf_sub(part_max, max), false));
        vf_store(total_scales, exp2_weight(vf_sub(total_max, max), false));
        vf_store(total->max + first, max);
        for (int32_t r = first; r < num_rows && r < first + 16; r++) {
            struct vf part_scale = vf_set1(part_scales[r - first]);
            struct vf total_scale = vf_set1(total_scales[r - first]);
            const float *source = part->out + (size_t)r * (size_t)stride;
            float *target = total->out + (size_t)r * (size_t)stride;
            for (int32_t d = 0; d < stride; d += 16) {
                struct vf scaled = vf_mul(vf_load(source + d), part_scale);
                vf_store(target + d, vf_add(vf_mul(vf_load(target + d), total_scale), scaled));
            }
            total->sum[r] =
                total->sum[r] * total_scales[r - first] + part->sum[r] * part_scales[r - first];
        }
    }
}

#endif
