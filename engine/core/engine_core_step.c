/* The steps of the core: ends what was cancelled, plans and submits, waits, and has the results
 * applied (engine_core_commit.c).
 *
 * With async scheduling a second step is planned from counts and submitted while the first one
 * runs: its results are applied while the second runs. */
#include "engine/core/engine_core_private.h"

#include "config/base/numbers.h"
#include "engine/core/core_stats.h"

#define LOSSES_IN_A_ROW_NS (60 * INT64_C(1000000000)) /* of an idle engine */

/* --- Before a step --- */

static bool has_signal(const struct engine_core *core, const struct sequence_group *group,
                       enum request_signal signal) {
    return core->config.has_signal(core->config.context, group->request, signal);
}

/* Returns false when the group was stalled for too long. */
static bool update_stall(struct engine_core *core, struct sequence_group *group, int64_t now_ns) {
    if (!group->started || !has_signal(core, group, REQUEST_UNREAD)) {
        group->stalled = false;
        return true;
    }
    if (!group->stalled) {
        group->stalled = true;
        group->stalled_since_ns = now_ns;
    }
    int64_t deadline_ns = group->stalled_since_ns + core->config.stall_timeout_ns;
    if (now_ns >= deadline_ns)
        return false;
    engine_core_note_stall(core, deadline_ns);
    return true;
}

static bool has_unpushed_end(const struct sequence_group *group) {
    for (int32_t i = 0; i < sequence_group_num_choices(group); i++)
        if (group->sequences[i].status == SEQUENCE_FINISHED && !group->sequences[i].end_pushed)
            return true;
    return false;
}

static bool is_past(int64_t deadline_ns, int64_t now_ns) {
    return deadline_ns != 0 && now_ns >= deadline_ns;
}

/* Returns why the group is to end now, or FINISH_NONE. */
static enum finish_reason find_end(struct engine_core *core, struct sequence_group *group,
                                   int64_t now_ns) {
    const struct request *request = group->request;
    if (has_unpushed_end(group))
        return FINISH_ERROR;
    if (has_signal(core, group, REQUEST_CANCELLED) || !update_stall(core, group, now_ns))
        return FINISH_ABORT;
    if (group->started)
        return is_past(request->deadline_ns, now_ns) ? FINISH_DEADLINE : FINISH_NONE;
    bool is_late =
        is_past(request->deadline_ns, now_ns) || is_past(request->queue_deadline_ns, now_ns);
    return is_late ? FINISH_QUEUE_TIMEOUT : FINISH_NONE;
}

static void note_deadlines(struct engine_core *core, const struct sequence_group *group) {
    const struct request *request = group->request;
    if (request->deadline_ns != 0)
        engine_core_note_deadline(core, request->deadline_ns);
    if (request->queue_deadline_ns != 0 && !group->started)
        engine_core_note_deadline(core, request->queue_deadline_ns);
}

static void sweep_groups(struct engine_core *core, int64_t now_ns) {
    core->num_stalled = 0;
    core->num_storing = 0;
    core->first_deadline_ns = 0;
    struct sequence_group *group = core->first_group, *next;
    for (; group != NULL; group = next) {
        next = group->next;
        enum finish_reason reason = find_end(core, group, now_ns);
        if (reason != FINISH_NONE)
            engine_core_end_group(core, group, reason);
        else
            note_deadlines(core, group);
        if (reason == FINISH_NONE)
            engine_core_await_stored(core, group, now_ns);
    }
}

/* --- Submitting --- */

static struct step *step_in_flight(struct engine_core *core, int32_t index) {
    return &core->steps[(core->first_in_flight + index) % core->num_steps];
}

/* A sequence of a step in flight is in no other one of a pipeline. */
static bool waits_for_drafts(const struct engine_core *core) {
    return core->scheduler.config.num_steps_abreast <= 1 &&
           speculation_waits(&core->speculation, &core->scheduler);
}

/* Returns whether a plan may be made now: what is to be preempted must not be in flight, what is to
 * be drafted for must be known, and a suspect's step is alone. */
static bool can_plan(const struct engine_core *core) {
    if (core->failed || core->is_lost || core->num_in_flight == core->num_steps)
        return false;
    if (core->has_suspects && core->num_in_flight > 0)
        return false;
    return core->num_in_flight == 0 || (!core->scheduler.must_collect && !waits_for_drafts(core));
}

static void note_submitted(struct engine_core *core, const struct step_plan *plan, int64_t now_ns) {
    for (int32_t i = 0; i < plan->num_entries; i++) {
        struct sequence_group *group = plan->entries[i].sequence->group;
        group->num_in_flight++;
        engine_core_leave_queue(core, group);
        core_stats_scheduled(&core->stats, &plan->entries[i], now_ns);
    }
}

/* What sequences need of the slots comes before anything that they could compute. */
static void plan_step(struct engine_core *core, struct step_plan *plan) {
    struct scheduler *scheduler = &core->scheduler;
    bool must_write = adapter_slots_must_write(&core->adapters);
    scheduler_run_alone(scheduler, must_write ? NULL : engine_core_find_suspect(core));
    if (must_write)
        *plan = (struct step_plan){.entries = plan->entries};
    else
        scheduler_plan(scheduler, plan);
}

/* Without tokens, adapters are written only while nothing runs, for which a step would wait. */
static bool is_empty(const struct engine_core *core, const struct step_plan *plan) {
    bool writes = core->num_in_flight == 0 && adapter_slots_have_writes(&core->adapters);
    return plan->num_entries == 0 && !block_manager_has_moves(&core->scheduler.blocks) && !writes;
}

/* Returns false when there is nothing to run. */
static bool submit_step(struct engine_core *core) {
    struct scheduler *scheduler = &core->scheduler;
    struct step_timer *timer = &core->timer;
    if (!can_plan(core))
        return false;
    int64_t now_ns = core->config.clock(core->config.context);
    struct step *step = step_in_flight(core, core->num_in_flight);
    plan_step(core, &step->plan);
    step_timer_end(timer, STEP_PART_SCHEDULE, &timer->next);
    if (is_empty(core, &step->plan))
        return false;
    batch_builder_build(&core->builder, step, &scheduler->blocks);
    adapter_slots_write(&core->adapters,
                        step->plan.num_entries > 0 ? ADAPTER_STEP_BYTES : ADAPTER_IDLE_BYTES, step);
    step_timer_end(timer, STEP_PART_BUILD, &timer->next);
    note_submitted(core, &step->plan, now_ns);
    scheduler_submit(scheduler, &step->plan);
    adapter_slots_submitted(&core->adapters);
    step->submitted_ns = now_ns;
    core->num_in_flight++;
    step_timer_end(timer, STEP_PART_SCHEDULE, &timer->next);
    core->executor->ops->submit(core->executor, &step->batch, &step->result);
    step_timer_launched(timer, &step->times);
    return true;
}

/* --- Collecting --- */

/* Completes the inputs of the oldest step in flight, once all before it are committed. */
static void supply_step(struct engine_core *core) {
    struct step *step = step_in_flight(core, 0);
    if (core->num_in_flight == 0 || !step->awaits_supply)
        return;
    batch_builder_supply(&core->builder, step);
    step_timer_end(&core->timer, STEP_PART_BUILD, &step->times);
    core->executor->ops->supply(core->executor);
    step_timer_end(&core->timer, STEP_PART_LAUNCH, &step->times);
}

/* Waits for the oldest step in flight. */
static struct step *collect_step(struct engine_core *core) {
    struct step *step = step_in_flight(core, 0);
    struct error err = {0};
    if (!core->is_lost)
        supply_step(core);
    int status = core->executor->ops->wait(core->executor, &err);
    step_timer_waited(&core->timer, &step->times, core->num_in_flight == 1);
    if (status != 0)
        engine_core_note_failure(core, &err);
    if (core->config.collected != NULL)
        core->config.collected(core->config.context, step, &err);
    core->first_in_flight = (core->first_in_flight + 1) % core->num_steps;
    core->num_in_flight--;
    adapter_slots_collected(&core->adapters, status == 0);
    scheduler_collect(&core->scheduler);
    return step;
}

/* Throws the results of a step away that was collected. */
static void discard_step(struct engine_core *core, const struct step *step) {
    for (int32_t i = 0; i < step->plan.num_entries; i++) {
        struct sequence_group *group = step->plan.entries[i].sequence->group;
        scheduler_discard(&core->scheduler, &step->plan.entries[i]);
        engine_core_leave_flight(core, group);
    }
}

/* Throws away what was in flight, the oldest step of which is collected. */
static void lose_steps(struct engine_core *core, const struct step *step) {
    core->lost_since_ns = max_int64(step->submitted_ns, core->last_collected_ns);
    while (step != NULL) {
        engine_core_note_loss(core, step);
        discard_step(core, step);
        step = core->num_in_flight > 0 ? collect_step(core) : NULL;
    }
    engine_core_blame(core);
    scheduler_restart(&core->scheduler);
}

static void check_executor(struct engine_core *core) {
    struct error err = {0};
    if (core->executor->ops->check(core->executor, &err) == 0)
        return;
    engine_core_report(core, EXECUTOR_CHECKED, &err);
    engine_core_note_failure(core, &err);
    if (!core->is_lost)
        return;
    int64_t now_ns = core->config.clock(core->config.context);
    bool is_in_a_row = now_ns - core->lost_since_ns < LOSSES_IN_A_ROW_NS;
    core->num_losses = is_in_a_row ? core->num_losses + 1 : 1;
    core->lost_since_ns = now_ns;
    scheduler_restart(&core->scheduler);
}

/* --- A step --- */

/* Steps in flight come last: late inputs are needed only for what has not ended. */
void engine_core_abort(struct engine_core *core, enum finish_reason reason) {
    struct sequence_group *group = core->first_group, *next;
    for (; group != NULL; group = next) {
        next = group->next;
        engine_core_end_group(core, group, reason);
    }
    while (core->num_in_flight > 0)
        discard_step(core, collect_step(core));
    if (core->is_lost)
        scheduler_restart(&core->scheduler);
    core_stats_gauges(&core->stats, &core->scheduler);
}

bool engine_core_step(struct engine_core *core) {
    mask_jobs_update(&core->mask_jobs, core->first_group, &core->stats,
                     core->config.clock(core->config.context));
    if (core->is_lost)
        engine_core_restart(core);
    else if (core->num_in_flight == 0 && !core->failed)
        check_executor(core);
    if (!core->is_lost && !core->failed)
        block_manager_poll(&core->scheduler.blocks);
    step_timer_start(&core->timer);
    sweep_groups(core, core->config.clock(core->config.context));
    step_timer_end(&core->timer, STEP_PART_LOOP, &core->timer.next);
    while (submit_step(core))
        ;
    bool collects = core->num_in_flight > 0;
    if (!collects && !core->is_lost && !core->failed)
        engine_core_note_found(core, core->config.clock(core->config.context));
    struct step *step = collects ? collect_step(core) : NULL;
    if (collects && core->is_lost) {
        lose_steps(core, step);
    } else if (collects && core->failed) {
        discard_step(core, step);
    } else if (collects) {
        engine_core_commit(core, step);
        supply_step(core);
    }
    if (core->failed)
        engine_core_abort(core, FINISH_ERROR);
    if (!collects || core->is_lost || engine_core_is_idle(core)) {
        step_timer_stop(&core->timer);
        core->last_commit_ns = 0;
    }
    core_stats_gauges(&core->stats, &core->scheduler);
    adapter_slots_count(&core->adapters, core->first_group);
    core->stats.is_restarting = core->is_lost;
    return collects || core->is_lost;
}
