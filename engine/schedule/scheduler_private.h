/* Shared by the files of the scheduler: scheduler.c (life of groups, and what is computed of them),
 * scheduler_plan.c (the plan of a step), admission.c (who gets running slots, and who loses them),
 * fair_preemption.c (who gives way to a share that waits) and prefix_match.c (tokens that need not
 * be computed). */
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

/* Walk through the running sequences in order; NULL: no more. */
static inline struct sequence *scheduler_first_running(const struct scheduler *scheduler) {
    return scheduler_running_from(scheduler->running.first);
}

static inline struct sequence *scheduler_next_running(const struct sequence *sequence) {
    struct sequence *next =
        sequence_group_find(sequence->group, sequence->choice + 1, SEQUENCE_RUNNING);
    return next != NULL ? next : scheduler_running_from(sequence->group->list_next);
}

/* Admits waiting groups in their order, as long as there are running slots for them, and blocks for
 * all they have pending on top of what is reserved for those that run; stalled groups are preempted
 * for them. A group that cannot run yet is passed over; the first that can keeps its turn. A beam
 * search takes slots for all its beams at once; a group of choices one, and further ones in its
 * turn while slots and blocks last. */
void admission_run(struct scheduler *scheduler);
/* Takes all blocks of a running group, which then waits: swapped out if that is estimated to take
 * less time than computing its tokens again and the host pool has room, else to be recomputed. What
 * this step had scheduled for it is taken back. */
void admission_preempt(struct scheduler *scheduler, struct sequence_group *group);

/* Removes a group from those that run. */
void admission_leave(struct scheduler *scheduler, struct sequence_group *group);
/* Preempts all groups that run but the one that is to run alone, for the step being planned. */
void admission_clear(struct scheduler *scheduler);
/* Makes all blocks of a group, on the device and the host, free. It then waits to be recomputed. */
void admission_forget(struct scheduler *scheduler, struct sequence_group *group);

/* Returns the last group of the share that holds most, of those that are to give way to `next`,
 * which waits and finds no room: it lacks blocks, or slots alone. NULL: there is none. It may be in
 * flight. */
struct sequence_group *fair_preemption_victim(struct scheduler *scheduler,
                                              const struct sequence_group *next, bool lacks_blocks);

/* Gives a sequence that holds nothing the cached blocks of its first tokens, and counts these as
 * computed. Returns how many they are. Must be followed by one of the next two: commit when the
 * sequence is to run, rollback to release the blocks again. */
int32_t prefix_match(struct scheduler *scheduler, struct sequence *sequence);
/* Counts the query, and the num_found tokens that prefix_match returned as hits. */
void prefix_match_commit(struct scheduler *scheduler, struct sequence *sequence, int32_t num_found);
void prefix_match_rollback(struct scheduler *scheduler, struct sequence *sequence);
/* Does it all for a sequence that runs, from what is computed on, if that ends with a block: what
 * others have computed meanwhile of a prefix they share with it is not computed again. */
void prefix_match_extend(struct scheduler *scheduler, struct sequence *sequence);
/* Returns whether what is scheduled for `other` computes the block that the sequence would compute
 * next. */
bool prefix_match_is_next_of(struct scheduler *scheduler, struct sequence *sequence,
                             struct sequence *other);

#endif
