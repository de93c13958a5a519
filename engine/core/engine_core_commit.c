/* Applies the results of a step that has run, by walking its rows: appends sampled tokens, pushes
 * their events, forks siblings, advances beams, ends sequences. */
#include "engine/core/engine_core_private.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/core/beam_group.h"
#include "engine/core/core_stats.h"

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

static struct step_rows rows_of(const struct step *step, int32_t first, int32_t count) {
    return (struct step_rows){
        .requested = step->batch.sample_rows + first,
        .outputs = step->result.rows + first,
        .count = count,
        .listed = step->batch.listed_tokens,
        .listed_logprobs = step->result.listed_logprobs,
    };
}

static void append_token(struct engine_core *core, struct sequence *sequence,
                         const struct step_rows *rows, int64_t now_ns) {
    int32_t token = rows->outputs[0].token;
    if (step_output_token(&core->output, sequence, rows, 0) != 0) {
        end_failed(core, sequence);
        return;
    }
    core_stats_token(&core->stats, sequence, now_ns);
    speculation_append(&core->speculation, sequence, token);
    notify_pushed(core, sequence);
}

static void commit_token(struct engine_core *core, struct sequence *sequence,
                         const struct step *step, int32_t row, int64_t now_ns) {
    const struct step_rows rows = rows_of(step, row, 1);
    if (sequence_has_mirostat(sequence))
        sequence->mirostat_mu = rows.outputs[0].mirostat_mu;
    append_token(core, sequence, &rows, now_ns);
}

/* Appends the tokens that are forced; the next step computes them with the last one sampled. */
static void jump_forward(struct engine_core *core, struct sequence *sequence, int64_t now_ns) {
    while (sequence_can_jump(sequence)) {
        const struct sample_output forced = {.token = sequence->forced.tokens[0]};
        const struct step_rows rows = {.outputs = &forced, .count = 1};
        core->stats.jump_forward_tokens++;
        append_token(core, sequence, &rows, now_ns);
    }
}

static void fork_sequence(struct engine_core *core, const struct sequence *from,
                          struct sequence *to, int32_t num_tokens) {
    scheduler_fork(&core->scheduler, from, to, num_tokens);
    core_stats_forked(from, to);
}

/* Forks those that wait for a running slot, or lost their blocks: they continue from what the
 * leader has computed. One that has sampled nothing yet computes the prompt's last token again, for
 * its logits. Not while the leader is in flight, from which nothing forks: it then waits for them. */
static void fork_waiting(struct engine_core *core, const struct sequence *leader) {
    const struct sequence_group *group = leader->group;
    if (leader->in_flight.num_tokens > 0)
        return;
    int32_t num_left = group->max_running - sequence_group_count(group, SEQUENCE_RUNNING);
    struct sequence *s = sequence_group_find(group, 0, SEQUENCE_WAITING);
    for (; s != NULL && num_left > 0; num_left--) {
        int32_t common = sequence_common_tokens(leader, s);
        fork_sequence(core, leader, s, common < s->num_tokens ? common : s->num_tokens - 1);
        s = sequence_group_find(group, s->choice + 1, SEQUENCE_WAITING);
    }
}

/* Forks the choices that sample their first token from the leader's logits. All fork before anyone
 * can end. */
static void fork_choices(struct engine_core *core, const struct step *step,
                         const struct planned_sequence *entry) {
    const struct sequence *leader = entry->sequence;
    const struct step_row *forks = step->rows + entry->first_row + entry->num_scores + 1;
    for (int32_t i = 0; i < entry->num_forks; i++)
        fork_sequence(core, leader, forks[i].sequence, leader->num_tokens);
}

/* Appends what was sampled for the entry's rows. The sequence's own come first; with what follows a
 * draft that was not accepted, or the end of the sequence, nothing is done. */
static void commit_samples(struct engine_core *core, const struct step *step,
                           const struct planned_sequence *entry, int32_t num_accepted,
                           int64_t now_ns) {
    int32_t first = entry->first_row + entry->num_scores;
    int32_t num_rows = entry->num_samples + entry->num_forks;
    struct sequence *sequence = entry->sequence;
    if (entry->num_forks > 0)
        fork_choices(core, step, entry);
    else if (sequence == sequence_group_leader(sequence->group))
        fork_waiting(core, sequence);
    if (step->rows[first].kind == STEP_ROW_BEAM) {
        beam_search_set_row(sequence->group->beams, sequence->choice, &step->result.rows[first]);
        return;
    }
    for (int32_t i = 0; i < num_rows; i++) {
        const struct step_row *row = &step->rows[first + i];
        if (row->kind == STEP_ROW_VERIFY && i > num_accepted)
            continue;
        if (row->sequence->status != SEQUENCE_FINISHED)
            commit_token(core, row->sequence, step, first + i, now_ns);
    }
    for (int32_t i = entry->num_samples - 1; i < num_rows; i++) {
        jump_forward(core, step->rows[first + i].sequence, now_ns);
        speculation_propose(&core->speculation, step->rows[first + i].sequence);
    }
}

/* --- Entries of the plan ---------------------------------------------------------------------- */

/* Tells how far the prompt is, until there is a token. */
static void report_progress(struct engine_core *core, struct sequence *sequence) {
    const struct request *request = sequence->group->request;
    if (!request->reports_progress || sequence->choice != 0 ||
        sequence->num_tokens > request->num_prompt_tokens)
        return;
    if (step_output_progress(&core->output, sequence) == 0)
        engine_core_notify(core, sequence->group);
}

static void commit_rows(struct engine_core *core, const struct step *step,
                        const struct planned_sequence *entry, int32_t num_accepted,
                        int64_t now_ns) {
    struct sequence *sequence = entry->sequence;
    struct sequence_group *group = sequence->group;
    report_progress(core, sequence);
    if (sequence->choice == 0 && sequence_group_is_scoring(group)) {
        const struct step_rows scores = rows_of(step, entry->first_row, entry->num_scores);
        if (step_output_scores(&core->output, sequence, &scores) != 0) {
            end_failed(core, sequence);
            return;
        }
        engine_core_notify(core, group);
    }
    if (entry->num_samples > 0 && num_accepted >= 0)
        commit_samples(core, step, entry, num_accepted, now_ns);
    else if (sequence->num_computed == sequence->num_tokens)
        engine_core_end_group(core, group, FINISH_LENGTH); /* max_tokens is 0: the prompt is done */
}

/* Commits a prompt of which only the hidden states are requested; `sum` is NULL in the steps that
 * have nothing to add. */
static void commit_hidden_sum(struct engine_core *core, struct sequence *sequence, float *sum) {
    int32_t hidden_size = core->config.limits->hidden_size;
    bool is_complete = sequence->num_computed == sequence->num_tokens;
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
static float *hidden_sum_of(const struct engine_core *core, const struct step *step,
                            const struct planned_sequence *entry) {
    size_t width = (size_t)core->config.limits->hidden_size;
    return entry->hidden_sum < 0 ? NULL
                                 : step->result.hidden_sums + (size_t)entry->hidden_sum * width;
}

static void commit_entry(struct engine_core *core, const struct step *step,
                         const struct planned_sequence *entry, int64_t now_ns) {
    struct sequence *sequence = entry->sequence;
    if (sequence->status == SEQUENCE_FINISHED) {
        scheduler_discard(&core->scheduler, entry);
        return;
    }
    int32_t num_accepted = step_num_accepted(step, entry);
    core_stats_computed(&core->stats, entry, num_accepted);
    if (entry->num_drafts > 0)
        engine_stats_add_draft(&core->stats, entry->num_drafts, max_int32(num_accepted, 0));
    scheduler_commit(&core->scheduler, entry, num_accepted);
    if (sequence_params(sequence)->pooling != POOLING_NONE)
        commit_hidden_sum(core, sequence, hidden_sum_of(core, step, entry));
    else
        commit_rows(core, step, entry, num_accepted, now_ns);
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

/* Entries of one group follow each other in any order; the group lives until the last of them is
 * committed. Beams advance once all of them have their row, which may take several steps. */
void engine_core_commit(struct engine_core *core, const struct step *step, int64_t now_ns) {
    CHECK(step->result.num_sample_rows == step->batch.num_sample_rows);
    for (int32_t i = 0; i < step->plan.num_entries; i++) {
        struct sequence_group *group = step->plan.entries[i].sequence->group;
        commit_entry(core, step, &step->plan.entries[i], now_ns);
        engine_core_leave_flight(core, group);
    }
    advance_beams(core, now_ns);
}
