/* One step, from its plan to its commit: which sequences it computes, which sequence each sample
 * row belongs to, the batch that an executor runs, and its result. The scheduler fills in the plan,
 * the batch builder the rest; the core submits it, waits, and applies the results by walking the
 * rows.
 *
 * The executor sees only the batch and the result; the batch holds no pointer into the engine.
 * Their memory may belong to the executor. All memory is allocated by step_init, for the largest
 * possible step; pages that no step needs are never touched. Engine thread only, except for what a
 * submitted batch shares with the executor. */
#ifndef QUIRE_ENGINE_BATCH_STEP_H
#define QUIRE_ENGINE_BATCH_STEP_H

#include "engine/batch/logprob_lists.h"
#include "engine/stats/engine_stats.h"
#include "engine/schedule/step_plan.h"
#include "models/batch.h"
#include "models/tokenizer/tokenizer.h"

enum step_row_kind {
    STEP_ROW_SCORE,  /* scores a prompt token whose logprob is requested */
    STEP_ROW_SAMPLE, /* the owner's next token */
    STEP_ROW_VERIFY, /* the token after a draft; used only if all drafts before it equal what was
                        sampled in their place */
    STEP_ROW_BEAM,   /* candidates for the next token of a beam */
};

/* Describes the sample row with the same index. */
struct step_row {
    struct sequence *sequence; /* the owner: the entry's, or a choice that forks from it */
    int32_t position;          /* of the token that is scored or sampled */
    enum step_row_kind kind;
    bool lacks_mask; /* its mask takes longer: what is sampled is meaningless */
};

/* Measured by the core (core_stats.h); engine_stats.h defines them. */
struct step_times {
    int64_t gap_ns;
    int64_t host_ns[NUM_STEP_PARTS];
};

struct step {
    struct step_plan plan;
    struct step_row *rows; /* [batch.num_sample_rows] */
    struct batch_arena arena;
    struct batch batch; /* its arrays lie in the arena */
    struct logprob_lists lists;
    struct step_result result;
    void *owned;        /* memory of batch and result; NULL: the caller owns it */
    bool awaits_supply; /* submitted with late inputs, which are not filled in yet */
    int64_t submitted_ns;
    struct step_times times;
};

/* The limits outlive the step. capacity: step_batch_capacity, and what adapters need. memory holds
 * the batch and the result: step_memory_bytes of the capacity, aligned to 64 bytes, and outlives
 * the step. NULL: the step allocates it. Returns -1 when memory is short. */
int step_init(struct step *step, const struct serving_limits *limits,
              const struct batch_capacity *capacity, void *memory);
/* Returns the bytes that step_init allocates when memory is NULL. */
size_t step_bytes(const struct serving_limits *limits, const struct batch_capacity *capacity);
void step_finish(struct step *step); /* accepts a zeroed one */

/* Returns the capacity of the batch's arena, without adapters and a draft model. Whoever receives a
 * copy of an arena needs it to bind the batch. */
struct batch_capacity step_batch_capacity(const struct serving_limits *limits,
                                          const struct tokenizer *tokenizer);

/* Returns the entry's drafts; those of a draft model once the step has run. */
const int32_t *step_drafts(const struct step *step, const struct planned_sequence *entry);

/* Returns how many of the entry's drafts are accepted: the longest prefix of drafts that equal what
 * was sampled in their place and whose own rows had their masks. Returns -1 if not even the entry's
 * first sample row had its mask. The step has run. */
int32_t step_num_accepted(const struct step *step, const struct planned_sequence *entry);

#endif
