/* Private to kernels/cpu: the inner loops of every op except the matrix product, in a table that
 * instruction-set levels fill (cpu_levels.h). All pointers are to the caller's memory; nothing here
 * allocates or knows about threads.
 *
 * The KV cache. A head's K in one block is kept transposed in groups of 16 tokens, so that the
 * scores of 16 tokens are one vector. For types that an instruction multiplies in pairs or fours,
 * these elements are adjacent, along head_dim in K and along the tokens in V:
 *   K   [token / 16][head_dim / pack][16][pack]
 *   V   [token / pack][head_dim][pack]
 * A group of either is KV_GROUP * head_dim elements and never crosses a block. Of a latent layout
 * only K exists; attention makes V of the chunk that it is at. K's int8 codes are
 * kept with KV_CODE_BIAS added, as unsigned bytes.
 */
#ifndef QUIRE_KERNELS_CPU_LEVELS_CPU_OP_KERNELS_H
#define QUIRE_KERNELS_CPU_LEVELS_CPU_OP_KERNELS_H

#include "kernels/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_GROUP KV_TOKEN_STEP

/* Number of groups among which a row's logits are distributed in turn. */
#define SAMPLE_GROUPS 16

/* Number of adjacent elements (pack). */
#define KV_PACK(type) ((type) == KV_INT8 ? 4 : (type) == KV_BF16 ? 2 : 1)
#define KV_CODE_BIAS 128

/* cpu_attention_tile.h */
struct attention_queries;
struct attention_tile;
struct attention_state;

/* Attention with a cache of one type. */
struct cpu_attention_kernels {
    /* Makes query row `row` from the n elements at src times factor. */
    void (*load_query)(const float *src, float factor, int32_t n,
                       const struct attention_queries *out, int32_t row);
    /* Computes tile->state for the tile's chunk from scratch. */
    void (*attend)(const struct attention_tile *tile);
    const char *numerics; /* of its bits; NULL: the common ones */
};

/* A token that may still be sampled. */
struct sample_candidate {
    double weight; /* exp((logit - max) / temperature), a multiple of 2^-34 */
    float logit;
    int32_t token;
};

/* What the weights of a row are relative to. */
struct sample_scale {
    float max;
    float temperature;
};

struct cpu_op_kernels {
    /* Normalises one group of args->x into its place in args->out. */
    void (*norm)(const struct norm_args *args, const float *x, float *out);
    /* The parts of a norm, for a rank that has only a part of the group. */
    float (*sum_squares)(const float *x, int32_t n);
    void (*norm_scale)(const struct norm_args *args, const float *x, float *out, float factor);
    /* One row. */
    void (*act_mul)(enum activation activation, const float *gate, const float *up, float *out,
                    int32_t n);
    void (*soft_cap)(float *x, int64_t n, float cap);
    /* Rotates the pairs of one head, num_pairs of them. */
    void (*rotate_pairs)(float *head, const float *cosines, const float *sines, int32_t num_pairs);
    void (*rotate_halves)(float *head, const float *cosines, const float *sines, int32_t num_pairs);
    /* Stores one token's n elements of a head, like kv_row_from_f32; n is a multiple of 16, or 8
     * more. */
    void (*store)(enum kv_type type, const float *src, void *dst, float *scale, int32_t n);

    struct cpu_attention_kernels attention[NUM_KV_TYPES];
    /* total += part; a new total has max = -INFINITY and zeros. */
    void (*attention_merge)(int32_t num_rows, int32_t stride, const struct attention_state *part,
                            struct attention_state *total);

    /* Returns the largest logit except NaN, at most FLT_MAX; -INFINITY when there is none. */
    float (*max)(const float *logits, int32_t n);
    /* Finds the largest logit of each group except NaN; -INFINITY when there is none. */
    void (*group_max)(const float *logits, int32_t n, float out[static SAMPLE_GROUPS]);
    /* Returns the first index >= from whose logit is above the limit; n if there is none. */
    int32_t (*find_above)(const float *logits, int32_t from, int32_t n, float limit);
    int32_t (*count_above)(const float *logits, int32_t n, float limit);
    /* Sum of the weights: exact up to 2^18 tokens, so the same in any order. */
    double (*sum_weights)(const float *logits, int32_t n, struct sample_scale scale);
    /* Tokens first, first + 1, ... of `logits` with (logit - max) / temperature >= lowest, in id
     * order; returns their number. */
    int32_t (*collect)(const float *logits, int32_t first, int32_t n, struct sample_scale scale,
                       float lowest, struct sample_candidate *out);
};

#endif
