/* Included once by each cpu_ops_LEVEL.c: attention of a tile of query rows over one chunk.
 *
 * Per step of 64 tokens: the scores of every row ([rows][64]), their softmax relative to the
 * running maximum, and the weighted sum of V. Rows, columns and token groups are worked in register
 * tiles of the level's VF_ sizes. Tiles do not change the bits: every score is one chain of fused
 * multiply-adds over head_dim and every output one chain over the visible tokens, each in order.
 * A step that not all rows see from end to end is done token by token, each with its own bounds, so
 * that nothing outside a row's visible tokens is ever read into its result. */
#ifndef QUIRE_KERNELS_CPU_CPU_ATTENTION_TEMPLATE_H
#define QUIRE_KERNELS_CPU_CPU_ATTENTION_TEMPLATE_H

#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpu/simd.h"

#include <math.h>

/* Element `index` on of a K or V group; `half`: 8 elements. Codes come without their scale, which
 * load_scales has. The type is constant where inlined. */
SIMD_INLINE struct vf kv_load(enum kv_type type, const void *base, size_t index, bool half) {
    if (type == KV_F32)
        return half ? vf_load_half((const float *)base + index)
                    : vf_load((const float *)base + index);
    if (type == KV_INT8) {
        const int8_t *codes = (const int8_t *)base + index;
        return half ? vf_load_int8_half(codes) : vf_load_int8(codes);
    }
    if (type == KV_E4M3) {
        const uint8_t *codes = (const uint8_t *)base + index;
        return half ? vf_load_e4m3_half(codes) : vf_load_e4m3(codes);
    }
    const uint16_t *p = (const uint16_t *)base + index;
    if (type == KV_F16)
        return half ? vf_load_f16_half(p) : vf_load_f16(p);
    return half ? vf_load_bf16_half(p) : vf_load_bf16(p);
}

/* What the elements of a group's 16 tokens are times, in place of what kv_load gives. */
SIMD_INLINE struct vf load_scales(enum kv_type type, const float *scales) {
    return type == KV_E4M3 ? vf_mul(vf_load(scales), vf_set1(0x1p8f)) : vf_load(scales);
}

/* Asks for what the next step reads while this one's K goes by: element `index` on of the groups
 * one step ahead. Blocks are too short for the hardware to see a stream. */
SIMD_INLINE void prefetch_step(enum kv_type type, const struct attention_tile *tile, int32_t group,
                               size_t index, const int num_groups) {
    size_t offset = index * kv_type_bytes(type);
    const void *const *k = tile->k + group + ATTENTION_STEP_GROUPS;
    const void *const *v = tile->v + group + ATTENTION_STEP_GROUPS;
    if (offset % 64 != 0)
        return;
    UNROLL
    for (int g = 0; g < num_groups; g++) {
        __builtin_prefetch((const char *)k[g] + offset, 0, 3);
        __builtin_prefetch((const char *)v[g] + offset, 0, 3);
        if (kv_type_has_scales(type) && offset == 0) {
            __builtin_prefetch(tile->k_scales[group + ATTENTION_STEP_GROUPS + g], 0, 3);
            __builtin_prefetch(tile->v_scales[group + ATTENTION_STEP_GROUPS + g], 0, 3);
        }
    }
}

/* Scores of num_rows rows with num_groups groups of 16 tokens, which are the step's from
 * `group` on; the numbers are constants. */
SIMD_INLINE void score_tile(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, int32_t first_group, int32_t group,
                            const int num_groups) {
    struct vf acc[VF_ROW_TILE][VF_GROUP_TILE];
    const float *q = tile->q + (size_t)row * (size_t)tile->head_dim;
    const void *const *k = tile->k + first_group + group;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int g = 0; g < num_groups; g++)
            acc[r][g] = vf_set1(0);
    }
    for (int32_t d = 0; d < tile->head_dim; d++) {
        struct vf keys[VF_GROUP_TILE];
        if (row == 0)
            prefetch_step(type, tile, first_group + group, (size_t)d * KV_GROUP, num_groups);
        UNROLL
        for (int g = 0; g < num_groups; g++)
            keys[g] = kv_load(type, k[g], (size_t)d * KV_GROUP, false);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vf query = vf_set1(q[r * tile->head_dim + d]);
            UNROLL
            for (int g = 0; g < num_groups; g++)
                acc[r][g] = vf_fma(query, keys[g], acc[r][g]);
        }
    }
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP + group * KV_GROUP;
    UNROLL
    for (int g = 0; g < num_groups; g++) {
        struct vf scales = vf_set1(1);
        if (kv_type_has_scales(type))
            scales = load_scales(type, tile->k_scales[first_group + group + g]);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vf score = kv_type_has_scales(type) ? vf_mul(acc[r][g], scales) : acc[r][g];
            vf_store(scores + r * ATTENTION_STEP + g * KV_GROUP, score);
        }
    }
}

/* Groups group .. end-1 of the step. */
SIMD_INLINE void score_rows(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, int32_t first_group, int32_t group, int32_t end) {
    for (; group + VF_GROUP_TILE <= end; group += VF_GROUP_TILE)
        score_tile(type, tile, row, num_rows, first_group, group, VF_GROUP_TILE);
    for (; group < end; group++)
        score_tile(type, tile, row, num_rows, first_group, group, 1);
}

/* The lanes of scores i .. i+15 that are of tokens first .. n-1 from x, the others from `other`. */
SIMD_INLINE struct vf visible(int32_t first, int32_t n, int32_t i, struct vf x, struct vf other) {
    struct vf up_to_n = vf_first(n - i, x, other);
    return i < first ? vf_first(first - i, other, up_to_n) : up_to_n;
}

SIMD_INLINE void cap_row(const struct attention_tile *tile, int32_t row, int32_t first, int32_t n) {
    struct vf cap = vf_set1(tile->soft_cap);
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP;
    for (int32_t i = first / 16 * 16; i < n; i += 16)
        vf_store(scores + i, vf_mul(vf_tanh(vf_div(vf_load(scores + i), cap)), cap));
}

/* Turns a row's scores first .. n-1 into weights, those of quantised V times its scales, and
 * rescales what the row has so far. */
SIMD_INLINE void soften_row(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            int32_t first_group, int32_t first, int32_t n) {
    const struct vf nothing = vf_set1(-INFINITY);
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP;
    float *out = tile->state.out + (size_t)row * (size_t)tile->stride;
    struct vf largest = nothing, total = vf_set1(0);
    for (int32_t i = first / 16 * 16; i < n; i += 16)
        largest = vf_max(visible(first, n, i, vf_load(scores + i), nothing), largest);
    float old_max = tile->state.max[row];
    float max = fmaxf(vf_reduce_max(largest), old_max);
    for (int32_t i = first / 16 * 16; i < n; i += 16) {
        struct vf p = vf_exp(vf_sub(vf_load(scores + i), vf_set1(max)));
        p = visible(first, n, i, p, vf_set1(0));
        total = vf_add(total, p);
        if (kv_type_has_scales(type))
            p = vf_mul(p, load_scales(type, tile->v_scales[first_group + i / KV_GROUP]));
        vf_store(scores + i, p);
    }
    float sum = vf_reduce_add(total);
    if (max == old_max) {
        tile->state.sum[row] += sum;
        return;
    }
    struct vf decay = vf_exp(vf_set1(old_max - max));
    for (int32_t d = 0; d < tile->stride; d += 16)
        vf_store(out + d, vf_mul(vf_load(out + d), decay));
    float lanes[16];
    vf_store(lanes, decay);
    tile->state.sum[row] = tile->state.sum[row] * lanes[0] + sum;
    tile->state.max[row] = max;
}

/* out += weights x V over tokens first .. n-1 for num_rows rows and num_columns vectors from
 * `column` on. */
SIMD_INLINE void weigh_tile(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, const void *const *v, int32_t first, int32_t n,
                            int32_t column, const int num_columns, const bool half) {
    struct vf acc[VF_ROW_TILE][VF_COLUMN_TILE];
    const float *weights = tile->scores + (size_t)row * ATTENTION_STEP;
    float *out = tile->state.out + (size_t)row * (size_t)tile->stride + column;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int c = 0; c < num_columns; c++)
            acc[r][c] = vf_load(out + r * tile->stride + 16 * c);
    }
    for (int32_t t = first; t < n; t++) {
        size_t index = (size_t)(t % KV_GROUP) * (size_t)tile->head_dim + (size_t)column;
        struct vf values[VF_COLUMN_TILE];
        UNROLL
        for (int c = 0; c < num_columns; c++)
            values[c] = kv_load(type, v[t / KV_GROUP], index + 16 * (size_t)c, half);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vf weight = vf_set1(weights[r * ATTENTION_STEP + t]);
            UNROLL
            for (int c = 0; c < num_columns; c++)
                acc[r][c] = vf_fma(weight, values[c], acc[r][c]);
        }
    }
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int c = 0; c < num_columns; c++)
            vf_store(out + r * tile->stride + 16 * c, acc[r][c]);
    }
}

SIMD_INLINE void weigh_rows(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, const void *const *v, int32_t first, int32_t n) {
    int32_t c = 0;
    for (; c + 16 * VF_COLUMN_TILE <= tile->head_dim; c += 16 * VF_COLUMN_TILE)
        weigh_tile(type, tile, row, num_rows, v, first, n, c, VF_COLUMN_TILE, false);
    for (; c + 16 <= tile->head_dim; c += 16)
        weigh_tile(type, tile, row, num_rows, v, first, n, c, 1, false);
    if (c < tile->head_dim)
        weigh_tile(type, tile, row, num_rows, v, first, n, c, 1, true);
}

SIMD_INLINE void attend_row_tile(enum kv_type type, const struct attention_tile *tile, int32_t row,
                                 const int num_rows, int32_t first_group, int32_t first,
                                 int32_t n) {
    score_rows(type, tile, row, num_rows, first_group, first / KV_GROUP,
               (n + KV_GROUP - 1) / KV_GROUP);
    if (tile->soft_cap > 0)
        for (int r = 0; r < num_rows; r++)
            cap_row(tile, row + r, first, n);
    for (int r = 0; r < num_rows; r++)
        soften_row(type, tile, row + r, first_group, first, n);
    weigh_rows(type, tile, row, num_rows, tile->v + first_group, first, n);
}

/* Rows row .. end-1 over the tokens first .. n-1, n <= ATTENTION_STEP, counted from group
 * first_group of the chunk. */
SIMD_INLINE void attend_rows(enum kv_type type, const struct attention_tile *tile, int32_t row,
                             int32_t end, int32_t first_group, int32_t first, int32_t n) {
    for (; row + VF_ROW_TILE <= end; row += VF_ROW_TILE)
        attend_row_tile(type, tile, row, VF_ROW_TILE, first_group, first, n);
    if (VF_ROW_TILE > 3)
        for (; row + 3 <= end; row += 3)
            attend_row_tile(type, tile, row, 3, first_group, first, n);
    if (VF_ROW_TILE > 2)
        for (; row + 2 <= end; row += 2)
            attend_row_tile(type, tile, row, 2, first_group, first, n);
    for (; row < end; row++)
        attend_row_tile(type, tile, row, 1, first_group, first, n);
}

/* Rows of each token on their own, over what it sees of the step that starts at `begin`. */
SIMD_INLINE void attend_edge(enum kv_type type, const struct attention_tile *tile, int32_t begin,
                             int32_t first_group) {
    for (int32_t t = 0; t < tile->num_tokens; t++) {
        int32_t n = tile->first_length + t - begin;
        int32_t first = n > tile->window ? n - tile->window : 0;
        if (n > 0 && first < ATTENTION_STEP)
            attend_rows(type, tile, t * tile->num_heads, (t + 1) * tile->num_heads, first_group,
                        first, n < ATTENTION_STEP ? n : ATTENTION_STEP);
    }
}

SIMD_INLINE void attend_chunk(enum kv_type type, const struct attention_tile *tile) {
    int32_t last_length = tile->first_length + tile->num_tokens - 1, end = last_length;
    if (end > tile->chunk_begin + ATTENTION_CHUNK)
        end = tile->chunk_begin + ATTENTION_CHUNK;
    for (int32_t begin = tile->chunk_begin; begin < end; begin += ATTENTION_STEP) {
        int32_t group = (begin - tile->chunk_begin) / KV_GROUP;
        if (begin + ATTENTION_STEP <= tile->first_length && last_length - begin <= tile->window)
            attend_rows(type, tile, 0, tile->num_tokens * tile->num_heads, group, 0,
                        ATTENTION_STEP);
        else
            attend_edge(type, tile, begin, group);
    }
}

static void attend_f32(const struct attention_tile *tile) {
    attend_chunk(KV_F32, tile);
}

static void attend_f16(const struct attention_tile *tile) {
    attend_chunk(KV_F16, tile);
}

static void attend_bf16(const struct attention_tile *tile) {
    attend_chunk(KV_BF16, tile);
}

static void attend_int8(const struct attention_tile *tile) {
    attend_chunk(KV_INT8, tile);
}

static void attend_e4m3(const struct attention_tile *tile) {
    attend_chunk(KV_E4M3, tile);
}

static void attend(const struct attention_tile *tile) {
    static void (*const attend_type[NUM_KV_TYPES])(const struct attention_tile *tile) = {
        [KV_F32] = attend_f32,   [KV_F16] = attend_f16,   [KV_BF16] = attend_bf16,
        [KV_INT8] = attend_int8, [KV_E4M3] = attend_e4m3,
    };

    int32_t num_rows = tile->num_tokens * tile->num_heads;
    for (int32_t r = 0; r < num_rows; r++) {
        tile->state.max[r] = -INFINITY;
        tile->state.sum[r] = 0;
    }
    memset(tile->state.out, 0, (size_t)num_rows * (size_t)tile->stride * sizeof(float));
    attend_type[tile->type](tile);
}

SIMD_INLINE float exp_scalar(float x) {
    float lanes[16];
    vf_store(lanes, vf_exp(vf_set1(x)));
    return lanes[0];
}

static void attention_merge(int32_t num_rows, int32_t stride, const struct attention_state *part,
                            struct attention_state *total) {
    for (int32_t r = 0; r < num_rows; r++) {
        float max = fmaxf(part->max[r], total->max[r]);
        if (max == -INFINITY)
            continue;
        float part_scale = exp_scalar(part->max[r] - max);
        float total_scale = exp_scalar(total->max[r] - max);
        const float *source = part->out + (size_t)r * (size_t)stride;
        float *target = total->out + (size_t)r * (size_t)stride;
        for (int32_t d = 0; d < stride; d += 16) {
            struct vf scaled = vf_mul(vf_load(source + d), vf_set1(part_scale));
            vf_store(target + d, vf_fma(vf_load(target + d), vf_set1(total_scale), scaled));
        }
        total->sum[r] = total->sum[r] * total_scale + part->sum[r] * part_scale;
        total->max[r] = max;
    }
}

#endif
