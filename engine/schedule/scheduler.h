/* Decides which sequences compute how many tokens in the next step, and which blocks they hold.
 * Deterministic: it has no clock, no thread and no random numbers, so the same calls give the same
 * plans. It is the only writer of block tables and of the status of sequences and groups. Engine
 * thread only.
 *
 * A step can be planned while others are IN FLIGHT: submitted, and not committed yet. The plan
 * assumes that they will compute and sample their tokens, and leaves out what depends on the
 * sampled values (sequence_group_can_run). Nothing in flight is preempted: see must_collect. Steps
 * of a pipeline that are in flight run side by side: a sequence that one of them samples for is
 * left out of the others, and decoding sequences are distributed over all of them, so that no stage
 * waits for another.
 *
 * A group is WAITING or RUNNING. Each running sequence takes one of the max_num_seqs RUNNING SLOTS.
 * A waiting group is ADMITTED when it gets slots; PREEMPTION takes slots and blocks away again.
 *
 * Requests belong to SHARES, which are served in tokens by their weights (share_queue.h). ORDER is
 * defined as follows. Groups of one share are ordered by priority and arrival, groups of different
 * shares by the places that they got when they were admitted. Groups that were never admitted
 * follow, those of the least served share first. With one share, only priority and arrival count.
 *
 * Rules of a step, in this order:
 *   - Every running sequence with one pending token gets it (in a pipeline, every sequence of this
 *     step's part): a prompt never delays decoding.
 *   - Waiting groups are admitted in order while there are free slots for them, and enough blocks
 *     for all their pending tokens on top of what is reserved for running groups. None overtakes
 *     another. A swapped-out group is swapped in with its blocks. A beam search takes slots for all
 *     its beams. A group of choices takes one slot, then more in its turn while some are left, for
 *     its first 16 choices. Further choices get slots that nobody waits for, otherwise up to half
 *     of them; only one while a share that was served less waits.
 *   - The rest of the token budget goes to the longer pending runs (chunked prefill). At least half
 *     of it goes to the first in order, so that it always advances. The rest goes to the most
 *     urgent runs of each share, the shortest first, so that a short prompt does not wait for long
 *     ones; then to less urgent priorities. Blocks that the prefix cache has are taken from it at
 *     every block boundary. A sequence whose next block is computed by another one in this step, or
 *     in a step in flight, waits for it. While sequences decode, these runs get no more tokens than
 *     are expected to be computed within max_step_ns, so that a long prompt does not interrupt the
 *     text of others. Without decoding sequences the steps may be longer, but bounded, so that
 *     newcomers do not wait long. The first in order gets a few tokens however long they take.
 *   - Drafts take what is then left of the budget and of the free blocks.
 *
 * A sequence that needs a block when none is free preempts the running group that is last in order
 * (stalled ones first). That group loses all blocks, by swapping or recomputation, whichever is
 * estimated to take less time. A sequence never takes blocks from its own group or from one before
 * it; the last in order waits for its turn. So the first in order always advances. A waiting share
 * takes slots and blocks from one that holds more (fair_preemption.c). A group that is before a
 * running group stays before it until it ends; only groups admitted with an earlier place can join:
 * those of shares that were served less, each of which is thereby served more, and urgent ones of
 * its own share. So there is no livelock, and every share's turn comes. In a step where decoding
 * preempted a group, none is admitted. Stalled groups give up their slots and blocks to waiting
 * ones. */
#ifndef QUIRE_ENGINE_SCHEDULE_SCHEDULER_H
#define QUIRE_ENGINE_SCHEDULE_SCHEDULER_H

#include "engine/kv/block_manager.h"
#include "engine/schedule/kv_demand.h"
#include "engine/schedule/share_queue.h"
#include "engine/schedule/step_plan.h"

#define SCHEDULER_LEAST_STEP_NS 100000000        /* with decoding */
#define SCHEDULER_LEAST_PROMPT_STEP_NS 200000000 /* of prompts alone */

struct scheduler_config {
    struct block_manager_config kv; /* without host blocks, preemption means recomputation */
    /* Target time of a step while sequences decode; 0: unlimited; negative: three times what the
     * decoding sequences take, but at least SCHEDULER_LEAST_STEP_NS. Unless it is 0, a step of
     * prompts alone takes at most the largest of this, ten steps of one token, and
     * SCHEDULER_LEAST_PROMPT_STEP_NS. */
    int64_t max_step_ns;
    int64_t swap_block_ns; /* time to move one block to the host, or back */
    int32_t num_shares;    /* shares whose requests are served in turn; 0 means 1 */
    bool has_mtp; /* the draft model computes a token in the place of the one before it, from what
                     the model has computed there (rank_draft.h) */
    int32_t num_steps_abreast; /* steps that the stages of a pipeline compute at the same time; 0
                                  means 1: one after the other */
};

/* Read by others; written by the scheduler only, except token_ns and step_cost. */
struct scheduler {
    struct scheduler_config config;
    struct block_manager blocks;
    struct share_queue waiting;
    struct group_list running;    /* in order */
    struct read_ahead read_ahead; /* for the group that is admitted next */
    double token_ns; /* time to compute one token, for choosing the kind of preemption; 0: unknown.
                        The core measures it */
    struct step_cost step_cost;   /* model of a step's time; the core measures it */
    struct step_plan *plan;       /* the one being planned */
    struct sequence_group *alone; /* the only group that runs; NULL: all do */
    bool must_collect; /* the last plan lacked blocks that groups in flight hold: the next plan is
                          made when nothing is in flight */
    bool may_draft; /* with the draft model, in the step being planned: nothing but decoding is in
                       it */
    uint64_t held_up_id;       /* request that was the first to wait and found no room */
    int32_t num_held_up_steps; /* number of steps so far in which it found none */
    uint64_t num_plans;        /* until now */
    int32_t last_share;        /* of the last group that was added; -1: none was */
    uint64_t shared_until; /* plan number; before it, a group of another share arrived recently */
    uint64_t num_walks;    /* walks through the running groups, to find the most urgent ones */
    struct block_table **tables; /* scratch [max_num_seqs]: of a moved group, or of a step */

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

/* Resets a scheduler without groups and moves to its state after scheduler_init, except for the
 * counters since the start, which continue. Returns false and changes nothing when there are groups
 * or moves, or memory is short. */
bool scheduler_renew(struct scheduler *scheduler);

/* Adds a new group, whose request fits (kv_demand_fits), to the waiting ones. */
void scheduler_add(struct scheduler *scheduler, struct sequence_group *group);
/* Frees the sequence's blocks and marks it finished, in any state but finished. The group leaves
 * the scheduler with its last one. */
void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence);
/* Makes `to` share the keys and values of the first num_tokens tokens of its sibling `from`, and
 * run if that one does; what `to` held is released. Both begin with these tokens. Must not be
 * called while a plan of one of them waits to be committed. */
void scheduler_fork(struct scheduler *scheduler, const struct sequence *from, struct sequence *to,
                    int32_t num_tokens);
/* Releases the sequence's blocks, for a beam slot in which no beam runs any more. */
void scheduler_idle(struct scheduler *scheduler, struct sequence *sequence);

/* Empties the prefix cache. Running groups keep their blocks. */
void scheduler_flush_cache(struct scheduler *scheduler);

/* Reports that the contents of both pools are lost: every group loses all its blocks and waits to
 * be recomputed, and the prefix cache is emptied. No step is in flight. */
void scheduler_restart(struct scheduler *scheduler);
/* Lets only this group, which has not ended, run in the steps planned from now on; running groups
 * are preempted. NULL: all run again. No step is in flight, unless the argument is unchanged. */
void scheduler_run_alone(struct scheduler *scheduler, struct sequence_group *group);

/* Plans one step into *plan, whose entries have room for max_num_seqs. It may be empty although
 * sequences wait: when all of them are stalled, or depend on a step in flight. A plan that is not
 * empty, or comes with block moves, is submitted before the next one is made. */
void scheduler_plan(struct scheduler *scheduler, struct step_plan *plan);
/* Reports that the plan was submitted together with its block moves. Called once the batch is
 * built. */
void scheduler_submit(struct scheduler *scheduler, const struct step_plan *plan);
/* Reports that the oldest step in flight has run. Called before any of it is committed. */
void scheduler_collect(struct scheduler *scheduler);
/* Reports that the entry's tokens are computed, and how many of its drafts were accepted: the keys
 * and values of the others are dropped. -1: those of the last token before the drafts are dropped
 * too; that token is computed again, because what was sampled after it is not used. The step was
 * collected; for -1, no later step of the sequence is in flight. */
void scheduler_commit(struct scheduler *scheduler, const struct planned_sequence *entry,
                      int32_t num_accepted);
/* Called instead when the entry's results are dropped: its sequence has ended since, or is about
 * to. */
void scheduler_discard(struct scheduler *scheduler, const struct planned_sequence *entry);
/* Adds the full blocks that a running sequence has computed to the cache. A commit does; after a
 * swap-in, one that computes nothing now needs it. */
void scheduler_publish(struct scheduler *scheduler, struct sequence *sequence);

#endif
