/* Builds the batch of a step from its plan, and says whose each of its sample rows is. Engine
 * thread only. */
#ifndef QUIRE_ENGINE_BATCH_BUILDER_H
#define QUIRE_ENGINE_BATCH_BUILDER_H

#include "engine/batch/dry_penalty.h"
#include "engine/batch/step.h"
#include "engine/kv/block_manager.h"

struct grammar_vocabulary;

struct batch_builder {
    const struct serving_limits *limits;
    const struct tokenizer *tokenizer;
    const struct grammar_vocabulary *vocabulary;
    int64_t mask_budget; /* what the masks of a step may cost: grammar_state_try_mask */
    int64_t mask_left;   /* of this step's */
    uint32_t *scratch_mask;
    struct dry_scratch dry;
};

/* The limits, the tokenizer and the vocabulary outlive the builder; without a vocabulary no request
 * has a grammar. Masks cost whatever they cost until mask_budget is set. Returns -1 when memory is
 * short. */
int batch_builder_init(struct batch_builder *builder, const struct serving_limits *limits,
                       const struct tokenizer *tokenizer,
                       const struct grammar_vocabulary *vocabulary);
size_t batch_builder_bytes(const struct serving_limits *limits); /* what it allocates */
void batch_builder_finish(struct batch_builder *builder);        /* accepts a zeroed one */

/* Builds the batch of step->plan, with the manager's block moves, and the rows of its entries
 * (step_plan.h). A sequence with POOLING_MEAN has a hidden sum in every step, one with POOLING_LAST
 * in that of its last token.
 *
 * A token that a step in flight samples is named by its row there. Where the inputs of sampling
 * depend on such a token they are left out for the whole step: the batch has late inputs, and
 * step->awaits_supply is set.
 *
 * Rows whose masks cost more than the step's budget, or a quarter of it each, lack them: what is
 * sampled there is not used (step_num_accepted), and jobs find these masks (grammar_job.h). */
void batch_builder_build(struct batch_builder *builder, struct step *step,
                         const struct block_manager *blocks);

/* Fills in the late inputs, once no step before this one is in flight. */
void batch_builder_supply(struct batch_builder *builder, struct step *step);

#endif
