/* Who runs in the next step, and who holds which block. Pure: no clock, no thread, no random
 * number; the same calls give the same plans. The only writer of the status of sequences and
 * groups, and of block tables. Engine thread only.
 *
 * Rules of a step, in this order:
 *   - Every running sequence with one pending token gets it: a prompt never holds up decoding.
 *   - Waiting groups are seated by priority and arrival while there are seats for them, and blocks
 *     for all they have pending on top of what those already seated were promised. Nobody
 *     overtakes. One that was swapped out comes back with its blocks. A beam search takes seats
 *     for all its beams; a group of choices one, and more in its turn while there are some left,
 *     as long as its first 16 choices last. Of further choices it has seats that nobody waits for,
 *     and up to half of them otherwise.
 *   - What is left of the budget goes to the longer pending runs: half of it at least to the first
 *     in order, so that it moves on whatever arrives; the rest to the shortest of the same priority
 *     first, so that a short prompt does not wait for long ones; then to less urgent priorities.
 *     Blocks that the prefix cache has are taken from there at every block boundary; a sequence
 *     whose next block another one computes in this step waits for it.
 *
 * A sequence that needs a block when none is free takes it from the last group in order that runs
 * (stalled ones first): that one loses all blocks, by swapping or recomputation, whichever is
 * estimated to cost less time. A sequence never takes from its own group or one before it; the
 * last in order just waits for its turn. So the first in order always moves on, and there is no
 * livelock. In a step where decoding took blocks from someone, nobody is seated; stalled groups
 * give up their seats and blocks to whoever waits. */
#ifndef QUIRE_ENGINE_SCHEDULE_SCHEDULER_H
#define QUIRE_ENGINE_SCHEDULE_SCHEDULER_H

#include "engine/schedule/scheduler_state.h"

/* Returns -1 when memory is short. */
int scheduler_init(struct scheduler *scheduler, const struct scheduler_config *config);
/* Every sequence must have been removed. Accepts a zeroed one. */
void scheduler_finish(struct scheduler *scheduler);

/* Of a request that fits (kv_demand_fits). */
void scheduler_add(struct scheduler *scheduler, struct sequence_group *group);
/* Frees the sequence's blocks and marks it finished; any state but finished. The group leaves the
 * scheduler with the last one. */
void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence);
/* Makes `to` share the keys and values of the first num_tokens tokens of `from`, a sibling, and run
 * if that one does; what it held is released. Both begin with these tokens. */
void scheduler_fork(struct scheduler *scheduler, const struct sequence *from, struct sequence *to,
                    int32_t num_tokens);
/* Releases what the sequence holds, for a lane in which no beam runs any more. */
void scheduler_idle(struct scheduler *scheduler, struct sequence *sequence);

/* Plans one step; the plan is valid until the next call. It may be empty although sequences wait:
 * when all of them are stalled. */
const struct step_plan *scheduler_plan(struct scheduler *scheduler);
/* The step ran: the blocks were moved. Before anything of it is committed. */
void scheduler_end_step(struct scheduler *scheduler);
/* Then: the entry's tokens are computed. */
void scheduler_commit(struct scheduler *scheduler, const struct planned_sequence *entry);

#endif
