#include "engine/core/speculation.h"

#include "engine/batch/sampling_inputs.h"

#include <stdlib.h>
#include <string.h>

void speculation_note_step(struct speculation *speculation, const struct step_plan *plan,
                           int64_t step_ns) {
    if (speculation->drafter == NULL || plan->num_entries == 0)
        return;
    for (int32_t i = 0; i < plan->num_entries; i++)
        if (plan->entries[i].num_tokens - plan->entries[i].num_drafts != 1)
            return;
    speculation->num_decoding = plan->num_entries;
    draft_cost_add(&speculation->cost, plan->num_tokens, step_ns);
}

/* A draft that was not verified counts as well: it would have been right or wrong. */
void speculation_append(struct speculation *speculation, struct sequence *sequence, int32_t token) {
    if (speculation->drafter == NULL || sequence->num_drafts == 0)
        return;
    bool is_right = sequence->drafts[0] == token;
    draft_acceptance_add(&sequence->acceptance, is_right);
    sequence->num_drafts = is_right ? sequence->num_drafts - 1 : 0;
    memmove(sequence->drafts, sequence->drafts + 1,
            (size_t)sequence->num_drafts * sizeof(*sequence->drafts));
}

/* After a draft the next row needs the surprise of the token that was sampled there, which is not
 * known before: with Mirostat there are none. */
static bool can_draft(const struct sequence *sequence) {
    return sequence->status == SEQUENCE_RUNNING && sequence->group->beams == NULL &&
           sequence_params(sequence)->pooling == POOLING_NONE && !sequence_has_mirostat(sequence) &&
           sequence_num_generated(sequence) > 0;
}

static bool has_room(struct sequence *sequence, int32_t max_drafts) {
    if (sequence->drafts == NULL)
        sequence->drafts = malloc((size_t)max_drafts * sizeof(*sequence->drafts));
    return sequence->drafts != NULL;
}

void speculation_propose(struct speculation *speculation, struct sequence *sequence) {
    struct drafter *drafter = speculation->drafter;
    sequence->num_drafts = 0;
    sequence->num_wanted_drafts = 0;
    if (drafter == NULL || !can_draft(sequence) ||
        !has_room(sequence, speculation->limits->num_speculative_tokens))
        return;
    const struct token_view history = sequence_tokens(sequence);
    int32_t count = drafter->ops->propose(drafter, &history,
                                          sampling_inputs_max_drafts(sequence, speculation->limits),
                                          sequence->drafts);
    sequence->num_drafts = sampling_inputs_cut_drafts(
        sequence, speculation->tokenizer, speculation->vocabulary, sequence->drafts, count);
    int32_t num_tokens = speculation->num_decoding > 0 ? speculation->num_decoding : 1;
    sequence->num_wanted_drafts = draft_policy_num_tokens(
        &sequence->acceptance, draft_cost_share(&speculation->cost, num_tokens),
        sequence->num_drafts);
}

/* One that computes its history again, or ends with the token in flight, has none verified yet. */
static bool wants_drafts_next(const struct sequence *sequence) {
    return sequence->status == SEQUENCE_RUNNING && sequence->num_wanted_drafts > 0 &&
           (sequence_num_pending(sequence) == 1 || sequence->in_flight.num_drafts > 0);
}

bool speculation_waits(const struct speculation *speculation, const struct scheduler *scheduler) {
    if (speculation->drafter == NULL)
        return false;
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        for (int32_t i = 0; i < g->num_sequences; i++)
            if (!sequence_group_is_held(g) && wants_drafts_next(&g->sequences[i]))
                return true;
    return false;
}
