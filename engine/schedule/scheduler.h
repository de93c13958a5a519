/* Decides which sequences compute how many tokens in the next step, and who holds which block.
 * Pure: no clock, no thread, no random number; the same calls give the same plans. The only writer
 * of the status of sequences and groups, and of block tables. Engine thread only.
 *
 * A step can be planned while others are IN FLIGHT: submitted, and not committed yet. What they
 * compute and sample is then taken for granted, and what depends on it is left out
 * (sequence_group_can_run). Nothing in flight is preempted: see must_collect. Steps of a pipeline
 * that are in flight run abreast: a sequence that one of them samples for is left out of the
 * others, and those that decode are dealt out to them all, so that no stage waits for another.
 *
 * A group is WAITING or RUNNING. Each running sequence takes one of the max_num_seqs RUNNING SLOTS.
 * A waiting group is ADMITTED when it gets slots; PREEMPTION takes slots and blocks away again.
 *
 * Requests belong to SHARES, which are served in tokens by their weights (share_queue.h). ORDER is
 * this: groups of one share by priority and arrival; of different shares by their places, which
 * they got when they were admitted; after these, those never admitted, the least served share
 * first. With one share it is priority and arrival alone.
 *
 * Rules of a step, in this order:
 *   - Every running sequence with one pending token gets it, or of a pipeline its part of them: a
 *     prompt never holds up decoding.
 *   - Waiting groups are admitted in order while there are free slots for them, and blocks for all
 *     they have pending on top of what is reserved for those that run. Nobody overtakes. One that
 *     was swapped out is swapped in with its blocks. A beam search takes slots for all its beams; a
 *     group of choices one, and more in its turn while there are some left, as long as its first 16
 *     choices last. Further choices get slots that nobody waits for, and up to half of them
 *     otherwise; one only while another share waits that was served less.
 *   - What is left of the budget of tokens goes to the longer pending runs (chunked prefill): half
 *     of it at least to the first in order, so that it advances whatever arrives; the rest to the
 *     shortest first of those that are the most urgent in their shares, so that a short prompt does
 *     not wait for long ones; then to less urgent priorities. Blocks that the prefix cache has are
 *     taken from there at every block boundary; a sequence whose next block another one computes in
 *     this step, or in one that is in flight, waits for it.
 *     While sequences decode, these runs get no more tokens than are expected to be computed within
 *     max_step_ns, so that the text of others does not stop for a long prompt, and in longer steps
 *     otherwise, so that who comes then need not wait for long. The first in order gets a few
 *     tokens however long they take.
 *   - Drafts take what is left then of the budget and of the free blocks.
 *
 * A sequence that needs a block when none is free preempts the last group in order that runs
 * (stalled ones first): that one loses all blocks, by swapping or recomputation, whichever is
 * estimated to cost less time. A sequence never takes from its own group or one before it; the
 * last in order just waits for its turn. So the first in order always advances. A share that waits
 * takes slots and blocks from one that holds more (fair_preemption.c). Who is before a
 * running group stays so until it ends, but for groups that are admitted with an earlier place:
 * of shares that were served less, each of which is served more by it, and urgent ones of its own
 * share. So there is no livelock, and every share's turn comes. In a step where decoding preempted
 * someone, nobody is admitted; stalled groups give up their slots and blocks to whoever waits. */
#ifndef QUIRE_ENGINE_SCHEDULE_SCHEDULER_H
#define QUIRE_ENGINE_SCHEDULE_SCHEDULER_H

#include "engine/kv/block_manager.h"
#include "engine/schedule/kv_demand.h"
#include "engine/schedule/share_queue.h"
#include "engine/schedule/step_plan.h"

#define SCHEDULER_LEAST_STEP_NS 100000000        /* beside those that decode */
#define SCHEDULER_LEAST_PROMPT_STEP_NS 200000000 /* of prompts alone */

struct scheduler_config {
    struct block_manager_config kv; /* without host blocks preemption is by recomputation */
    /* That a step is to take while sequences decode; 0: as long as it likes; negative: three times
     * what these take, SCHEDULER_LEAST_STEP_NS at least. Unless it is 0, one of prompts alone takes
     * at most the largest of this, ten steps of one token and SCHEDULER_LEAST_PROMPT_STEP_NS. */
    int64_t max_step_ns;
    int64_t swap_block_ns;     /* to move one block to the host, or back */
    int32_t num_shares;        /* whose requests are served in turn; 0 means 1 */
    int32_t num_steps_abreast; /* that the stages of a pipeline compute at a time; 0 means 1: one
                                  after the other */
};

/* Read by others, written by the scheduler alone, but for token_ns and step_cost. */
struct scheduler {
    struct scheduler_config config;
    struct block_manager blocks;
    struct share_queue waiting;
    struct group_list running; /* in order */
    double token_ns; /* what computing one token takes, for the choice of preemption; 0: unknown.
                        The core measures it */
    struct step_cost step_cost;   /* what a step takes; the core measures it */
    struct step_plan *plan;       /* the one being planned */
    struct sequence_group *alone; /* the only group that runs; NULL: all do */
    bool must_collect;   /* the last plan lacked blocks that groups in flight hold: the next one is
                          made when nothing is in flight */
    uint64_t held_up_id; /* of the request that was the first to wait, and found no room, */
    int32_t num_held_up_steps; /* in so many steps until now */
    uint64_t num_plans;        /* until now */
    int32_t last_share;        /* of the last group that was added; -1: none was */
    uint64_t shared_until;     /* so many plans; a group of another share came before that */
    uint64_t num_walks;        /* through the running groups, to find out who is the most urgent */
    struct block_table **tables; /* scratch [max_num_seqs]: of a group that is moved, of a step */

    /* since start */
    uint64_t num_queried_tokens; /* looked up in the prefix cache, once per group */
    uint64_t num_hit_tokens;     /* and found, before anybody computed them for the group */
    uint64_t num_swaps;          /* groups swapped out */
    uint64_t num_recomputes;     /* groups preempted by recomputation */
};

/* Returns -1 when memory is short. */
int scheduler_init(struct scheduler *scheduler, const struct scheduler_config *config);
size_t scheduler_bytes(const struct scheduler_config *config); /* what it allocates */
/* Every sequence must have been removed. Accepts a zeroed one. */
void scheduler_finish(struct scheduler *scheduler);

/* Makes one without groups and moves as it was after scheduler_init, but for the counters since the
 * start, which go on. Returns false, and nothing has changed, where there are some, or memory is
 * short. */
bool scheduler_renew(struct scheduler *scheduler);

/* Adds a new group, whose request fits (kv_demand_fits), to those that wait. */
void scheduler_add(struct scheduler *scheduler, struct sequence_group *group);
/* Frees the sequence's blocks and marks it finished, in any state but finished. The group leaves
 * the scheduler with its last one. */
void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence);
/* Makes `to` share the keys and values of the first num_tokens tokens of `from`, a sibling, and run
 * if that one does; what it held is released. Both begin with these tokens. Not while a plan waits
 * to be committed for one of them. */
void scheduler_fork(struct scheduler *scheduler, const struct sequence *from, struct sequence *to,
                    int32_t num_tokens);
/* Releases what the sequence holds, for a beam slot in which no beam runs any more. */
void scheduler_idle(struct scheduler *scheduler, struct sequence *sequence);

/* Makes the prefix cache forget all it knows. What runs keeps its blocks. */
void scheduler_flush_cache(struct scheduler *scheduler);

/* Reports that what the blocks of both pools held is gone: every group loses all of them and waits,
 * to be recomputed, and the prefix cache forgets all it knows. No step is in flight. */
void scheduler_restart(struct scheduler *scheduler);
/* Lets only this group, which has not ended, run in the steps planned from now on; those that run
 * are preempted. NULL: all run again. No step is in flight, or it is what it was. */
void scheduler_run_alone(struct scheduler *scheduler, struct sequence_group *group);

/* Plans one step into *plan, whose entries have room for max_num_seqs. It may be empty although
 * sequences wait: when all of them are stalled, or depend on a step in flight. A plan that is not
 * empty, or comes with block moves, is submitted before the next one is made. */
void scheduler_plan(struct scheduler *scheduler, struct step_plan *plan);
/* Reports that the plan was submitted, with the block moves, once its batch is built. */
void scheduler_submit(struct scheduler *scheduler, const struct step_plan *plan);
/* Reports that the oldest step in flight has run. Before anything of it is committed. */
void scheduler_collect(struct scheduler *scheduler);
/* Reports that the entry's tokens are computed, and how many of its drafts were accepted: the keys
 * and values of the others are given up. -1: those of the last token before them as well, which is
 * then computed again, as what was sampled after it is not used. Of a step that was collected, and
 * for -1 with no later one of the sequence in flight. */
void scheduler_commit(struct scheduler *scheduler, const struct planned_sequence *entry,
                      int32_t num_accepted);
/* Does without what the entry computed, instead: its sequence has ended since, or is about to. */
void scheduler_discard(struct scheduler *scheduler, const struct planned_sequence *entry);

#endif
