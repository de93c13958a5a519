/* Turns the rows of a step's result into stream events: appends tokens, detokenizes them, and
 * decides whether a choice has ended. It knows neither the scheduler nor the pool.
 *
 * An event that was pushed is never pushed again: a sequence recomputed after preemption only
 * rebuilds keys and values. Engine thread only. */
#ifndef QUIRE_ENGINE_CORE_STEP_OUTPUT_H
#define QUIRE_ENGINE_CORE_STEP_OUTPUT_H

#include "engine/batch/logprob_lists.h"
#include "engine/sequence/sequence_group.h"
#include "models/batch.h"
#include "models/tokenizer/tokenizer.h"

/* Rows of a step: what was requested, and the results. */
struct step_rows {
    const struct sample_row *requested;
    const struct sample_output *outputs;
    int32_t count;
    const int32_t *listed; /* of the batch */
    const float *listed_logprobs;
};

struct step_output {
    const struct tokenizer *tokenizer;
    struct token_record *records; /* [max_num_batched_tokens + 1] */
    struct top_logprob *top;      /* [max_top] of one event; room for all that one row may list */
    size_t max_top;
};

/* Returns -1 when memory is short. */
int step_output_init(struct step_output *output, const struct tokenizer *tokenizer,
                     const struct serving_limits *limits);
size_t step_output_bytes(const struct serving_limits *limits); /* what it allocates */
void step_output_finish(struct step_output *output);           /* accepts a zeroed one */

/* Pushes the scores of choice 0's next prompt tokens (and the first token, which has no score), in
 * as many events as needed. Returns -1 when memory is short. */
int step_output_scores(struct step_output *output, struct sequence *sequence,
                       const struct step_rows *rows);

/* Pushes how much of the prompt is computed. Returns -1 when memory is short. */
int step_output_progress(struct step_output *output, struct sequence *sequence);

/* Appends the token sampled in that row and pushes its event, whose finish becomes
 * sequence->finish. Returns -1 when sequence_append fails or memory is short: the sequence cannot
 * continue. */
int step_output_token(struct step_output *output, struct sequence *sequence,
                      const struct step_rows *rows, int32_t row);

/* Pushes the embedding of a sequence whose prompt is computed: *sum, turned into a mean if that was
 * requested. Sets sequence->finish. Returns -1 when memory is short. */
int step_output_embedding(struct step_output *output, struct sequence *sequence, float *sum,
                          int32_t hidden_size);

/* Pushes the last event of a sequence that ends without a new token, with sequence->finish. Returns
 * -1 when memory is short; the caller tries again. */
int step_output_end(struct step_output *output, struct sequence *sequence);

#endif
