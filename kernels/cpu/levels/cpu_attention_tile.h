/* Private to kernels/cpu: what cpu_attention.c passes to the inner loops of attention (`attention`
 * and `attention_merge` of cpu_op_kernels.h, written in cpu_attention_template.h), and in which
 * portions. */
#ifndef QUIRE_KERNELS_CPU_LEVELS_CPU_ATTENTION_TILE_H
#define QUIRE_KERNELS_CPU_LEVELS_CPU_ATTENTION_TILE_H

#include "kernels/cpu/levels/cpu_op_kernels.h"

/* Attention processes a context in chunks of this number of tokens, which start at its multiples,
 * and within a chunk in steps of ATTENTION_STEP. It always does so, so that a row's result has the
 * same bits in every batch. */
#define ATTENTION_CHUNK 256
#define ATTENTION_STEP 64
#define ATTENTION_CHUNK_GROUPS (ATTENTION_CHUNK / KV_GROUP)
#define ATTENTION_STEP_GROUPS (ATTENTION_STEP / KV_GROUP)

/* Scores are in units of ln 2 from the queries on, so that weights are powers of 2. */
#define ATTENTION_LOG2E 0x1.715476p0f

/* Rows are processed in steps of this number; arrays with a float per row have room for the rows
 * rounded up to it, and state.max for as many more. */
#define ATTENTION_ROW_STEP 16

/* Softmax over a part of a context, not yet divided: for each row the largest score, the sum of
 * 2^(score - largest) and the sum of those times V. A row of `out` is `stride` floats. */
struct attention_state {
    float *max;
    float *sum;
    float *out;
};

/* Elements from one query row to the next. It is constant, so that addressing a tile's rows takes
 * one register, and not a multiple of many cache lines, whose rows would compete for the same cache
 * sets. */
#define ATTENTION_QUERY_STRIDE (KV_MAX_LATENT_ROW + 16)

/* Query rows in the form that `load_query` writes: floats; or bf16 if they are multiplied with the
 * cache in pairs; or, for an int8 cache, codes, each row's scale, and the term that compensates the
 * bias of K's codes: -KV_CODE_BIAS times the sum of the row's codes. */
struct attention_queries {
    void *rows; /* [rows][ATTENTION_QUERY_STRIDE] */
    float *scales;
    int32_t *starts;
    float *terms;   /* [rows][ATTENTION_MAX_TERMS]: u and v of load_terms for each pair */
    int16_t *codes; /* [rows][ATTENTION_QUERY_STRIDE]: where attention is in fixed point */
};

/* A step's K and V in 16-bit fixed point: scratch. */
struct attention_fixed {
    int32_t *keys;       /* [head_dim / 2][ATTENTION_STEP] pairs */
    int32_t *values;     /* [ATTENTION_STEP / 2][stride] pairs */
    float *key_scales;   /* [ATTENTION_STEP] */
    float *value_scales; /* [stride] */
    float *factors;      /* of each row */
};

#define ATTENTION_MAX_TERMS (2 * KEY_BIAS_MAX_PAIRS)

/* One chunk of one sequence's context for a tile of query tokens and the query heads of one KV
 * head. Row r = token * num_heads + head; token t sees the last `window` of the first
 * first_length + t tokens. */
struct attention_tile {
    int32_t head_dim;  /* a multiple of 8, at most KV_MAX_LATENT_ROW */
    int32_t value_dim; /* likewise */
    int32_t stride;    /* value_dim rounded up to 16 */
    int32_t num_heads;
    int32_t num_tokens;
    int32_t first_length;
    int32_t window; /* INT32_MAX: no limit */
    int32_t chunk_begin;
    float soft_cap; /* cap of the scaled scores, which are then in units of 1; 0: none */
    /* The chunk's groups and the step's after it. Those without visible tokens are only prefetched
     * from: any address, best of what is attended next. */
    const void *k[ATTENTION_CHUNK_GROUPS + ATTENTION_STEP_GROUPS];
    const void *v[ATTENTION_CHUNK_GROUPS + ATTENTION_STEP_GROUPS];
    /* The 16 scales of each group if the type has scales; otherwise NULL. */
    const float *k_scales[ATTENTION_CHUNK_GROUPS + ATTENTION_STEP_GROUPS];
    const float *v_scales[ATTENTION_CHUNK_GROUPS + ATTENTION_STEP_GROUPS];
    /* The bias that the head's keys lack, and the rotations applied to it; NULL: none. */
    const struct key_bias *key_bias;
    const struct key_biases *turning;
    struct attention_queries queries;
    float *scores;         /* [rows][ATTENTION_STEP]: scratch */
    float *sums;           /* [rows][16]: scratch */
    float *peaks, *decays; /* of each row: scratch */
    struct attention_fixed fixed;
    struct attention_state state;
};

#endif
