/* The sizes by which every layer allocates and checks. There is one struct per server.
 * engine/executor/sizing.h chooses what the options leave open while the executor starts. From then
 * on it is const, and each layer keeps a pointer to it; its owner outlives them all. Only a backend
 * keeps a copy, because it is opened first; it does not read the numbers of blocks. */
#ifndef QUIRE_CONFIG_SERVING_LIMITS_H
#define QUIRE_CONFIG_SERVING_LIMITS_H

#include "config/base/numbers.h"

#include <stdint.h>

/* Maximum of serving_limits.num_speculative_tokens. */
#define MAX_SPECULATIVE_TOKENS 16

struct serving_limits {
    int32_t max_num_seqs;           /* sequences in a step: the running slots */
    int32_t max_num_batched_tokens; /* tokens of a step; >= max_num_seqs */
    int32_t max_logit_rows;         /* rows of logits computed at a time; a step may have more */
    int32_t max_model_len;          /* tokens of a sequence, prompt plus output */
    int32_t num_speculative_tokens; /* maximum number of drafts of a sequence in a step; 0: none */
    int32_t max_logprobs;           /* per token; above SAMPLE_MAX_LOGPROBS: the whole vocabulary */
    int32_t block_size;             /* tokens of a KV block */
    int32_t num_blocks;             /* of the KV block pool; num_blocks * block_size fits 31 bits */
    int32_t num_host_blocks;        /* of the host block pool; 0: nothing is swapped out */

    /* Set by the model. */
    int32_t vocab_size;
    int32_t hidden_size; /* dimensions of an embedding */
    int32_t window; /* every layer attends to at most this many tokens back; 0: some layers attend
                       to all */
};

/* Returns how many blocks the longest sequence takes. */
static inline int32_t serving_limits_max_blocks(const struct serving_limits *limits) {
    return limits->max_model_len / limits->block_size +
           (limits->max_model_len % limits->block_size != 0);
}

/* Returns the maximum number of rows of a step that sample: one per sequence, and one after each
 * draft.
 */
static inline int32_t serving_limits_max_sampled(const struct serving_limits *limits) {
    int64_t most = (int64_t)limits->max_num_seqs * (1 + (int64_t)limits->num_speculative_tokens);
    int64_t computed = (int64_t)limits->max_num_seqs + limits->max_num_batched_tokens;
    return (int32_t)(most < computed ? most : computed);
}

/* Returns how many different tokens a sequence can have. */
static inline int32_t serving_limits_max_distinct(const struct serving_limits *limits) {
    return min_int32(limits->max_model_len, limits->vocab_size);
}

/* Returns the maximum number of token counts of a step's rows: one for each distinct token that a
 * sequence can have, and twice as many with drafts, whose number is limited so that their rows'
 * counts fit (sampling_inputs_max_drafts). */
static inline size_t serving_limits_max_counts(const struct serving_limits *limits) {
    size_t of_each = (size_t)serving_limits_max_distinct(limits);
    return (size_t)limits->max_num_seqs * of_each * (limits->num_speculative_tokens > 0 ? 2 : 1);
}

/* Returns the maximum number of sample rows of a step: each computed token may be scored or
 * followed by a sampled one, and each sequence may fork. */
static inline int32_t serving_limits_max_sample_rows(const struct serving_limits *limits) {
    return limits->max_num_batched_tokens + limits->max_num_seqs;
}

#endif
