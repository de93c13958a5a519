/* Who runs in the next step, and who holds which block. Pure: no clock, no thread, no random
 * number; the same calls give the same plans. The only writer of sequence.status and of block
 * tables. Engine thread only.
 *
 * Rules of a step, in this order:
 *   - Every running sequence with one pending token gets it: a prompt never holds up decoding.
 *   - Waiting sequences are seated by priority and arrival while there are seats, and blocks for
 *     all they have pending on top of what those already seated were promised. Nobody overtakes.
 *   - What is left of the budget goes to the longer pending runs: half of it at least to the first
 *     in order, so that it moves on whatever arrives; the rest to the shortest of the same priority
 *     first, so that a short prompt does not wait for long ones; then to less urgent priorities.
 *
 * A sequence that needs a block when none is free takes it from the last one in order that runs
 * (stalled ones first): that one loses all blocks and waits to be recomputed. A sequence never
 * takes from one before it; the last in order just waits for its turn. So the first in order always
 * moves on, and there is no livelock. In a step where decoding took blocks from someone, nobody is
 * seated; stalled sequences give up their seats and blocks to whoever waits. */
#ifndef QUIRE_ENGINE_SCHEDULER_H
#define QUIRE_ENGINE_SCHEDULER_H

#include "engine/kv/block_pool.h"
#include "engine/step_plan.h"

struct scheduler_config {
    int32_t max_num_seqs;           /* seats */
    int32_t max_num_batched_tokens; /* >= max_num_seqs */
    int32_t block_size;
};

struct scheduler {
    struct scheduler_config config;
    struct block_pool pool;
    struct sequence_list waiting;
    struct sequence_list running;
    struct step_plan plan;
};

/* Returns -1 when memory is short. */
int scheduler_init(struct scheduler *scheduler, const struct scheduler_config *config,
                   int32_t num_blocks);
/* Every sequence must have been removed. Accepts a zeroed one. */
void scheduler_finish(struct scheduler *scheduler);

void scheduler_add(struct scheduler *scheduler, struct sequence *sequence);
/* Frees its blocks and marks it finished; any state but finished. */
void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence);

/* Plans one step; the plan is valid until the next call. It may be empty although sequences wait:
 * when all of them are stalled. */
const struct step_plan *scheduler_plan(struct scheduler *scheduler);
/* After the step ran: the entry's tokens are computed. */
void scheduler_commit(struct scheduler *scheduler, const struct planned_sequence *entry);

#endif
