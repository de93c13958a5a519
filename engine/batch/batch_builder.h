/* Builds the batch of a step from its plan, and records which sequence each sample row belongs to.
 * Engine thread only. */
#ifndef QUIRE_ENGINE_BATCH_BATCH_BUILDER_H
#define QUIRE_ENGINE_BATCH_BATCH_BUILDER_H

#include "engine/batch/dry_penalty.h"
#include "engine/batch/step.h"
#include "engine/kv/block_manager.h"

struct grammar_vocabulary;

struct batch_builder {
    const struct serving_limits *limits;
    const struct tokenizer *tokenizer;
    const struct grammar_vocabulary *vocabulary;
    int64_t mask_budget; /* maximum cost of a step's masks, in the unit of grammar_state_try_mask */
    int64_t mask_left;   /* what is left of it in this step */
    int32_t num_drafts;  /* of the draft model, in this step so far */
    uint32_t *scratch_mask;
    struct dry_scratch dry;
};

/* The limits, the tokenizer and the vocabulary outlive the builder; without a vocabulary no request
 * has a grammar. The cost of masks is unlimited until mask_budget is set. Returns -1 when memory is
 * short. */
int batch_builder_init(struct batch_builder *builder, const struct serving_limits *limits,
                       const struct tokenizer *tokenizer,
                       const struct grammar_vocabulary *vocabulary);
size_t batch_builder_bytes(const struct serving_limits *limits); /* what it allocates */
void batch_builder_finish(struct batch_builder *builder);        /* accepts a zeroed one */

/* Builds the batch of step->plan, with the manager's block moves, and the rows of its entries
 * (step_plan.h). A sequence with POOLING_MEAN gets a hidden sum in every step; one with
 * POOLING_LAST only in the step of its last token.
 *
 * A token that a step in flight still samples is referred to by its row in that step. If the inputs
 * of sampling depend on such a token, they are left out for the whole step: the batch then has late
 * inputs, and step->awaits_supply is set.
 *
 * A row whose mask costs more than what is left of the step's budget, or more than a quarter of the
 * budget, gets no mask: what is sampled there is not used (step_num_accepted), and a job finds the
 * mask (grammar_job.h). */
void batch_builder_build(struct batch_builder *builder, struct step *step,
                         const struct block_manager *blocks);

/* Fills in the late inputs, once no step before this one is in flight. */
void batch_builder_supply(struct batch_builder *builder, struct step *step);

#endif
