/* A step of the core: ends what was cancelled, plans, runs the executor, and applies the results:
 * appends sampled tokens, pushes their events, forks siblings, advances beams, ends sequences. */
#include "engine/core/engine_core_private.h"

#include "config/base/check.h"
#include "engine/core/beam_group.h"
#include "engine/core/core_stats.h"

#define LARGE_STEP 32 /* tokens */

/* Ends a sequence that memory is too short to continue. While its siblings wait for the scores
 * that choice 0 can no longer give, they end with it; none of them is in this step. Beams end
 * together. */
static void end_failed(struct engine_core *core, struct sequence *sequence) {
    struct sequence_group *group = sequence->group;
    if (group->beams != NULL || (sequence->choice == 0 && sequence_group_is_scoring(group)))
        engine_core_end_group(core, group, FINISH_ERROR);
    else
        engine_core_end_choice(core, sequence, FINISH_ERROR);
}

/* Reports that an event of the sequence was pushed: its last one, if its finish is set. */
static void notify_pushed(struct engine_core *core, struct sequence *sequence) {
    engine_core_notify(core, sequence->group);
    if (sequence->finish == FINISH_NONE)
        return;
    engine_core_retire(core, sequence);
    engine_core_close(core, sequence);
}

/* --- Sampled tokens --------------------------------------------------------------------------- */

static void commit_token(struct engine_core *core, struct sequence *sequence,
                         const struct step_rows *rows, int32_t row, int64_t now_ns) {
    if (step_output_token(&core->output, sequence, rows, row) != 0) {
        end_failed(core, sequence);
        return;
    }
    core_stats_token(&core->stats, sequence, now_ns);
    notify_pushed(core, sequence);
}

static void fork_sequence(struct engine_core *core, const struct sequence *from,
                          struct sequence *to, int32_t num_tokens) {
    scheduler_fork(&core->scheduler, from, to, num_tokens);
    core_stats_forked(from, to);
}

/* Forks those that wait for a running slot, or lost their blocks: they continue from what the
 * leader has computed. One that has sampled nothing yet computes the prompt's last token again, for
 * its logits. */
static void fork_waiting(struct engine_core *core, const struct sequence *leader) {
    const struct sequence_group *group = leader->group;
    int32_t num_left = group->max_running - sequence_group_count(group, SEQUENCE_RUNNING);
    struct sequence *s = sequence_group_find(group, 0, SEQUENCE_WAITING);
    for (; s != NULL && num_left > 0; num_left--) {
        int32_t common = sequence_common_tokens(leader, s);
        fork_sequence(core, leader, s, common < s->num_tokens ? common : s->num_tokens - 1);
        s = sequence_group_find(group, s->choice + 1, SEQUENCE_WAITING);
    }
}

/* Commits the leader's token, and those of the choices that fork from it at their first token, in
 * the order in which the batch has their rows. All fork before anyone can end; the group lives
 * until the last of them has its token. */
static void commit_leader(struct engine_core *core, struct sequence *leader,
                          const struct step_rows *rows, int64_t now_ns) {
    struct sequence **forked = core->forked;
    int32_t count = 0;
    struct sequence *next = leader;
    while (next != NULL) {
        forked[count++] = next;
        next = sequence_group_next_fork(leader->group, next == leader ? -1 : next->choice);
    }
    for (int32_t i = 1; i < count; i++)
        fork_sequence(core, leader, forked[i], leader->num_tokens);
    for (int32_t i = 0; i < count; i++)
        commit_token(core, forked[i], rows, i, now_ns);
}

static void commit_samples(struct engine_core *core, struct sequence *sequence,
                           const struct step_rows *samples, int64_t now_ns) {
    bool leads = sequence == sequence_group_leader(sequence->group);
    if (leads && samples->count == 1)
        fork_waiting(core, sequence);
    if (sequence->group->beams != NULL)
        beam_search_set_row(sequence->group->beams, sequence->choice, &samples->outputs[0]);
    else if (leads)
        commit_leader(core, sequence, samples, now_ns);
    else
        commit_token(core, sequence, samples, 0, now_ns);
}

/* --- Entries of the plan ---------------------------------------------------------------------- */

/* Splits the entry's rows into those that score, and behind them those that sample. */
static void split_rows(const struct engine_core *core, const struct batch *batch, int32_t entry,
                       struct step_rows *out_scores, struct step_rows *out_samples) {
    int32_t begin = core->builder.row_start[entry], end = core->builder.row_start[entry + 1];
    int32_t first_sample = end;
    while (first_sample > begin && batch->sample_rows[first_sample - 1].target == SAMPLE_NO_TARGET)
        first_sample--;
    *out_scores = (struct step_rows){
        .requested = batch->sample_rows + begin,
        .outputs = core->result.rows + begin,
        .count = first_sample - begin,
        .listed = batch->listed_tokens,
        .listed_logprobs = core->result.listed_logprobs,
    };
    *out_samples = *out_scores;
    out_samples->requested = batch->sample_rows + first_sample;
    out_samples->outputs = core->result.rows + first_sample;
    out_samples->count = end - first_sample;
}

static void commit_rows(struct engine_core *core, struct sequence *sequence,
                        const struct step_rows *scores, const struct step_rows *samples,
                        int64_t now_ns) {
    struct sequence_group *group = sequence->group;
    if (sequence->choice == 0 && sequence_group_is_scoring(group)) {
        if (step_output_scores(&core->output, sequence, scores) != 0) {
            end_failed(core, sequence);
            return;
        }
        engine_core_notify(core, group);
    }
    if (samples->count > 0)
        commit_samples(core, sequence, samples, now_ns);
    else if (sequence_num_pending(sequence) == 0)
        engine_core_end_group(core, group, FINISH_LENGTH); /* max_tokens is 0: the prompt is done */
}

/* Commits a prompt of which only the hidden states are requested; `sum` is NULL in the steps that
 * have nothing to add. */
static void commit_hidden_sum(struct engine_core *core, struct sequence *sequence, float *sum) {
    int32_t hidden_size = core->config.limits->hidden_size;
    bool is_complete = sequence_num_pending(sequence) == 0;
    int status = 0;
    if (is_complete)
        status = step_output_embedding(&core->output, sequence, sum, hidden_size);
    else if (sum != NULL)
        status = sequence_keep_hidden_sum(sequence, sum, hidden_size);
    if (status != 0)
        end_failed(core, sequence);
    else if (is_complete)
        notify_pushed(core, sequence);
}

/* Returns the entry's hidden sum after the step; NULL: it has none. */
static float *hidden_sum_of(const struct engine_core *core, int32_t entry) {
    const int32_t *start = core->builder.hidden_sum_start + entry;
    size_t offset = (size_t)start[0] * (size_t)core->config.limits->hidden_size;
    return start[1] > start[0] ? core->result.hidden_sums + offset : NULL;
}

/* --- Beams ------------------------------------------------------------------------------------ */

/* Makes the best hypotheses the choices, all at once. */
static void finish_beams(struct engine_core *core, struct sequence_group *group, int64_t now_ns) {
    int32_t num_choices = sequence_group_num_choices(group);
    for (int32_t i = 0; i < group->num_sequences; i++)
        scheduler_remove(&core->scheduler, &group->sequences[i]);
    for (int32_t i = 0; i < num_choices; i++) {
        struct sequence *choice = &group->sequences[i];
        int32_t num_tokens = beam_group_output(&core->output, choice);
        core_stats_hypothesis(&core->stats, choice, num_tokens, now_ns);
        if (num_tokens > 0) {
            core_stats_finished(&core->stats, choice, now_ns);
            engine_core_notify(core, group);
            engine_core_close(core, choice);
            continue;
        }
        choice->finish = num_tokens == 0 ? FINISH_LENGTH : FINISH_ERROR;
        core_stats_finished(&core->stats, choice, now_ns);
        engine_core_push_end(core, choice);
    }
}

static void advance_beams(struct engine_core *core, int64_t now_ns) {
    struct sequence_group *group = core->first_group, *next;
    for (; group != NULL; group = next) {
        next = group->next;
        if (group->beams == NULL || group->status != GROUP_RUNNING ||
            !beam_search_is_ready(group->beams))
            continue;
        int status = beam_group_advance(&core->scheduler, group);
        if (status > 0)
            finish_beams(core, group, now_ns);
        else if (status < 0)
            engine_core_end_group(core, group, FINISH_ERROR);
    }
}

/* Commits the plan's entries. Those of one group follow each other in any order; a group is freed
 * with its last sequence, and none of its entries can come after that. Beams advance once all of
 * them have their row, which may take several steps. */
static void commit(struct engine_core *core, const struct step_plan *plan,
                   const struct batch *batch, int64_t now_ns) {
    CHECK(core->result.num_sample_rows == batch->num_sample_rows);
    for (int32_t i = 0; i < plan->num_entries; i++) {
        const struct planned_sequence *entry = &plan->entries[i];
        struct sequence *sequence = entry->sequence;
        struct step_rows scores, samples;
        split_rows(core, batch, i, &scores, &samples);
        core_stats_computed(&core->stats, entry);
        scheduler_commit(&core->scheduler, entry);
        if (sequence_params(sequence)->pooling != POOLING_NONE)
            commit_hidden_sum(core, sequence, hidden_sum_of(core, i));
        else
            commit_rows(core, sequence, &scores, &samples, now_ns);
    }
    advance_beams(core, now_ns);
}

/* --- A step ----------------------------------------------------------------------------------- */

/* Returns false when the group was stalled for too long. */
static bool update_stall(struct engine_core *core, struct sequence_group *group, int64_t now_ns) {
    size_t pending = group->started ? token_stream_pending_bytes(&group->request->stream) : 0;
    if (pending <= TOKEN_STREAM_STALL_BYTES) {
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

static void sweep_groups(struct engine_core *core, int64_t now_ns) {
    core->num_stalled = 0;
    struct sequence_group *group = core->first_group, *next;
    for (; group != NULL; group = next) {
        next = group->next;
        if (has_unpushed_end(group))
            engine_core_end_group(core, group, FINISH_ERROR);
        else if (atomic_load(&group->request->cancelled) || !update_stall(core, group, now_ns))
            engine_core_end_group(core, group, FINISH_ABORT);
    }
}

/* Keeps what a token takes when many are computed at once, as in recomputation; fewer cost more
 * each. */
static void note_cost(struct scheduler *scheduler, int64_t step_ns) {
    if (scheduler->plan.num_tokens == 0)
        return;
    double token_ns = (double)step_ns / scheduler->plan.num_tokens;
    if (scheduler->token_ns == 0)
        scheduler->token_ns = token_ns;
    else if (scheduler->plan.num_tokens >= LARGE_STEP || token_ns < scheduler->token_ns)
        scheduler->token_ns += (token_ns - scheduler->token_ns) / 8;
}

bool engine_core_step(struct engine_core *core) {
    struct scheduler *scheduler = &core->scheduler;
    int64_t begin_ns = core->config.clock(core->config.context);
    sweep_groups(core, begin_ns);
    const struct step_plan *plan = scheduler_plan(scheduler);
    if (core->failed || (plan->num_entries == 0 && !block_manager_has_moves(&scheduler->blocks))) {
        core_stats_gauges(&core->stats, scheduler);
        return false;
    }

    for (int32_t i = 0; i < plan->num_entries; i++) {
        engine_core_leave_queue(core, plan->entries[i].sequence->group);
        core_stats_scheduled(&core->stats, &plan->entries[i], begin_ns);
    }
    const struct batch *batch = batch_builder_build(&core->builder, plan, &scheduler->blocks);
    core->result.num_sample_rows = batch->num_sample_rows;
    core->executor->ops->submit(core->executor, batch, &core->result);
    core->failed = core->executor->ops->wait(core->executor, &core->error) != 0;
    scheduler_end_step(scheduler);

    if (core->failed) {
        engine_core_abort(core, FINISH_ERROR);
        return true;
    }
    int64_t end_ns = core->config.clock(core->config.context);
    note_cost(scheduler, end_ns - begin_ns);
    core_stats_step(&core->stats, scheduler, end_ns);
    commit(core, plan, batch, end_ns);
    core_stats_gauges(&core->stats, scheduler);
    return true;
}
