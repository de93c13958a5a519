/* Beam search: finds the `width` most probable continuations of a prompt, step by step. Pure
 * bookkeeping on log probabilities; knows no block, no text and no stream.
 *
 * The rules are those of Transformers (GenerationMixin._beam_search, version 5): of all one-token
 * continuations of the running beams the best are chosen by their sum of log probabilities. Those
 * with an end token are finished if they are among the best `width`; the best `width` others
 * continue. A finished beam's score is its sum divided by (generated tokens, the end included) to
 * the power of length_penalty. The finished ones kept are the best `width` by score.
 *
 * Equal sums: the lower slot first, within a slot the order of its row. A log probability of NaN
 * counts as -INFINITY. Sums are doubles; those of Transformers are floats, so beams whose sums
 * differ only by rounding may be ordered differently.
 *
 * BEAM SLOTS are numbers 0..width-1; each running beam is in one, and the caller keeps its tokens'
 * blocks. Engine thread only. */
#ifndef QUIRE_ENGINE_SEQUENCE_BEAM_SEARCH_H
#define QUIRE_ENGINE_SEQUENCE_BEAM_SEARCH_H

#include "engine/request/sampling_params.h"
#include "engine/request/token_stream.h"

#include <stdbool.h>
#include <stdint.h>

struct beam_params {
    int32_t width;
    int32_t max_tokens;    /* generated tokens at which everything ends */
    int32_t min_tokens;    /* no end token before that many, unless there is nothing else */
    double length_penalty; /* finite */
    enum early_stopping early_stopping;
    int32_t num_logprobs;      /* kept for each token: -1 none; 0..SAMPLE_MAX_LOGPROBS */
    const int32_t *end_tokens; /* the caller's, outlives the search; distinct */
    int32_t num_end_tokens;    /* width + num_end_tokens <= BEAM_MAX_CANDIDATES */
};

struct beam_search;

/* Begins with one beam, in slot 0. Returns NULL when memory is short. */
struct beam_search *beam_search_create(const struct beam_params *params);
void beam_search_destroy(struct beam_search *search); /* accepts NULL */

/* Returns how many logprobs a sample row must bring: the most probable width + num_end_tokens, and
 * no fewer than were requested. */
int32_t beam_search_num_candidates(const struct beam_params *params);
/* Takes the row for the next token of the running beam in that slot; a second row replaces the
 * first. Its `token` is ignored. If the vocabulary has fewer tokens than candidates, the row has
 * all. */
void beam_search_set_row(struct beam_search *search, int32_t slot, const struct sample_output *row);
/* Returns whether every running beam has its row. */
bool beam_search_is_ready(const struct beam_search *search);

/* What happens to a slot. */
struct beam_move {
    int32_t from;  /* the slot whose tokens it continues; -1: nothing runs in it any more */
    int32_t token; /* appended to them */
};

/* Takes one step, for which it is ready. Fills out[width]: a slot that is continued at all is
 * continued by itself (from == slot) for one of the beams, so that only ending slots are
 * overwritten. Returns 0; 1 when the search is over and there is no move; -1 when memory is short
 * (the search can then only be destroyed). */
int beam_search_advance(struct beam_search *search, struct beam_move *out);

/* One result. The pointers are valid until the next call, or the search's end. */
struct beam_hypothesis {
    const struct token_record *tokens; /* [num_tokens], the end token included */
    const struct top_logprob *top;     /* see token_record.first_top */
    int32_t num_tokens;
    int32_t num_top;
    double score;
    bool ended; /* by an end token; else by max_tokens */
};
/* Returns how many there are once the search is over: at least one, at most width (fewer only if
 * the vocabulary does not have that many continuations). */
int32_t beam_search_num_hypotheses(const struct beam_search *search);
/* Reads one of them; rank 0 is the best. Returns -1 when memory is short. */
int beam_search_hypothesis(struct beam_search *search, int32_t rank, struct beam_hypothesis *out);

#endif
