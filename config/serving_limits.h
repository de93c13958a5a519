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
    /* Layers that see the same tokens form groups: a KV block holds the layers of one, so that the
     * blocks of each are kept only as long as they are seen. Those that see all come first. */
    int32_t window;          /* layers of the others attend to at most this many tokens back; 0: all
                                layers attend to all */
    int32_t num_groups;      /* 0: one */
    int32_t num_full_groups; /* that see all; less than num_groups, and 0 if there is one group */
};

static inline int32_t serving_limits_groups(const struct serving_limits *limits) {
    return limits->num_groups > 0 ? limits->num_groups : 1;
}

/* Returns how many tokens back any layer sees; 0: some see all. */
static inline int32_t serving_limits_longest_window(const struct serving_limits *limits) {
    return limits->num_full_groups > 0 ? 0 : limits->window;
}

/* Returns how many blocks of a group hold num_tokens tokens. */
static inline int32_t blocks_for_tokens(int32_t num_tokens, int32_t block_size) {
    return num_tokens / block_size + (num_tokens % block_size != 0);
}

/* Returns how many blocks of a group the longest sequence has: the length of its block table. */
static inline int32_t serving_limits_max_blocks(const struct serving_limits *limits) {
    return blocks_for_tokens(limits->max_model_len, limits->block_size);
}

/* Returns how many blocks of a group with the window a sequence holds at most while up to num_new
 * tokens of it are computed, where there are other groups too; of one group, all are counted. A
 * window begins and ends anywhere in a block. */
static inline int32_t serving_limits_window_blocks(const struct serving_limits *limits,
                                                   int32_t num_new) {
    int64_t tokens = (int64_t)limits->window + num_new;
    int64_t blocks = tokens / limits->block_size + 2;
    return limits->num_full_groups > 0 && blocks < INT32_MAX ? (int32_t)blocks : INT32_MAX;
}

/* Returns how many blocks of all groups a sequence of num_tokens tokens holds at most. */
static inline int64_t serving_limits_blocks_for(const struct serving_limits *limits,
                                                int32_t num_tokens, int32_t num_new) {
    int32_t places = blocks_for_tokens(num_tokens, limits->block_size);
    int32_t seen = min_int32(places, serving_limits_window_blocks(limits, num_new));
    int64_t num_windowed = serving_limits_groups(limits) - limits->num_full_groups;
    return (int64_t)places * limits->num_full_groups + num_windowed * seen;
}

/* Returns the inverse: how many tokens of one sequence that many blocks hold. */
static inline int64_t serving_limits_tokens_in(const struct serving_limits *limits,
                                               int64_t num_blocks) {
    int64_t num_full = limits->num_full_groups, num_groups = serving_limits_groups(limits);
    int64_t places = num_blocks / num_groups;
    int64_t seen = serving_limits_window_blocks(limits, limits->max_num_batched_tokens);
    if (num_full > 0 && places > seen)
        places = (num_blocks - (num_groups - num_full) * seen) / num_full;
    return places * limits->block_size;
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
