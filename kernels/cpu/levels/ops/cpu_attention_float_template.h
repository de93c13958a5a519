/* Included by cpu_attention_template.h: attention over a cache whose elements are widened to float.
 * Every score is one chain of fused multiply-adds over head_dim and every output one chain over the
 * visible tokens, each in order: the same bits on every level. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_FLOAT_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_FLOAT_TEMPLATE_H

/* Loads the elements from `index` on of a K or V group; `half`: 8 elements. Codes come without
 * their scale, which load_scales returns. For types that are not packed; the type is constant when
 * inlined. */
SIMD_INLINE struct vf kv_load(enum kv_type type, const void *base, size_t index, bool half) {
    if (type == KV_F32)
        return half ? vf_load_half((const float *)base + index)
                    : vf_load((const float *)base + index);
    if (type == KV_E4M3) {
        const uint8_t *codes = (const uint8_t *)base + index;
        return half ? vf_load_e4m3_half(codes) : vf_load_e4m3(codes);
    }
    const uint16_t *p = (const uint16_t *)base + index;
    return half ? vf_load_f16_half(p) : vf_load_f16(p);
}

/* Loads the packed elements that begin at `index`: `pack` elements per lane. */
SIMD_INLINE void kv_load_packed(enum kv_type type, const void *base, size_t index, bool half,
                                struct vf *out) {
    if (type != KV_BF16) {
        out[0] = kv_load(type, base, index, half);
        return;
    }
    const uint16_t *pairs = (const uint16_t *)base + index;
    uint16_t padded[32] = {0};
    if (half)
        memcpy(padded, pairs, sizeof(padded) / 2);
    vf_load_bf16_pairs(half ? padded : pairs, &out[0], &out[1]);
}

/* Returns the scales of a group's 16 tokens, by which what kv_load returns must be multiplied. */
SIMD_INLINE struct vf load_scales(enum kv_type type, const float *scales) {
    return type == KV_E4M3 ? vf_mul(vf_load(scales), vf_set1(0x1p8f)) : vf_load(scales);
}

/* Scores of num_rows rows with num_groups groups of 16 tokens, which are the step's from
 * `group` on; the numbers are constants. */
SIMD_INLINE void score_tile(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, int32_t first_group, int32_t group,
                            const int num_groups, const bool prefetch) {
    const int pack = KV_PACK(type);
    struct vf acc[VF_ROW_TILE][VF_GROUP_TILE];
    const float *q = (const float *)tile->queries.rows + (size_t)row * ATTENTION_QUERY_STRIDE;
    const void *const *k = tile->k + first_group + group;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int g = 0; g < num_groups; g++)
            acc[r][g] = vf_set1(0);
    }
    for (int32_t d = 0; d < tile->head_dim; d += pack) {
        struct vf keys[VF_GROUP_TILE][2];
        if (prefetch)
            prefetch_step(type, tile, first_group + group, (size_t)d * KV_GROUP, num_groups);
        UNROLL
        for (int g = 0; g < num_groups; g++)
            kv_load_packed(type, k[g], (size_t)d * KV_GROUP, false, keys[g]);
        UNROLL
        for (int i = 0; i < pack; i++) {
            UNROLL
            for (int r = 0; r < num_rows; r++) {
                struct vf query = vf_set1(q[r * ATTENTION_QUERY_STRIDE + d + i]);
                UNROLL
                for (int g = 0; g < num_groups; g++)
                    acc[r][g] = vf_fma(query, keys[g][i], acc[r][g]);
            }
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

/* out += weights x V over the tokens `seen` for num_rows rows and num_columns vectors from `column`
 * on; `decay`: out is multiplied first. Packed elements are processed in whole packs, except at the
 * beginning and the end, which need `parts`. */
SIMD_INLINE void weigh_tile(enum kv_type type, const struct attention_tile *tile, int32_t row,
                            const int num_rows, const void *const *v, struct seen seen,
                            const bool decay, const bool parts, int32_t column,
                            const int num_columns, const bool half) {
    const int pack = KV_PACK(type);
    struct vf acc[VF_ROW_TILE][VF_COLUMN_TILE];
    const float *weights = tile->scores + (size_t)row * ATTENTION_STEP;
    float *out = tile->state.out + (size_t)row * (size_t)tile->stride + column;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int c = 0; c < num_columns; c++) {
            acc[r][c] = vf_load(out + r * tile->stride + 16 * c);
            if (decay)
                acc[r][c] = vf_mul(acc[r][c], vf_set1(tile->decays[row + r]));
        }
    }
    for (int32_t t = seen.first / pack * pack; t < seen.end; t += pack) {
        size_t index = (size_t)(t % KV_GROUP) * (size_t)tile->value_dim;
        struct vf values[VF_COLUMN_TILE][2];
        UNROLL
        for (int c = 0; c < num_columns; c++)
            kv_load_packed(type, v[t / KV_GROUP], index + (size_t)pack * (size_t)(column + 16 * c),
                           half, values[c]);
        UNROLL
        for (int i = 0; i < pack; i++) {
            if (parts && pack > 1 && (t + i < seen.first || t + i >= seen.end))
                continue;
            UNROLL
            for (int r = 0; r < num_rows; r++) {
                struct vf weight = vf_set1(weights[r * ATTENTION_STEP + t + i]);
                UNROLL
                for (int c = 0; c < num_columns; c++)
                    acc[r][c] = vf_fma(weight, values[c][i], acc[r][c]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int c = 0; c < num_columns; c++)
            vf_store(out + r * tile->stride + 16 * c, acc[r][c]);
    }
}

#endif
