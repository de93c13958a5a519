/* Included by cpu_attention_template.h on a level that has vi_dot_int16: attention over a cache of
 * 16-bit floats in 16-bit fixed point, for the steps that a row sees completely; other steps are
 * those of cpu_attention_float_template.h. A step's K and V are made into codes once for all rows
 * of the tile:
 *
 *   K        14 bits, relative to the largest element of the token
 *   queries  16 bits at most, so that no score with such a K overflows 32 bits
 *   V        13 bits, relative to the largest element of its column in the step
 *   weights  13 bits and no sign, relative to the largest of the row in the step
 *
 * Products are then exact in integers. The roundings are about as large as those that f16 has made
 * in K and V, and smaller than those of bf16. The sum that divides the result is of the weights
 * before rounding. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_FIXED_TEMPLATE_H
#define QUIRE_KERNELS_CPU_LEVELS_OPS_CPU_ATTENTION_FIXED_TEMPLATE_H

#define FIXED_KEY_MAX 8191.0f
#define FIXED_VALUE_MAX 4095.0f
#define FIXED_WEIGHT_MAX 8191.0f /* 64 of them times values are below 2^31 */
/* The most for the sum of a query's magnitudes: times FIXED_KEY_MAX 2^31, less what rounding adds
 * to KV_MAX_LATENT_ROW elements. */
#define FIXED_QUERY_SUM 261800.0f
#define FIXED_QUERY_MAX 32767.0f
#define FIXED_ROUNDER 0x1.8p23f /* a sum with it has the rounded number in its lower 16 bits */

/* Returns limit / x, but 0 where x is too small to divide by, or no number. */
SIMD_INLINE struct vf fixed_factor(struct vf x, float limit) {
    struct vf least = vf_set1(0x1p-100f);
    return vf_select_gt(x, least, vf_div(vf_set1(limit), vf_max(x, least)), vf_set1(0));
}

/* x has room for n rounded up to 32, which are zeroed. */
SIMD_INLINE void load_fixed_query(float *x, int32_t n, const struct attention_queries *out,
                                  int32_t row) {
    int16_t *codes = out->codes + (size_t)row * ATTENTION_QUERY_STRIDE;
    struct vf sum = vf_set1(0), largest = sum, zero = sum;
    for (int32_t i = n; i % 32 != 0; i++)
        x[i] = 0;
    for (int32_t i = 0; i < n; i += 16) {
        struct vf a = vf_load(x + i), size = vf_max(a, vf_sub(zero, a));
        sum = vf_add(sum, size);
        largest = vf_max(size, largest);
    }
    float total = vf_reduce_add(sum), peak = vf_reduce_max(largest);
    float factor = total > 0x1p-100f ? FIXED_QUERY_SUM / total : 0;
    if (peak * factor > FIXED_QUERY_MAX)
        factor = FIXED_QUERY_MAX / peak;
    struct vf scale = vf_set1(factor), rounder = vf_set1(FIXED_ROUNDER);
    for (int32_t i = 0; i < n; i += 32)
        vi_store(codes + i, vi_join_int16(vf_fma(vf_load(x + i), scale, rounder),
                                          vf_fma(vf_load(x + i + 16), scale, rounder)));
    out->scales[row] = factor > 0 ? 1 / factor : factor;
}

/* A vector of K or V as it is read: of f16, 16 numbers and those of the next element or token; of
 * bf16, 16 pairs of both. */
SIMD_INLINE void split_two(enum kv_type type, struct vi two, struct vf *even, struct vf *odd) {
    if (type == KV_BF16)
        vf_load_bf16_pairs(&two, even, odd);
    else
        vf_from_two_f16(two, even, odd);
}

/* `half`: 8 columns, and zeros. */
SIMD_INLINE struct vi load_columns(enum kv_type type, const uint16_t *v, size_t dim, size_t column,
                                   const bool half) {
    if (type == KV_BF16)
        return half ? vi_load_half(v + 2 * column) : vi_load(v + 2 * column);
    return vi_load_two(v + column, v + dim + column, half);
}

/* Returns the largest of both numbers of each lane, NaN if one is none. */
SIMD_INLINE struct vf largest_of_two(enum kv_type type, struct vi sizes) {
    struct vf even, odd;
    split_two(type, sizes, &even, &odd);
    struct vf sum = vf_add(even, odd);
    return vf_add(vf_max(even, odd), vf_sub(sum, sum));
}

/* Two numbers of each lane in fixed point. */
SIMD_INLINE struct vi fix_two(enum kv_type type, struct vi two, struct vf factor) {
    const struct vf rounder = vf_set1(FIXED_ROUNDER);
    struct vf even, odd;
    split_two(type, two, &even, &odd);
    return vi_pair_int16(vf_fma(even, factor, rounder), vf_fma(odd, factor, rounder));
}

/* Makes the codes of a step's K, [head_dim / 2][tokens][2], and the tokens' scales. */
SIMD_INLINE void fix_keys(enum kv_type type, const struct attention_tile *tile,
                          int32_t first_group) {
    const struct vi size = vi_set1(0x7fff7fff);
    const size_t group_bytes = (size_t)tile->head_dim * KV_GROUP * sizeof(uint16_t);
    for (int g = 0; g < ATTENTION_STEP_GROUPS; g++) {
        const char *k = tile->k[first_group + g];
        const char *next = tile->k[first_group + g + ATTENTION_STEP_GROUPS];
        int32_t *codes = tile->fixed.keys + g * KV_GROUP;
        struct vi sizes = vi_set1(0);
        for (size_t at = 0; at < group_bytes; at += 64)
            sizes = vi_max_uint16(vi_and(vi_load(k + at), size), sizes);
        struct vf largest = largest_of_two(type, sizes);
        struct vf factor = fixed_factor(largest, FIXED_KEY_MAX);
        vf_store(tile->fixed.key_scales + g * KV_GROUP,
                 vf_mul(largest, vf_set1(1 / FIXED_KEY_MAX)));
        for (size_t at = 0; at < group_bytes; at += 64, codes += ATTENTION_STEP) {
            __builtin_prefetch(next + at, 0, 2);
            vi_store(codes, fix_two(type, vi_load(k + at), factor));
        }
    }
}

/* Makes the codes of 16 columns of a step's V, [tokens / 2][stride][2], and their scales. As much
 * of the next step's is prefetched. */
SIMD_INLINE void fix_columns(enum kv_type type, const struct attention_tile *tile,
                             int32_t first_group, int32_t column, const bool half) {
    const struct vi size = vi_set1(0x7fff7fff);
    const void *const *v = tile->v + first_group;
    const size_t dim = (size_t)tile->value_dim, stride = (size_t)tile->stride;
    const size_t at = (size_t)column, line = at * KV_GROUP * sizeof(uint16_t);
    int32_t *codes = tile->fixed.values + column;
    struct vi sizes = vi_set1(0);
    for (int g = 0; g < ATTENTION_STEP_GROUPS; g++) {
        const uint16_t *p = v[g];
        UNROLL
        for (int t = 0; t < KV_GROUP; t += 2, p += 2 * dim)
            sizes = vi_max_uint16(vi_and(load_columns(type, p, dim, at, half), size), sizes);
    }
    struct vf largest = largest_of_two(type, sizes);
    struct vf factor = fixed_factor(largest, FIXED_VALUE_MAX);
    vf_store(tile->fixed.value_scales + column, vf_mul(largest, vf_set1(1 / FIXED_VALUE_MAX)));
    for (int g = 0; g < ATTENTION_STEP_GROUPS; g++) {
        const uint16_t *p = v[g];
        const char *next = (const char *)v[g + ATTENTION_STEP_GROUPS] + line;
        UNROLL
        for (int t = 0; t < KV_GROUP; t += 2, p += 2 * dim, codes += stride) {
            __builtin_prefetch(next + 32 * t, 0, 2);
            vi_store(codes, fix_two(type, load_columns(type, p, dim, at, half), factor));
        }
    }
}

SIMD_INLINE void fix_values(enum kv_type type, const struct attention_tile *tile,
                            int32_t first_group) {
    int32_t column = 0;
    for (; column + 16 <= tile->value_dim; column += 16)
        fix_columns(type, tile, first_group, column, false);
    if (column < tile->value_dim)
        fix_columns(type, tile, first_group, column, true);
}

SIMD_INLINE void score_fixed_tile(enum kv_type type, const struct attention_tile *tile, int32_t row,
                                  const int num_rows, const int32_t *keys) {
    struct vi acc[VF_ROW_TILE][VF_GROUP_TILE];
    const int16_t *q = tile->queries.codes + (size_t)row * ATTENTION_QUERY_STRIDE;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int g = 0; g < ATTENTION_STEP_GROUPS; g++)
            acc[r][g] = vi_set1(0);
    }
    for (int32_t d = 0; d < tile->head_dim; d += 2, keys += ATTENTION_STEP) {
        struct vi key[ATTENTION_STEP_GROUPS];
        UNROLL
        for (int g = 0; g < ATTENTION_STEP_GROUPS; g++)
            key[g] = vi_load(keys + g * KV_GROUP);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vi query = load_quad(q + r * ATTENTION_QUERY_STRIDE + d);
            UNROLL
            for (int g = 0; g < ATTENTION_STEP_GROUPS; g++)
                acc[r][g] = vi_dot_int16(acc[r][g], key[g], query);
        }
    }
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        struct vf scale = vf_set1(tile->queries.scales[row + r]), largest = vf_set1(-INFINITY);
        UNROLL
        for (int g = 0; g < ATTENTION_STEP_GROUPS; g++) {
            struct vf scales = vf_mul(vf_load(tile->fixed.key_scales + g * KV_GROUP), scale);
            struct vf x = vf_mul(vf_from_vi(acc[r][g]), scales);
            largest = vf_max(x, largest);
            vf_store(scores + r * ATTENTION_STEP + g * KV_GROUP, x);
        }
        tile->peaks[row + r] = vf_reduce_max(largest);
    }
}

/* Like raise_maxima; `factors` become what the step's sums are to be multiplied by. */
SIMD_INLINE void raise_fixed_maxima(const struct attention_tile *tile, int32_t num_rows) {
    raise_maxima(tile, num_rows);
    for (int32_t r = 0; r < num_rows; r += ATTENTION_ROW_STEP) {
        struct vf below = vf_sub(vf_load(tile->peaks + r), vf_load(tile->state.max + r));
        vf_store(tile->fixed.factors + r,
                 vf_mul(exp2_weight(below, false), vf_set1(1 / FIXED_WEIGHT_MAX)));
    }
}

/* FIXED_WEIGHT_MAX 2^x for x <= 0, at least for x = -100, which NaN counts as. The relative error
 * is below 2^-17. */
SIMD_INLINE struct vf exp2_fixed(struct vf x) {
    static const float c[] = {0x1.62e2d2p-1f, 0x1.ebfb3ep-3f, 0x1.c96d5ep-5f, 0x1.3c6e5cp-7f};
    const struct vf rounder = vf_set1(FIXED_ROUNDER);
    x = vf_max(x, vf_set1(-100));
    struct vf shifted = vf_add(x, rounder);
    struct vf r = vf_sub(x, vf_sub(shifted, rounder));
    struct vf p = vf_set1(c[3] * FIXED_WEIGHT_MAX);
    UNROLL
    for (int i = 2; i >= 0; i--)
        p = vf_fma(p, r, vf_set1(c[i] * FIXED_WEIGHT_MAX));
    return vf_add_exponent(vf_fma(p, r, vf_set1(FIXED_WEIGHT_MAX)), shifted);
}

/* Turns a row's scores into codes of weights at the beginning of the scores' memory. */
SIMD_INLINE void soften_fixed(const struct attention_tile *tile, int32_t row) {
    float *scores = tile->scores + (size_t)row * ATTENTION_STEP, *sums = tile->sums + row * 16;
    const struct vf peak = vf_set1(tile->peaks[row]), rounder = vf_set1(FIXED_ROUNDER);
    struct vf p[ATTENTION_STEP_GROUPS], codes[ATTENTION_STEP_GROUPS];
    UNROLL
    for (int g = 0; g < ATTENTION_STEP_GROUPS; g++) {
        p[g] = exp2_fixed(vf_sub(vf_load(scores + g * KV_GROUP), peak));
        codes[g] = vf_add(p[g], rounder);
    }
    struct vf sum = vf_add(vf_add(p[0], p[1]), vf_add(p[2], p[3]));
    struct vf before = vf_mul(vf_load(sums), vf_set1(tile->decays[row]));
    vf_store(sums, vf_fma(sum, vf_set1(tile->fixed.factors[row]), before));
    vi_store(scores, vi_join_int16(codes[0], codes[1]));
    vi_store(scores + 16, vi_join_int16(codes[2], codes[3]));
}

/* out = out x decays + weights x V x factors. */
SIMD_INLINE void weigh_fixed_tile(const struct attention_tile *tile, int32_t row,
                                  const int num_rows, const int32_t *values, int32_t column,
                                  const int num_columns) {
    struct vi acc[VF_ROW_TILE][VF_COLUMN_TILE];
    const float *weights = tile->scores + (size_t)row * ATTENTION_STEP;
    float *out = tile->state.out + (size_t)row * (size_t)tile->stride + column;
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        UNROLL
        for (int c = 0; c < num_columns; c++)
            acc[r][c] = vi_set1(0);
    }
    for (int32_t t = 0; t < ATTENTION_STEP / 2; t++, values += tile->stride) {
        struct vi value[VF_COLUMN_TILE];
        UNROLL
        for (int c = 0; c < num_columns; c++)
            value[c] = vi_load(values + 16 * c);
        UNROLL
        for (int r = 0; r < num_rows; r++) {
            struct vi weight = load_quad(weights + r * ATTENTION_STEP + t);
            UNROLL
            for (int c = 0; c < num_columns; c++)
                acc[r][c] = vi_dot_int16(acc[r][c], value[c], weight);
        }
    }
    UNROLL
    for (int r = 0; r < num_rows; r++) {
        struct vf decay = vf_set1(tile->decays[row + r]);
        struct vf factor = vf_set1(tile->fixed.factors[row + r]);
        UNROLL
        for (int c = 0; c < num_columns; c++) {
            float *p = out + r * tile->stride + 16 * c;
            struct vf scales = vf_load(tile->fixed.value_scales + column + 16 * c);
            struct vf sum = vf_mul(vf_from_vi(acc[r][c]), scales);
            vf_store(p, vf_fma(sum, factor, vf_mul(vf_load(p), decay)));
        }
    }
}

SIMD_INLINE void weigh_fixed_rows(enum kv_type type, const struct attention_tile *tile, int32_t row,
                                  const int num_rows, const int32_t *values) {
    int32_t c = 0;
    for (; c + 16 * VF_COLUMN_TILE <= tile->stride; c += 16 * VF_COLUMN_TILE)
        weigh_fixed_tile(tile, row, num_rows, values + c, c, VF_COLUMN_TILE);
    for (; c < tile->stride; c += 16)
        weigh_fixed_tile(tile, row, num_rows, values + c, c, 1);
}

/* Like attend_whole. */
SIMD_INLINE void attend_fixed(enum kv_type type, const struct attention_tile *tile,
                              int32_t num_rows, int32_t first_group) {
    const struct seen all = {0, ATTENTION_STEP};
    fix_keys(type, tile, first_group);
    FOR_ROW_TILES(num_rows, score_fixed_tile, tile->fixed.keys);
    for (int32_t r = 0; tile->soft_cap > 0 && r < num_rows; r++) {
        cap_row(tile, r, all);
        tile->peaks[r] = largest_score(tile, r, all, true);
    }
    raise_fixed_maxima(tile, num_rows);
    for (int32_t r = 0; r < num_rows; r++)
        soften_fixed(tile, r);
    fix_values(type, tile, first_group);
    FOR_ROW_TILES(num_rows, weigh_fixed_rows, tile->fixed.values);
}

#endif
