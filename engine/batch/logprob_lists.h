/* The tokens whose logprobs a step's rows report in addition to the likeliest ones
 * (sample_row.num_listed): the tokens that a request names, or the whole vocabulary if a request
 * wants more than SAMPLE_MAX_LOGPROBS, of which the sample op may then rank the wanted ones. Engine
 * thread only. */
#ifndef QUIRE_ENGINE_BATCH_LOGPROB_LISTS_H
#define QUIRE_ENGINE_BATCH_LOGPROB_LISTS_H

#include "config/serving_limits.h"
#include "engine/request/sampling_params.h"

#include <stddef.h>

struct logprob_lists {
    const struct serving_limits *limits;
    int32_t *tokens; /* the vocabulary, if there is room for its lists; then the rows' own tokens.
                        Owned by the caller */
    int32_t num_tokens;    /* in use */
    const int32_t *latest; /* the request's tokens that were copied most recently; NULL: none */
    int64_t num_logprobs;  /* number of logprobs that the rows list */
};

/* Return the maximum number of logprobs that all rows of a step list, and that one row lists. */
size_t logprob_lists_max_of_step(const struct serving_limits *limits);
size_t logprob_lists_max_of_row(const struct serving_limits *limits);
/* Returns the bytes that the events of a step may add to streams for these lists; the streams'
 * buffers double. */
size_t logprob_lists_event_bytes(const struct serving_limits *limits);

/* Returns the maximum number of tokens in all lists of a step. */
size_t logprob_lists_max_tokens(const struct serving_limits *limits);
/* The limits and the tokens, room for that many, outlive the lists. */
void logprob_lists_init(struct logprob_lists *lists, const struct serving_limits *limits,
                        int32_t *tokens);
/* Called before the first row of a step. */
void logprob_lists_clear(struct logprob_lists *lists);

/* Gives the row its list, if it needs one: for the tokens that its request names, or for
 * num_logprobs. The rows of a sequence are added consecutively, with the same array. */
void logprob_lists_add(struct logprob_lists *lists, const int32_t *tokens, int32_t num_tokens,
                       struct sample_row *row);

#endif
