#include "engine/core/beam_group.h"

#include "config/base/check.h"

#include <string.h>

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

int beam_group_advance(struct scheduler *scheduler, struct sequence_group *group) {
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

int32_t beam_group_output(struct step_output *output, struct sequence *choice) {
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
