/* Applies the results of a step that has run, by walking its rows: appends sampled tokens, pushes
 * their events, forks siblings, advances beams, ends sequences. */
#include "engine/core/engine_core_private.h"

#include "config/base/check.h"
#include "config/base/log.h"
#include "config/base/numbers.h"
#include "engine/core/core_stats.h"

#include <string.h>

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

/* --- Sampled tokens --- */

static struct step_rows rows_of(const struct step *step, int32_t first, int32_t count) {
    return (struct step_rows){
        .requested = step->batch.sample_rows + first,
        .outputs = step->result.rows + first,
        .count = count,
        .listed = step->batch.listed_tokens,
        .listed_logprobs = step->result.listed_logprobs,
    };
}

/* Does what follows a token that was appended, or one that memory was too short for. */
static void note_token(struct engine_core *core, struct sequence *sequence, int status,
                       int32_t token, int64_t now_ns) {
    if (status != 0) {
        end_failed(core, sequence);
        return;
    }
    core_stats_token(&core->stats, sequence, now_ns);
    speculation_append(&core->speculation, sequence, token);
    notify_pushed(core, sequence);
}

/* Appends the tokens that are forced; the next step computes them with the last one sampled. */
static void jump_forward(struct engine_core *core, struct sequence *sequence, int64_t now_ns) {
    while (sequence_can_jump(sequence)) {
        const struct sample_output forced = {.token = sequence->forced.tokens[0]};
        const struct step_rows rows = {.outputs = &forced, .count = 1};
        core->stats.jump_forward_tokens++;
        int status = step_output_token(&core->output, sequence, &rows, 0);
        note_token(core, sequence, status, forced.token, now_ns);
    }
}

static void fork_sequence(struct engine_core *core, const struct sequence *from,
                          struct sequence *to, int32_t num_tokens) {
    scheduler_fork(&core->scheduler, from, to, num_tokens);
    core_stats_forked(from, to);
}

/* Forks those that wait for a running slot, or lost their blocks: they continue from what the
 * leader has computed. One that has sampled nothing yet computes the prompt's last token again, for
 * its logits. Not while the leader is in flight, from which nothing forks: it then waits for them.
 */
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
    const struct step_rows rows = rows_of(step, first, num_rows);
    for (int32_t i = 0; i < num_rows; i++) {
        const struct step_row *row = &step->rows[first + i];
        struct sequence *s = row->sequence;
        if ((row->kind == STEP_ROW_VERIFY && i > num_accepted) || s->status == SEQUENCE_FINISHED)
            continue;
        if (sequence_has_mirostat(s))
            s->mirostat_mu = rows.outputs[i].mirostat_mu;
        int status = step_output_token(&core->output, s, &rows, i);
        note_token(core, s, status, rows.outputs[i].token, now_ns);
    }
    for (int32_t i = entry->num_samples - 1; i < num_rows; i++) {
        jump_forward(core, step->rows[first + i].sequence, now_ns);
        speculation_propose(&core->speculation, step->rows[first + i].sequence);
    }
}

/* --- Entries of the plan --- */

/* Tells how far the prompt is, until there is a token. */
static void report_progress(struct engine_core *core, struct sequence *sequence) {
    const struct request *request = sequence->group->request;
    if (!request->reports_progress || sequence->choice != 0 ||
        sequence->num_tokens > request->num_prompt_tokens)
        return;
    if (step_output_progress(&core->output, sequence) == 0)
        engine_core_notify(core, sequence->group);
}

/* Pushes the scores of the prompt's tokens that the entry has computed. Returns -1 when memory is
 * short: the sequence has ended. */
static int commit_scores(struct engine_core *core, const struct step *step,
                         const struct planned_sequence *entry) {
    const struct step_rows scores = rows_of(step, entry->first_row, entry->num_scores);
    if (step_output_scores(&core->output, entry->sequence, &scores) != 0) {
        end_failed(core, entry->sequence);
        return -1;
    }
    engine_core_notify(core, entry->sequence->group);
    return 0;
}

/* Commits a prompt of which only the hidden states are requested; `sum` is NULL in the steps that
 * have nothing to add. */
static void commit_hidden_sum(struct engine_core *core, struct sequence *sequence, float *sum) {
    int32_t hidden_size = core->config.schedule.kv.limits->hidden_size;
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
    size_t width = (size_t)core->config.schedule.kv.limits->hidden_size;
    return entry->hidden_sum < 0 ? NULL
                                 : step->result.hidden_sums + (size_t)entry->hidden_sum * width;
}

/* Ends a request of no tokens (max_tokens is 0). Conversations are saved by such a request. */
static void end_prompt(struct engine_core *core, struct sequence *sequence) {
    block_manager_offer(&core->scheduler.blocks, &sequence->table);
    engine_core_end_group(core, sequence->group, FINISH_LENGTH);
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
    speculation_note_drafts(&core->speculation, entry, num_accepted);
    scheduler_commit(&core->scheduler, entry, num_accepted);
    if (sequence_params(sequence)->pooling != POOLING_NONE) {
        commit_hidden_sum(core, sequence, hidden_sum_of(core, step, entry));
        return;
    }
    report_progress(core, sequence);
    if (sequence->choice == 0 && sequence_group_is_scoring(sequence->group) &&
        commit_scores(core, step, entry) != 0)
        return;
    if (entry->num_samples > 0 && num_accepted >= 0)
        commit_samples(core, step, entry, num_accepted, now_ns);
    else if (sequence->num_computed == sequence->num_tokens)
        end_prompt(core, sequence);
}

/* --- Beams --- */

static void end_slots(struct scheduler *scheduler, struct sequence_group *group,
                      const struct beam_move *moves) {
    for (int32_t slot = 0; slot < group->num_sequences; slot++) {
        struct sequence *sequence = &group->sequences[slot];
        if (moves[slot].from >= 0 || sequence->is_idle)
            continue;
        scheduler_idle(scheduler, sequence);
        sequence->is_idle = true;
    }
}

/* The slots forked from are continued themselves, so none of them is overwritten. */
static int fork_slots(struct scheduler *scheduler, struct sequence_group *group,
                      const struct beam_move *moves) {
    for (int32_t slot = 0; slot < group->num_sequences; slot++) {
        if (moves[slot].from < 0 || moves[slot].from == slot)
            continue;
        const struct sequence *from = &group->sequences[moves[slot].from];
        struct sequence *to = &group->sequences[slot];
        if (sequence_copy_output(to, from) != 0)
            return -1;
        to->is_idle = false;
        scheduler_fork(scheduler, from, to, from->num_computed);
    }
    return 0;
}

/* Takes one step of a group whose beams all have their row: beams fork, end and get their next
 * tokens. Returns 0; 1 when the search is over; -1 when memory is short. */
static int advance_group(struct scheduler *scheduler, struct sequence_group *group) {
    struct beam_move moves[BEAM_MAX_CANDIDATES];
    int status = beam_search_advance(group->beams, moves);
    if (status != 0)
        return status;
    end_slots(scheduler, group, moves);
    if (fork_slots(scheduler, group, moves) != 0)
        return -1;
    for (int32_t slot = 0; slot < group->num_sequences; slot++)
        if (moves[slot].from >= 0 &&
            sequence_append(&group->sequences[slot], moves[slot].token) != 0)
            return -1;
    return 0;
}

/* Makes a row as if the token had been sampled. */
static struct sample_output row_of(const struct beam_hypothesis *hypothesis, int32_t index) {
    const struct token_record *record = &hypothesis->tokens[index];
    struct sample_output row = {
        .token = record->token,
        .logprob = record->logprob,
        .rank = record->rank,
        .num_top = record->num_top,
    };
    for (int32_t i = 0; i < record->num_top; i++) {
        row.top_tokens[i] = hypothesis->top[record->first_top + i].token;
        row.top_logprobs[i] = hypothesis->top[record->first_top + i].logprob;
    }
    return row;
}

/* Makes a choice's sequence the hypothesis of that rank and pushes its tokens, once the search is
 * over and no sequence holds blocks any more. Returns how many tokens these are, or -1 when memory
 * is short. With fewer hypotheses than choices, which a tiny vocabulary can lead to, it is 0. */
static int32_t output_hypothesis(struct step_output *output, struct sequence *choice) {
    struct beam_search *beams = choice->group->beams;
    static const struct sample_row nothing_listed;
    struct beam_hypothesis hypothesis;
    choice->num_tokens = sequence_num_prompt(choice);
    if (choice->choice >= beam_search_num_hypotheses(beams))
        return 0;
    if (beam_search_hypothesis(beams, choice->choice, &hypothesis) != 0)
        return -1;
    for (int32_t i = 0; i < hypothesis.num_tokens; i++) {
        const struct sample_output row = row_of(&hypothesis, i);
        const struct step_rows rows = {.requested = &nothing_listed, .outputs = &row, .count = 1};
        if (step_output_token(output, choice, &rows, 0) != 0)
            return -1;
    }
    CHECK(choice->finish != FINISH_NONE);
    return hypothesis.num_tokens;
}

/* Makes the best hypotheses the choices, all at once. */
static void finish_beams(struct engine_core *core, struct sequence_group *group, int64_t now_ns) {
    int32_t num_choices = sequence_group_num_choices(group);
    for (int32_t i = 0; i < group->num_sequences; i++)
        scheduler_remove(&core->scheduler, &group->sequences[i]);
    for (int32_t i = 0; i < num_choices; i++) {
        struct sequence *choice = &group->sequences[i];
        int32_t num_tokens = output_hypothesis(&core->output, choice);
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
        int status = advance_group(&core->scheduler, group);
        if (status > 0)
            finish_beams(core, group, now_ns);
        else if (status < 0)
            engine_core_end_group(core, group, FINISH_ERROR);
    }
}

/* --- A step --- */

/* Keeps what a token takes when many are computed at once, as in recomputation; fewer cost more
 * each. */
static void note_cost(struct scheduler *scheduler, int32_t num_tokens, int64_t step_ns) {
    if (num_tokens == 0)
        return;
    double token_ns = (double)step_ns / num_tokens;
    if (scheduler->token_ns == 0)
        scheduler->token_ns = token_ns;
    else if (num_tokens >= LARGE_STEP || token_ns < scheduler->token_ns)
        scheduler->token_ns += (token_ns - scheduler->token_ns) / 8;
}

/* Learns what the step took. */
static void note_step(struct engine_core *core, const struct step *step, int64_t now_ns) {
    int64_t step_ns = now_ns - max_int64(step->submitted_ns, core->last_collected_ns);
    /* What waits for drafts is not planned while another step runs: that is a cost of theirs. */
    int64_t cycle_ns = core->last_commit_ns > 0 ? now_ns - core->last_commit_ns : step_ns;
    core->num_losses = 0;
    core->last_collected_ns = now_ns;
    core->last_commit_ns = now_ns;
    if (step->plan.num_draft_inputs == 0) {
        note_cost(&core->scheduler, step->plan.num_tokens, step_ns);
        step_cost_add(&core->scheduler.step_cost, &step->plan.work, step_ns);
    }
    speculation_note_step(&core->speculation, &step->plan, cycle_ns);
    core_stats_step(&core->stats, step->plan.num_tokens, now_ns);
}

static void log_step(const struct engine_core *core, const struct step *step, int64_t now_ns) {
    const struct block_pool *pool = &core->scheduler.blocks.pool;
    log_debug("step %llu: sequences %d, tokens %d, rows %d, blocks %d of %d, %lld us",
              (unsigned long long)core->stats.step, step->plan.num_entries, step->plan.num_tokens,
              step->batch.num_sample_rows, pool->num_used, pool->num_blocks,
              (long long)(now_ns - step->submitted_ns) / 1000);
}

/* Entries of one group follow each other in any order; the group lives until the last of them is
 * committed. Beams advance once all of them have their row, which may take several steps. */
void engine_core_commit(struct engine_core *core, struct step *step) {
    CHECK(step->result.num_sample_rows == step->batch.num_sample_rows);
    int64_t now_ns = core->config.clock(core->config.context);
    note_step(core, step, now_ns);
    log_step(core, step, now_ns);
    for (int32_t i = 0; i < step->plan.num_entries; i++) {
        struct sequence_group *group = step->plan.entries[i].sequence->group;
        commit_entry(core, step, &step->plan.entries[i], now_ns);
        engine_core_leave_flight(core, group);
    }
    advance_beams(core, now_ns);
    step_timer_end(&core->timer, STEP_PART_COMMIT, &step->times);
    if (core->config.stopwatch != NULL)
        core_stats_step_times(&core->stats, &step->times);
}
