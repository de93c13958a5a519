#include "engine/core/step_commit.h"

#include "config/base/check.h"
#include "engine/core/beam_group.h"
#include "engine/core/core_groups.h"
#include "engine/core/core_stats.h"

/* Memory is too short for the sequence to go on. While its siblings wait for the scores that choice
 * 0 can no longer give, they end with it; none of them is in this step. Beams end together. */
static void end_failed(struct engine_core *core, struct sequence *sequence) {
    struct sequence_group *group = sequence->group;
    if (group->beams != NULL || (sequence->choice == 0 && sequence_group_is_scoring(group)))
        core_groups_end(core, group, FINISH_ERROR);
    else
        core_groups_end_choice(core, sequence, FINISH_ERROR);
}

static void close_if_finished(struct engine_core *core, struct sequence *sequence) {
    if (sequence->finish == FINISH_NONE)
        return;
    core_groups_retire(core, sequence);
    core_groups_close(core, sequence);
}

static void commit_token(struct engine_core *core, struct sequence *sequence,
                         const struct step_rows *rows, int32_t row, int64_t now_ns) {
    if (step_output_token(&core->output, sequence, rows, row) != 0) {
        end_failed(core, sequence);
        return;
    }
    core_stats_token(&core->stats, sequence, now_ns);
    core_groups_notify(core, sequence->group);
    close_if_finished(core, sequence);
}

static void fork_sequence(struct engine_core *core, const struct sequence *from,
                          struct sequence *to, int32_t num_tokens) {
    scheduler_fork(&core->scheduler, from, to, num_tokens);
    if (to->first_scheduled_ns == 0)
        to->first_scheduled_ns = from->first_scheduled_ns;
}

/* The tokens of a leader's row and of those that fork from it there. All fork before anyone can
 * end; the group lives until the last of them has its token. */
static void commit_joint(struct engine_core *core, struct sequence *leader,
                         const struct step_rows *rows, int64_t now_ns) {
    struct sequence **drawn = core->drawn;
    int32_t count = 0;
    struct sequence *next = leader;
    while (next != NULL) {
        drawn[count++] = next;
        next = sequence_group_next_fork(leader->group, next == leader ? -1 : next->choice);
    }
    for (int32_t i = 1; i < count; i++)
        fork_sequence(core, leader, drawn[i], leader->num_tokens);
    for (int32_t i = 0; i < count; i++)
        commit_token(core, drawn[i], rows, i, now_ns);
}

/* Those that wait for a lane, or lost their blocks, go on from what the leader has computed. One
 * that has drawn nothing yet computes the prompt's last token again, for its logits. */
static void fork_followers(struct engine_core *core, const struct sequence *leader) {
    const struct sequence_group *group = leader->group;
    int32_t num_left = group->max_running - sequence_group_count(group, SEQUENCE_RUNNING);
    struct sequence *s = sequence_group_find(group, 0, SEQUENCE_WAITING);
    for (; s != NULL && num_left > 0; num_left--) {
        int32_t common = sequence_common_tokens(leader, s);
        fork_sequence(core, leader, s, common < s->num_tokens ? common : s->num_tokens - 1);
        s = sequence_group_find(group, s->choice + 1, SEQUENCE_WAITING);
    }
}

static void commit_draws(struct engine_core *core, struct sequence *sequence,
                         const struct step_rows *rows, int64_t now_ns) {
    struct sequence_group *group = sequence->group;
    bool leads = sequence == sequence_group_leader(group);
    if (group->beams != NULL)
        beam_search_set_row(group->beams, sequence->choice, &rows->told[0]);
    if (leads && rows->count == 1)
        fork_followers(core, sequence);
    if (group->beams != NULL)
        return;
    if (leads)
        commit_joint(core, sequence, rows, now_ns);
    else
        commit_token(core, sequence, rows, 0, now_ns);
}

/* The entry's rows that score, and behind them those that draw. */
static void split_rows(const struct step_rows *rows, struct step_rows *out_scores,
                       struct step_rows *out_draws) {
    int32_t num_scores = rows->count;
    while (num_scores > 0 && rows->asked[num_scores - 1].target == SAMPLE_NO_TARGET)
        num_scores--;
    *out_scores = *rows;
    out_scores->count = num_scores;
    *out_draws = *rows;
    out_draws->asked += num_scores;
    out_draws->told += num_scores;
    out_draws->count -= num_scores;
}

static void commit(struct engine_core *core, const struct planned_sequence *entry,
                   const struct step_rows *rows, int64_t now_ns) {
    struct sequence *sequence = entry->sequence;
    struct sequence_group *group = sequence->group;
    struct step_rows scores, draws;
    split_rows(rows, &scores, &draws);
    core_stats_computed(&core->stats, entry);
    scheduler_commit(&core->scheduler, entry);
    if (sequence->choice == 0 && sequence_group_is_scoring(group)) {
        if (step_output_scores(&core->output, sequence, &scores) != 0) {
            end_failed(core, sequence);
            return;
        }
        core_groups_notify(core, group);
    }
    if (draws.count > 0)
        commit_draws(core, sequence, &draws, now_ns);
    else if (sequence_num_pending(sequence) == 0)
        core_groups_end(core, group, FINISH_LENGTH); /* max_tokens is 0: the prompt is done */
}

/* Of a sequence that is pooled; `sum` is NULL in the steps that have nothing to add. */
static void commit_pooled(struct engine_core *core, const struct planned_sequence *entry,
                          float *sum) {
    struct sequence *sequence = entry->sequence;
    int32_t hidden_size = core->config.limits->hidden_size;
    core_stats_computed(&core->stats, entry);
    scheduler_commit(&core->scheduler, entry);
    bool is_complete = sequence_num_pending(sequence) == 0;
    int status = 0;
    if (is_complete)
        status = step_output_embedding(&core->output, sequence, sum, hidden_size);
    else if (sum != NULL)
        status = sequence_keep_hidden_sum(sequence, sum, hidden_size);
    if (status != 0) {
        end_failed(core, sequence);
    } else if (is_complete) {
        core_groups_notify(core, sequence->group);
        close_if_finished(core, sequence);
    }
}

/* What the step left of the entry's pool; NULL: it has none. */
static float *hidden_sum_of(const struct engine_core *core, int32_t entry) {
    const int32_t *start = core->builder.hidden_sum_start + entry;
    size_t offset = (size_t)start[0] * (size_t)core->config.limits->hidden_size;
    return start[1] > start[0] ? core->result.hidden_sums + offset : NULL;
}

static struct step_rows rows_of(const struct engine_core *core, const struct batch *batch,
                                int32_t entry) {
    const int32_t *row_start = core->builder.row_start + entry;
    return (struct step_rows){
        .asked = batch->sample_rows + row_start[0],
        .told = core->result.rows + row_start[0],
        .count = row_start[1] - row_start[0],
        .listed = batch->listed_tokens,
        .listed_logprobs = core->result.listed_logprobs,
    };
}

/* Entries of one group follow each other in any order; a group is freed with its last sequence, and
 * none of its entries can come after that. */
static void commit_all(struct engine_core *core, const struct step_plan *plan,
                       const struct batch *batch, int64_t now_ns) {
    CHECK(core->result.num_sample_rows == batch->num_sample_rows);
    for (int32_t i = 0; i < plan->num_entries; i++) {
        const struct planned_sequence *entry = &plan->entries[i];
        const struct step_rows rows = rows_of(core, batch, i);
        if (sequence_params(entry->sequence)->pooling != POOLING_NONE)
            commit_pooled(core, entry, hidden_sum_of(core, i));
        else
            commit(core, entry, &rows, now_ns);
    }
}

/* The best hypotheses become the choices, all at once. */
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
            core_groups_notify(core, group);
            core_groups_close(core, choice);
            continue;
        }
        choice->finish = num_tokens == 0 ? FINISH_LENGTH : FINISH_ERROR;
        core_stats_finished(&core->stats, choice, now_ns);
        core_groups_push_end(core, choice);
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
            core_groups_end(core, group, FINISH_ERROR);
    }
}

void step_commit(struct engine_core *core, const struct step_plan *plan, const struct batch *batch,
                 int64_t now_ns) {
    commit_all(core, plan, batch, now_ns);
    advance_beams(core, now_ns);
}
