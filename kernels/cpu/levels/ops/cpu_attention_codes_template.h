/* Included by cpu_attention_template.h: attention over an int8 cache. A query row is quantised like
 * the cache's rows. A row's weights of a step, times V's scales, are quantised to 0 .. 255 relative
 * to the largest of them. Both products are then exact in integers, and the rest uses unfused
 * operations: the same bits on every level. The sum that divides the result is that of the weights
 * before quantisation: in the weighted sum roundings cancel, but an error of the divisor would
 * affect the whole row. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_CODES_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_CODES_TEMPLATE_H

SIMD_INLINE void load_codes_query(const float *scaled, int32_t n,
                                  const struct attention_queries *out, int32_t row) {
    int8_t *codes = (int8_t *)out->rows + (size_t)row * ATTENTION_QUERY_STRIDE;
    int32_t sum = 0;
    store(KV_INT8, scaled, codes, &out->scales[row], n);
    for (int32_t i = 0; i < n; i++)
        sum += codes[i];
    out->starts[row] = -KV_CODE_BIAS * sum;
}

/* Like score_tile. */
SIMD_INLINE void score_codes_tile(const struct attention_tile *tile, int32_t row,
                                  const int num_rows, int32_t first_group, int32_t group,
                                  const int num_groups, const bool prefetch) {
    struct vi acc[VF_ROW_TILE][VF_GROUP_TILE];
    const int8_t *q = (const int8_t *)tile->queries.rows + (size_t)row * ATTENTION_QUERY_STRIDE;
    const void *const *k = tile->k + first_group + group;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int g = 0; g < num_groups; g++)
            acc[r][g] = vi_set1(tile->queries.starts[row + r]);
    }
    for (int32_t d = 0; d < tile->head_dim; d += 4) {
        struct vi keys[VF_GROUP_TILE];
        if (prefetch)
            prefetch_step(KV_INT8, tile, first_group + group, (size_t)d * KV_GROUP, num_groups);
        UNROLL
        for (int g = 0; g < num_groups; g++)
            keys[g] = vi_load((const uint8_t *)k[g] + (size_t)d * KV_GROUP);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vi query = load_quad(q + r * ATTENTION_QUERY_STRIDE + d);
            UNROLL
            for (int g = 0; g < num_groups; g++)
                acc[r][g] = vi_dot(acc[r][g], keys[g], query);
        }
    }
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP + group * KV_GROUP;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        struct vf scale = vf_set1(tile->queries.scales[row + r]);
        UNROLL
        for (int g = 0; g < num_groups; g++) {
            struct vf scales = vf_mul(vf_load(tile->k_scales[first_group + group + g]), scale);
            vf_store(scores + r * ATTENTION_STEP + g * KV_GROUP,
                     vf_mul(vf_from_vi(acc[r][g]), scales));
        }
    }
}

/* Returns whether a scale of the step's V is NaN. */
SIMD_INLINE bool is_spoilt(const struct attention_tile *tile, int32_t first_group) {
    struct vf check = vf_set1(0);
    for (int g = 0; g < ATTENTION_STEP_GROUPS; g++) {
        struct vf scales = vf_load(tile->v_scales[first_group + g]);
        check = vf_add(check, vf_sub(scales, scales));
    }
    return !(vf_reduce_add(check) == 0);
}

/* Turns the weights into codes in place, and `peaks` into the codes' factors. It is a separate
 * loop, so that the rows before it are processed in parallel. */
SIMD_INLINE void quantise_weights(const struct attention_tile *tile, int32_t num_rows) {
    float factors[ATTENTION_ROW_STEP];
    for (int32_t r = 0; r < num_rows; r++) {
        float *weights = tile->scores + (size_t)r * ATTENTION_STEP;
        if (r % ATTENTION_ROW_STEP == 0) {
            struct vf peaks = vf_load(tile->peaks + r), least = vf_set1(0x1p-118f);
            struct vf factor = vf_div(vf_set1(255), vf_max(peaks, least));
            vf_store(factors, vf_select_gt(peaks, least, factor, vf_set1(0)));
            vf_store(tile->peaks + r, vf_mul(peaks, vf_set1(1.0f / 255)));
        }
        struct vf factor = vf_set1(factors[r % ATTENTION_ROW_STEP]), x[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            x[i] = vf_mul(vf_load(weights + 16 * i), factor);
        vf_store_64_uint8((uint8_t *)weights, x);
    }
}

/* out = out x decays + codes of weights x codes of V x peaks over the step's tokens `seen`. */
SIMD_INLINE void weigh_codes_tile(const struct attention_tile *tile, int32_t row,
                                  const int num_rows, const void *const *v, struct seen seen,
                                  int32_t column, const int num_columns, const bool half) {
    struct vi acc[VF_ROW_TILE][VF_COLUMN_TILE];
    const uint8_t *codes = (const uint8_t *)(tile->scores + (size_t)row * ATTENTION_STEP);
    float *out = tile->state.out + (size_t)row * (size_t)tile->stride + column;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int c = 0; c < num_columns; c++)
            acc[r][c] = vi_set1(0);
    }
    for (int32_t t = seen.first / 4 * 4; t < seen.end; t += 4) {
        size_t index = (size_t)(t % KV_GROUP) * (size_t)tile->value_dim + 4 * (size_t)column;
        struct vi values[VF_COLUMN_TILE];
        UNROLL
        for (int c = 0; c < num_columns; c++) {
            const int8_t *p = (const int8_t *)v[t / KV_GROUP] + index + 64 * c;
            int8_t padded[64] = {0};
            if (half)
                memcpy(padded, p, sizeof(padded) / 2);
            values[c] = vi_load(half ? padded : p);
        }
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vi weight = load_quad(codes + (size_t)r * ATTENTION_STEP * sizeof(float) + t);
            UNROLL
            for (int c = 0; c < num_columns; c++)
                acc[r][c] = vi_dot(acc[r][c], weight, values[c]);
        }
    }
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        struct vf decay = vf_set1(tile->decays[row + r]), factor = vf_set1(tile->peaks[row + r]);
        UNROLL
        for (int c = 0; c < num_columns; c++) {
            float *p = out + r * tile->stride + 16 * c;
            vf_store(p, vf_add(vf_mul(vf_load(p), decay), vf_mul(vf_from_vi(acc[r][c]), factor)));
        }
    }
}

#endif
