/* Shared by the files of the core: engine_core.c (the life of groups), engine_core_step.c (the loop
 * of steps), engine_core_commit.c (their results), engine_core_restart.c (lost ranks) and
 * engine_core_handover.c (prompts that another server continues).
 *
 * A sequence ends in this order: its finish is set; it is retired, which frees its blocks; its last
 * event is pushed; it is closed, which frees its group with the last one, unless a step in flight
 * still has rows of it. */
#ifndef QUIRE_ENGINE_CORE_ENGINE_CORE_PRIVATE_H
#define QUIRE_ENGINE_CORE_ENGINE_CORE_PRIVATE_H

#include "engine/core/engine_core.h"

/* Reports that events of the group were pushed. */
void engine_core_notify(struct engine_core *core, const struct sequence_group *group);
/* Frees the blocks of a sequence whose finish is set, and counts it. */
void engine_core_retire(struct engine_core *core, struct sequence *sequence);
/* Closes a retired choice whose last event was pushed. May free the group. */
void engine_core_close(struct engine_core *core, struct sequence *sequence);
/* Pushes the last event of a retired choice, now or in a later step, and closes it. */
void engine_core_push_end(struct engine_core *core, struct sequence *sequence);
/* Retires, ends and closes a choice that ends without a token. May free its group. */
void engine_core_end_choice(struct engine_core *core, struct sequence *sequence,
                            enum finish_reason reason);
/* Ends the choices that have not ended, and pushes last events that memory was too short for
 * before. May free the group. */
void engine_core_end_group(struct engine_core *core, struct sequence_group *group,
                           enum finish_reason reason);

/* Takes a group out of the queue's counts when it is first scheduled, or ends before that. */
void engine_core_leave_queue(struct engine_core *core, struct sequence_group *group);
/* Notes that one of the group's entries is no longer in flight. May free the group. */
void engine_core_leave_flight(struct engine_core *core, struct sequence_group *group);
/* Applies the results of a step that was collected. */
void engine_core_commit(struct engine_core *core, struct step *step);
/* Notes what the ranks were computing when they were lost, from a step that was collected then. */
void engine_core_note_loss(struct engine_core *core, const struct step *step);
/* Blames the group that ran alone for the loss and ends it; blames nobody if none ran alone. No
 * step is in flight. */
void engine_core_blame(struct engine_core *core);
/* Restarts the ranks that were lost. */
void engine_core_restart(struct engine_core *core);
/* Reports what the executor answered (engine_core_config.answered). */
void engine_core_report(struct engine_core *core, enum executor_answer answer,
                        const struct error *err);
/* Returns the group that must run alone: the oldest suspect that can run; NULL: none. */
struct sequence_group *engine_core_find_suspect(struct engine_core *core);

/* Returns whether a line may be written of which there are perhaps many, and notes that. */
static inline bool engine_core_may_log(int64_t *logged_ns, int64_t now_ns) {
    const int64_t pause_ns = INT64_C(10000000000);
    bool may_log = *logged_ns == 0 || now_ns - *logged_ns >= pause_ns;
    if (may_log)
        *logged_ns = now_ns;
    return may_log;
}

/* --- engine_core_handover.c --- */

/* Has a group wait until the store has its blocks, or they do not come. Called before each step. */
void engine_core_await_stored(struct engine_core *core, struct sequence_group *group,
                              int64_t now_ns);
/* Has another step be tried for groups that wait since the plan: the cache had all of their blocks.
 * Called when nothing is in flight. */
void engine_core_note_found(struct engine_core *core, int64_t now_ns);

/* Notes that a step must be tried at deadline_ns at the latest. */
void engine_core_note_stall(struct engine_core *core, int64_t deadline_ns);
/* Notes that a group ends at deadline_ns. */
void engine_core_note_deadline(struct engine_core *core, int64_t deadline_ns);

#endif
