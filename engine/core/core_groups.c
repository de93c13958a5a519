#include "engine/core/core_groups.h"

#include "config/base/check.h"
#include "engine/core/core_stats.h"

#define RETRY_NS INT64_C(100000000)

void core_groups_notify(struct engine_core *core, const struct sequence_group *group) {
    core->config.notify(core->config.context, group->request);
}

void core_groups_link(struct engine_core *core, struct sequence_group *group) {
    group->previous = core->last_group;
    *(core->last_group != NULL ? &core->last_group->next : &core->first_group) = group;
    core->last_group = group;
}

void core_groups_unlink(struct engine_core *core, struct sequence_group *group) {
    *(group->previous != NULL ? &group->previous->next : &core->first_group) = group->next;
    *(group->next != NULL ? &group->next->previous : &core->last_group) = group->previous;
}

void core_groups_leave_queue(struct engine_core *core, struct sequence_group *group) {
    if (group->started)
        return;
    group->started = true;
    core->num_queued_requests--;
    core->num_queued_tokens -= group->request->num_prompt_tokens;
}

void core_groups_close(struct engine_core *core, struct sequence *sequence) {
    struct sequence_group *group = sequence->group;
    CHECK(sequence->end_pushed && sequence->status == SEQUENCE_FINISHED);
    sequence_release(sequence);
    core->num_choices--;
    if (--group->num_open > 0)
        return;
    core_groups_leave_queue(core, group);
    core_groups_unlink(core, group);
    sequence_group_destroy(group);
}

void core_groups_retire(struct engine_core *core, struct sequence *sequence) {
    scheduler_remove(&core->scheduler, sequence);
    core_stats_finished(&core->stats, sequence, core->config.clock(core->config.context));
}

void core_groups_note_stall(struct engine_core *core, int64_t deadline_ns) {
    if (core->num_stalled == 0 || deadline_ns < core->stall_deadline_ns)
        core->stall_deadline_ns = deadline_ns;
    core->num_stalled++;
}

void core_groups_push_end(struct engine_core *core, struct sequence *sequence) {
    if (step_output_end(&core->output, sequence) != 0) {
        core_groups_note_stall(core, core->config.clock(core->config.context) + RETRY_NS);
        return;
    }
    core_groups_notify(core, sequence->group);
    core_groups_close(core, sequence);
}

void core_groups_end_choice(struct engine_core *core, struct sequence *sequence,
                            enum finish_reason reason) {
    sequence->finish = reason;
    core_groups_retire(core, sequence);
    if (sequence->group->beams != NULL)
        sequence->num_tokens = sequence_num_prompt(sequence); /* nothing of it was told */
    core_groups_push_end(core, sequence);
}

void core_groups_end(struct engine_core *core, struct sequence_group *group,
                     enum finish_reason reason) {
    int32_t left = group->num_open;
    for (int32_t i = sequence_group_num_choices(group); i < group->num_sequences; i++)
        if (group->sequences[i].status != SEQUENCE_FINISHED)
            scheduler_remove(&core->scheduler, &group->sequences[i]);
    for (int32_t i = 0; left > 0; i++) {
        struct sequence *sequence = &group->sequences[i];
        if (sequence->end_pushed)
            continue;
        left--;
        if (sequence->status == SEQUENCE_FINISHED)
            core_groups_push_end(core, sequence);
        else
            core_groups_end_choice(core, sequence, reason);
    }
}
