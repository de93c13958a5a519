/* What the core does when the executor has lost its ranks: everything that ran is preempted by
 * recomputation, since the blocks of both pools are gone.
 *
 * One of the requests that were being computed may be why. Those are SUSPECTS: they run one at a
 * time, with nothing else in flight, until each has got past where it was. A suspect during whose
 * steps the ranks are lost once more is ended, so that it harms nobody but itself. */
#include "engine/core/engine_core_private.h"

#include "config/base/numbers.h"

/* Without a step done, or a request to blame, in between. */
#define MAX_LOSSES 3

void engine_core_note_failure(struct engine_core *core, const struct error *err) {
    if (core->failed)
        return;
    core->is_lost = err->code == ERROR_RESTART;
    core->failed = !core->is_lost;
    if (core->failed)
        core->error = *err;
    else
        adapter_slots_forget(&core->adapters);
}

static void suspect(struct sequence_group *group) {
    if (group->is_suspect)
        return;
    group->is_suspect = true;
    for (int32_t i = 0; i < group->num_sequences; i++)
        group->sequences[i].suspect_end = 0;
}

/* Drafts may have been wrong. */
void engine_core_note_loss(struct engine_core *core, const struct step *step) {
    for (int32_t i = 0; i < step->plan.num_entries; i++) {
        const struct planned_sequence *entry = &step->plan.entries[i];
        struct sequence *sequence = entry->sequence;
        suspect(sequence->group);
        sequence->suspect_end =
            max_int32(sequence->suspect_end, entry->begin + entry->num_tokens - entry->num_drafts);
        core->has_suspects = true;
    }
}

void engine_core_blame(struct engine_core *core) {
    struct sequence_group *alone = core->scheduler.alone;
    if (alone == NULL) {
        core->num_losses++;
        return;
    }
    scheduler_run_alone(&core->scheduler, NULL);
    engine_core_end_group(core, alone, FINISH_CRASHED);
}

void engine_core_report(struct engine_core *core, enum executor_answer answer,
                        const struct error *err) {
    if (core->config.answered != NULL)
        core->config.answered(core->config.context, answer, err);
}

static int restart_executor(struct engine_core *core, struct error *err) {
    int status = core->executor->ops->restart(core->executor, err);
    engine_core_report(core, EXECUTOR_RESTARTED, err);
    return status;
}

/* What waited meanwhile has not waited for others: the time does not count as time in the queue. */
static void extend_queue_deadlines(struct engine_core *core) {
    int64_t now_ns = core->config.clock(core->config.context);
    for (struct sequence_group *g = core->first_group; g != NULL; g = g->next) {
        struct request *request = g->request;
        int64_t since_ns = max_int64(core->lost_since_ns, request->arrival_ns);
        if (request->queue_deadline_ns != 0)
            request->queue_deadline_ns += max_int64(now_ns - since_ns, 0);
    }
}

void engine_core_restart(struct engine_core *core) {
    struct error err = {0};
    if (core->num_losses < MAX_LOSSES && restart_executor(core, &err) == 0) {
        core->is_lost = false;
        core->stats.rank_restarts++;
        extend_queue_deadlines(core);
        return;
    }
    if (core->num_losses < MAX_LOSSES && err.code == ERROR_RESTART) {
        core->num_losses++;
        return;
    }
    if (core->num_losses >= MAX_LOSSES)
        error_set(&err, ERROR_DEVICE, "the ranks were lost %d times in a row", MAX_LOSSES);
    engine_core_note_failure(core, &err);
}

static bool has_got_past(const struct sequence_group *group) {
    for (int32_t i = 0; i < group->num_sequences; i++) {
        const struct sequence *sequence = &group->sequences[i];
        if (sequence->status != SEQUENCE_FINISHED && !sequence->is_idle &&
            sequence->num_computed < sequence->suspect_end)
            return false;
    }
    return true;
}

struct sequence_group *engine_core_find_suspect(struct engine_core *core) {
    struct sequence_group *found = NULL;
    if (!core->has_suspects)
        return NULL;
    core->has_suspects = false;
    for (struct sequence_group *g = core->first_group; g != NULL; g = g->next) {
        g->is_suspect = g->is_suspect && !has_got_past(g);
        core->has_suspects |= g->is_suspect;
        if (g->is_suspect && !sequence_group_is_held(g) && found == NULL)
            found = g;
    }
    return found;
}
