/* Shared by the files of the scheduler: scheduler.c (the life of groups, and how much of each is
 * computed), scheduler_plan.c (the plan of a step), admission.c (which groups get running slots,
 * and which lose them), fair_preemption.c (which group gives way to a waiting share) and
 * prefix_match.c (tokens that need not be computed). */
#ifndef QUIRE_ENGINE_SCHEDULE_SCHEDULER_PRIVATE_H
#define QUIRE_ENGINE_SCHEDULE_SCHEDULER_PRIVATE_H

#include "engine/schedule/scheduler.h"

/* Releases the blocks that lie before the window of the next token to be computed. */
static inline void scheduler_release_window(struct scheduler *scheduler,
                                            struct sequence *sequence) {
    int32_t window = scheduler->config.kv.limits->window;
    if (window > 0 && sequence->num_computed >= window)
        block_manager_drop_before(&scheduler->blocks, &sequence->table,
                                  sequence->num_computed - window + 1);
}

static inline struct sequence *scheduler_running_from(const struct sequence_group *group) {
    struct sequence *sequence = NULL;
    for (; group != NULL && sequence == NULL; group = group->list_next)
        sequence = sequence_group_find(group, 0, SEQUENCE_RUNNING);
    return sequence;
}

/* Iterate over the running sequences in order; NULL: no more. */
static inline struct sequence *scheduler_first_running(const struct scheduler *scheduler) {
    return scheduler_running_from(scheduler->running.first);
}

static inline struct sequence *scheduler_next_running(const struct sequence *sequence) {
    struct sequence *next =
        sequence_group_find(sequence->group, sequence->choice + 1, SEQUENCE_RUNNING);
    return next != NULL ? next : scheduler_running_from(sequence->group->list_next);
}

/* Admits waiting groups in order, as long as there are running slots for them, and blocks for all
 * their pending tokens on top of what is reserved for running groups; stalled groups are preempted
 * for them. A group that cannot run yet is skipped; the first that can keeps its turn. A beam
 * search takes slots for all its beams at once. A group of choices takes one, and further ones in
 * its turn while slots and blocks last. */
void admission_run(struct scheduler *scheduler);
/* Takes all blocks of a running group, which then waits: swapped out if the host pool has room and
 * that is estimated to take less time than recomputation, otherwise to be recomputed. What this
 * step had scheduled for it is cancelled. */
void admission_preempt(struct scheduler *scheduler, struct sequence_group *group);

/* Removes a group from the running ones. */
void admission_leave(struct scheduler *scheduler, struct sequence_group *group);
/* Preempts all running groups except the one that must run alone, for the step being planned. */
void admission_clear(struct scheduler *scheduler);
/* Frees all blocks of a group, on the device and the host. It then waits to be recomputed. */
void admission_forget(struct scheduler *scheduler, struct sequence_group *group);

/* Returns a group that must give way to `next`, which waits and finds no room for lack of blocks,
 * or of slots only: the last group of the share that holds most. NULL: there is none. The group may
 * be in flight. */
struct sequence_group *fair_preemption_victim(struct scheduler *scheduler,
                                              const struct sequence_group *next, bool lacks_blocks);

/* Gives a sequence without blocks the cached blocks of its first tokens, and counts these as
 * computed. Returns the number of tokens. It may then await further ones from the store. Must be
 * followed by prefix_match_commit when the sequence
 * will run, or by prefix_match_rollback, which releases the blocks again. */
int32_t prefix_match(struct scheduler *scheduler, struct sequence *sequence);
/* Counts the query, and the num_found tokens that prefix_match returned as hits. */
void prefix_match_commit(struct scheduler *scheduler, struct sequence *sequence, int32_t num_found);
void prefix_match_rollback(struct scheduler *scheduler, struct sequence *sequence);
/* Continues to bring what a running sequence awaits, and counts it as computed and as hits once it
 * is there; or the sequence computes it. */
void prefix_match_load(struct scheduler *scheduler, struct sequence *sequence);
/* Has the store read what it has for the group that is admitted next, if that pays. */
void prefix_match_read_ahead(struct scheduler *scheduler);
/* Does all of this for a running sequence, from its computed tokens on, if these end at a block
 * boundary: what others have meanwhile computed of a shared prefix is not computed again. */
void prefix_match_extend(struct scheduler *scheduler, struct sequence *sequence);
/* Returns whether `other`, which has tokens scheduled or in flight, is computing the block that the
 * sequence would compute next: in this step, or in several where a step has time for less. */
bool prefix_match_is_next_of(struct scheduler *scheduler, struct sequence *sequence,
                             struct sequence *other);

#endif
