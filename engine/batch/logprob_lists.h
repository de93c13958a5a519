/* The tokens whose logprobs a step's rows list besides the likeliest (sample_row.num_listed): those
 * that a request names, or the whole vocabulary, of which the sample op may rank what is wanted,
 * for one that wants more than SAMPLE_MAX_LOGPROBS. Engine thread only. */
#ifndef QUIRE_ENGINE_BATCH_LOGPROB_LISTS_H
#define QUIRE_ENGINE_BATCH_LOGPROB_LISTS_H

#include "config/serving_limits.h"
#include "engine/request/sampling_params.h"

#include <stddef.h>

struct logprob_lists {
    const struct serving_limits *limits;
    int32_t *tokens;       /* the vocabulary, if there is room for its lists; then those of rows.
                              The caller's */
    int32_t num_tokens;    /* in use */
    const int32_t *latest; /* the request's tokens that were copied last; NULL: none */
    int64_t num_logprobs;  /* that the rows list */
};

/* Logprobs that the rows of a step may list together, and those of one row. */
size_t logprob_lists_max_of_step(const struct serving_limits *limits);
size_t logprob_lists_max_of_row(const struct serving_limits *limits);
/* Returns what the events of a step may add to streams for them, whose buffers double. */
size_t logprob_lists_event_bytes(const struct serving_limits *limits);

/* Returns how many tokens all lists of a step have at most. */
size_t logprob_lists_max_tokens(const struct serving_limits *limits);
/* The limits and the tokens, room for that many, outlive the lists. */
void logprob_lists_init(struct logprob_lists *lists, const struct serving_limits *limits,
                        int32_t *tokens);
/* Before the rows of a step. */
void logprob_lists_clear(struct logprob_lists *lists);

/* Gives the row its list, if it needs one: for the tokens that its request names, or for
 * num_logprobs. The rows of a sequence are added one after the other, with the same array. */
void logprob_lists_add(struct logprob_lists *lists, const int32_t *tokens, int32_t num_tokens,
                       struct sample_row *row);

#endif
