/* Included by cpu_attention_template.h on a level that has vf_dot_pairs: attention over a bf16
 * cache without widening it. Query rows and weights are rounded to bf16, to nearest even; scores
 * are one chain over the pairs of head_dim and outputs one over the pairs of tokens, each in order,
 * in float; denormals count as zeros in both. The sum that divides the result is of the rounded
 * weights, so that it stays an average of V.
 *
 * If only one token of a pair is visible, the other's weight is 0 and its V is masked, since 0
 * times arbitrary contents need not be 0. That is always done when the row sees only one token of a
 * pair, and pairs of which it sees none are left out (weigh_edge): the bits depend only on the
 * row. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_PAIRS_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_PAIRS_TEMPLATE_H

SIMD_INLINE void score_pairs_tile(const struct attention_tile *tile, int32_t row,
                                  const int num_rows, int32_t first_group, int32_t group,
                                  const int num_groups, const bool prefetch) {
    struct vf acc[VF_ROW_TILE][VF_GROUP_TILE];
    const uint16_t *q = (const uint16_t *)tile->queries.rows + (size_t)row * ATTENTION_QUERY_STRIDE;
    const void *const *k = tile->k + first_group + group;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int g = 0; g < num_groups; g++)
            acc[r][g] = vf_set1(0);
    }
    for (int32_t d = 0; d < tile->head_dim; d += 2) {
        struct vi keys[VF_GROUP_TILE];
        if (prefetch)
            prefetch_step(KV_BF16, tile, first_group + group, (size_t)d * KV_GROUP, num_groups);
        UNROLL
        for (int g = 0; g < num_groups; g++)
            keys[g] = vi_load((const uint16_t *)k[g] + (size_t)d * KV_GROUP);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vi query = load_quad(q + r * ATTENTION_QUERY_STRIDE + d);
            UNROLL
            for (int g = 0; g < num_groups; g++)
                acc[r][g] = vf_dot_pairs(acc[r][g], keys[g], query);
        }
    }
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP + group * KV_GROUP;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int g = 0; g < num_groups; g++)
            vf_store(scores + r * ATTENTION_STEP + g * KV_GROUP, acc[r][g]);
    }
}

/* Turns a row's scores into bf16 weights at the beginning of the scores' memory; 0 for tokens that
 * the row does not see. */
SIMD_INLINE void soften_pairs(const struct attention_tile *tile, int32_t row, struct seen seen,
                              const bool whole) {
    const struct vf zero = vf_set1(0);
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP, *sums = tile->sums + row * 16;
    struct vf max = vf_set1(tile->state.max[row]);
    struct vf total = vf_mul(vf_load(sums), vf_set1(tile->decays[row]));
    struct vf p[ATTENTION_STEP_GROUPS];
    UNROLL
    for (int i = 0; i < ATTENTION_STEP_GROUPS; i++) {
        p[i] = exp2_weight(vf_sub(vf_load(scores + 16 * i), max), true);
        p[i] = whole ? p[i] : visible(seen, 16 * i, p[i], zero);
    }
    UNROLL
    for (int i = 0; i < ATTENTION_STEP_GROUPS; i += 2) {
        struct vi pairs = vi_from_bf16(p[i], p[i + 1]);
        struct vf even, odd;
        vi_store(scores + 8 * i, pairs);
        vf_load_bf16_pairs(&pairs, &even, &odd);
        total = vf_add(vf_add(total, even), odd);
    }
    vf_store(sums, total);
}

/* Like weigh_tile. */
SIMD_INLINE void weigh_pairs_tile(const struct attention_tile *tile, int32_t row,
                                  const int num_rows, const void *const *v, struct seen seen,
                                  const bool decay, const bool parts, int32_t column,
                                  const int num_columns, const bool half) {
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
    for (int32_t t = seen.first / 2 * 2; t < seen.end; t += 2) {
        size_t index = (size_t)(t % KV_GROUP) * (size_t)tile->value_dim + 2 * (size_t)column;
        struct vi values[VF_COLUMN_TILE];
        UNROLL
        for (int c = 0; c < num_columns; c++) {
            const uint16_t *p = (const uint16_t *)v[t / KV_GROUP] + index + 32 * c;
            values[c] = half ? vi_load_half(p) : vi_load(p);
            if (parts && t < seen.first)
                values[c] = vi_and(values[c], vi_set1((int32_t)0xffff0000));
            if (parts && t + 1 == seen.end)
                values[c] = vi_and(values[c], vi_set1(0x0000ffff));
        }
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vi weight = load_quad(weights + r * ATTENTION_STEP + t / 2);
            UNROLL
            for (int c = 0; c < num_columns; c++)
                acc[r][c] = vf_dot_pairs(acc[r][c], values[c], weight);
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
