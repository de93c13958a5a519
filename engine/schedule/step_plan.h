/* The scheduler's decisions for one step: which sequences, and how many pending tokens and drafts
 * of each. The blocks for them are already in the sequences' tables; the necessary moves are in the
 * block manager's lists. */
#ifndef QUIRE_ENGINE_SCHEDULE_STEP_PLAN_H
#define QUIRE_ENGINE_SCHEDULE_STEP_PLAN_H

#include "engine/schedule/step_cost.h"
#include "engine/sequence/sequence_group.h"

struct planned_sequence {
    struct sequence *sequence;
    int32_t begin;      /* position of the first token to be computed */
    int32_t num_tokens; /* >= 1, drafts included */
    int32_t num_drafts;
    bool samples; /* the token after them is sampled, and one after each draft */

    /* Known tokens of the sequence that the draft model computes before the step. With some, the
     * drafts are those that it then proposes (models/batch.h). */
    int32_t num_draft_inputs;
    int32_t draft_begin; /* position of the first */

    /* Written by batch/batch_builder.c: the entry's rows are first the scores of prompt tokens,
     * then the sequence's own samples, then one for each choice that forks from it. */
    int32_t first_row;
    int32_t num_scores;
    int32_t num_samples; /* 1 + num_drafts, or 0 */
    int32_t num_forks;
    int32_t hidden_sum;  /* index in the batch; -1: none */
    int32_t first_draft; /* index in the result's drafts; -1: they are in the batch */
};

struct step_plan {
    struct planned_sequence *entries; /* [num_entries], room for max_num_seqs */
    int32_t num_entries;
    int32_t num_tokens;       /* of all entries */
    int32_t num_draft_inputs; /* of all entries */
    struct step_work work;    /* of all entries */
    /* Groups that lost their blocks for this step. */
    int32_t num_swapped_out;
    int32_t num_dropped; /* to be recomputed */
};

#endif
