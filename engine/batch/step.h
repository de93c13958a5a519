/* One step, from its plan to its commit: which sequences it computes, whose each sample row is, the
 * batch that an executor runs, and what came of it. The scheduler fills in the plan, the batch
 * builder the rest; the core submits it, waits, and applies the results by walking the rows.
 *
 * The batch and the result are what the executor sees: the batch holds no pointer into the engine.
 * Their memory may be the executor's. All of it is there from step_init on, for the largest step
 * there can be; pages of it that no step needs are never touched. Engine thread only, but for what
 * a submitted batch shares with the executor. */
#ifndef QUIRE_ENGINE_BATCH_STEP_H
#define QUIRE_ENGINE_BATCH_STEP_H

#include "engine/batch/logprob_lists.h"
#include "engine/stats/engine_stats.h"
#include "engine/schedule/step_plan.h"
#include "models/batch.h"
#include "models/tokenizer/tokenizer.h"

enum step_row_kind {
    STEP_ROW_SCORE,  /* of a prompt token: its logprob is requested */
    STEP_ROW_SAMPLE, /* the owner's next token */
    STEP_ROW_VERIFY, /* the token after a draft, of which something comes if all drafts before it
                        were what was sampled there */
    STEP_ROW_BEAM,   /* candidates for the next token of a beam */
};

/* Says what the sample row of the same index is about. */
struct step_row {
    struct sequence *sequence; /* the owner: the entry's, or a choice that forks from it */
    int32_t position;          /* of the token that is scored or sampled */
    enum step_row_kind kind;
    bool lacks_mask; /* which takes longer: what is sampled means nothing */
};

/* Measured by the core (core_stats.h); what they mean stands in engine_stats.h. */
struct step_times {
    int64_t gap_ns;
    int64_t host_ns[NUM_STEP_PARTS];
};

struct step {
    struct step_plan plan;
    struct step_row *rows; /* [batch.num_sample_rows] */
    struct batch_arena arena;
    struct batch batch; /* of the arena */
    struct logprob_lists lists;
    struct step_result result;
    void *owned;        /* memory of both; NULL: it is the caller's */
    bool awaits_supply; /* submitted with late inputs, which are not filled in yet */
    int64_t submitted_ns;
    struct step_times times;
};

/* The limits outlive the step. memory: of the batch and the result, step_memory_bytes of its
 * capacity at an address that 64 divides, which outlives the step; NULL: it allocates that too.
 * Returns -1 when memory is short. */
int step_init(struct step *step, const struct serving_limits *limits,
              const struct tokenizer *tokenizer, void *memory);
/* Returns the bytes that step_init allocates where it is given no memory. */
size_t step_bytes(const struct serving_limits *limits, const struct tokenizer *tokenizer);
void step_finish(struct step *step); /* accepts a zeroed one */

/* Returns the capacity of its arena, which whoever is sent a copy of one needs to bind it. */
struct batch_capacity step_batch_capacity(const struct serving_limits *limits,
                                          const struct tokenizer *tokenizer);

/* Returns how many drafts of the entry are what was sampled in their place, each after such ones,
 * and whose own rows had their masks; -1: not even the entry's first sample had its mask. Of a step
 * that has run. */
int32_t step_num_accepted(const struct step *step, const struct planned_sequence *entry);

#endif
