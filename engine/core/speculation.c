#include "engine/core/speculation.h"

#include "config/base/numbers.h"
#include "engine/batch/sampling_inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- What drafts of the draft model cost --- */

#define FIRST_PLAIN 4     /* steps without drafts before the first with some; the fastest counts */
#define PLAIN_EVERY 32    /* one step in that many is without ... */
#define RARE_WEIGHT 0.5   /* ... which counts more: the one before was long ago */
#define COST_WEIGHT 0.125 /* of another step, in what is known of them */
/* Before they are measured: a small model next to a large one. */
#define UNKNOWN_SHARE 0.3f
#define UNKNOWN_INPUT_SHARE (1.0f / 16)
#define LEAST_INPUT_SHARE (1.0 / 1024)
#define FEW_PLAIN 4 /* in a row, after which a step with drafts is a trial, and rare as well */
#define MOST_SHARE 4.0
/* In a step that measures the share: the draft model also computes what it missed. */
#define MOST_INPUTS 2

#define LEAST_GAIN 1.05f /* below, the draft model is only tried */
#define TRIAL_PART 0.005 /* of the time without drafts, for trials */
#define MOST_BALANCE 4.0 /* steps without drafts */
#define LEAST_BALANCE (-16.0)

#define SHORT_ANSWER 128 /* tokens */

#define FIRST_MODEL_RATE 0.6f
#define TYPICAL_DRAFTS 64 /* over which what is accepted is averaged */
#define FIRST_DRAFTS 32   /* that show what the model is worth, whatever they cost ... */
#define FEW_DRAFTS 2      /* ... a few in each step, as where their cost is not measured yet */

void speculation_init(struct speculation *speculation) {
    speculation->model_acceptance.rate = FIRST_MODEL_RATE;
    for (int i = 0; i < SPECULATION_MAGNITUDES; i++) {
        speculation->model_costs[i].share = UNKNOWN_SHARE;
        speculation->model_costs[i].input_share = UNKNOWN_INPUT_SHARE;
    }
}

static struct model_cost *cost_of(struct speculation *speculation, int32_t num_decoding) {
    int magnitude = 0;
    while (magnitude < SPECULATION_MAGNITUDES - 1 && num_decoding >> (magnitude + 1) > 0)
        magnitude++;
    return &speculation->model_costs[magnitude];
}

static void add_to_balance(struct speculation *speculation, const struct model_cost *cost,
                           double ns) {
    double balance_ns = speculation->balance_ns + ns;
    balance_ns = fmin(balance_ns, MOST_BALANCE * cost->plain_ns);
    speculation->balance_ns = fmax(balance_ns, LEAST_BALANCE * cost->plain_ns);
}

static void note_plain(struct speculation *speculation, struct model_cost *cost, double step_ns) {
    double weight = cost->num_in_row == 0 ? RARE_WEIGHT : COST_WEIGHT;
    if (cost->num_plain == 0)
        cost->plain_ns = step_ns;
    else if (cost->num_plain < FIRST_PLAIN)
        cost->plain_ns = fmin(cost->plain_ns, step_ns);
    else
        cost->plain_ns += weight * (step_ns - cost->plain_ns);
    cost->num_plain = min_int32(cost->num_plain + 1, FIRST_PLAIN);
    cost->num_drafted = 0;
    cost->num_in_row++;
    add_to_balance(speculation, cost, TRIAL_PART * step_ns);
}

static void note_model_step(struct speculation *speculation, struct model_cost *cost,
                            const struct step_plan *plan, double step_ns) {
    int32_t num_passes = 0;
    if (cost->plain_ns <= 0)
        return;
    for (int32_t i = 0; i < plan->num_entries; i++)
        num_passes = max_int32(num_passes, plan->entries[i].num_drafts);
    double longer_ns = step_ns - cost->plain_ns;
    bool is_trial = cost->num_in_row > FEW_PLAIN;
    cost->num_drafted++;
    cost->num_in_row = 0;
    if (speculation->num_known >= FIRST_DRAFTS) {
        add_to_balance(speculation, cost, -longer_ns);
        speculation->saved_ns = cost->plain_ns / plan->num_entries;
    }
    int32_t most_inputs =
        speculation->has_mtp ? speculation->limits->num_speculative_tokens + 1 : MOST_INPUTS;
    int32_t num_missed = plan->num_draft_inputs - most_inputs * plan->num_entries;
    if (num_missed > 0) {
        double missed_ns = longer_ns - num_passes * (double)cost->share * cost->plain_ns;
        double part = fmax(missed_ns / cost->plain_ns / num_missed, LEAST_INPUT_SHARE);
        cost->input_share += (float)(COST_WEIGHT * (part - (double)cost->input_share));
    }
    if (num_passes == 0 || num_missed > 0)
        return;
    double share = fmin(fmax(longer_ns / (cost->plain_ns * num_passes), 0), MOST_SHARE);
    double weight = !cost->is_measured ? 1.0 : is_trial ? RARE_WEIGHT : COST_WEIGHT;
    cost->share += (float)(weight * (share - (double)cost->share));
    cost->is_measured = true;
}

void speculation_note_step(struct speculation *speculation, const struct step_plan *plan,
                           int64_t step_ns) {
    int32_t num_entries = plan->num_entries;
    bool drafts = speculation->drafter != NULL || speculation->has_model;
    speculation->saved_ns = 0;
    if (!drafts || num_entries == 0)
        return;
    for (int32_t i = 0; i < num_entries; i++)
        if (plan->entries[i].num_tokens - plan->entries[i].num_drafts != 1)
            return;
    struct model_cost *cost = cost_of(speculation, num_entries);
    speculation->num_decoding = num_entries;
    double ns = (double)max_int64(step_ns, 1); /* a coarse clock stands still */
    if (plan->num_draft_inputs > 0) {
        note_model_step(speculation, cost, plan, ns);
        return;
    }
    draft_cost_add(&speculation->cost, plan->num_tokens, step_ns);
    if (plan->num_tokens == num_entries)
        note_plain(speculation, cost, ns);
}

/* --- What is accepted --- */

void speculation_note_drafts(struct speculation *speculation, const struct planned_sequence *entry,
                             int32_t num_accepted) {
    float *typical = &speculation->model_acceptance.rate;
    if (entry->num_draft_inputs == 0)
        return;
    if (num_accepted > 0)
        add_to_balance(speculation, cost_of(speculation, speculation->num_decoding),
                       num_accepted * speculation->saved_ns);
    for (int32_t i = 0; i < entry->num_drafts && i <= num_accepted; i++) {
        bool is_right = i < num_accepted;
        draft_acceptance_add(&entry->sequence->model_acceptance, is_right);
        speculation->num_known = min_int32(speculation->num_known + 1, TYPICAL_DRAFTS);
        *typical += ((is_right ? 1.0f : 0.0f) - *typical) / (float)speculation->num_known;
    }
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

/* --- Drafts for the next step --- */

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

static void look_up(const struct speculation *speculation, struct sequence *sequence) {
    struct drafter *drafter = speculation->drafter;
    if (drafter == NULL || !has_room(sequence, speculation->limits->num_speculative_tokens))
        return;
    const struct token_view history = sequence_tokens(sequence);
    int32_t count = drafter->ops->propose(drafter, &history,
                                          sampling_inputs_max_drafts(sequence, speculation->limits),
                                          sequence->drafts);
    sequence->num_drafts = sampling_inputs_cut_drafts(
        sequence, speculation->tokenizer, speculation->vocabulary, sequence->drafts, count);
}

/* Returns the share where that many sequences decode; where it is not measured yet, that of fewer
 * sequences. */
static float share_of(struct speculation *speculation, int32_t num_decoding) {
    const struct model_cost *cost = cost_of(speculation, num_decoding);
    while (!cost->is_measured && cost > speculation->model_costs)
        cost--;
    return cost->share;
}

/* Returns how many tokens of the sequence the draft model may catch up with, where drafts save that
 * part of a step for each token: what the tokens to come will repay. There will be as many as there
 * were, or as a short answer has. */
static int32_t most_missed(const struct model_cost *cost, const struct sequence *sequence,
                           int32_t num_decoding, double part) {
    int32_t num_left = sequence->max_tokens - sequence->num_tokens;
    int32_t num_to_come = max_int32(sequence_num_generated(sequence), SHORT_ANSWER);
    double saved = part * min_int32(num_to_come, num_left) / num_decoding;
    return (int32_t)fmin(saved / (double)cost->input_share, INT32_MAX / 2);
}

/* Returns how many drafts of the draft model to verify: as many as are worth more than least_gain,
 * or one that is tried. Sets how much it may have to catch up with. */
static int32_t want_model_drafts(struct speculation *speculation, struct sequence *sequence,
                                 int32_t num_decoding, float least_gain) {
    struct draft_acceptance *acceptance = &sequence->model_acceptance;
    struct model_cost *cost = cost_of(speculation, num_decoding);
    if (!speculation->has_model || sampling_inputs_need_drafts(sequence))
        return 0;
    if (acceptance->rate < 0) /* its first proposal */
        *acceptance = speculation->model_acceptance;
    if (cost->num_plain < FIRST_PLAIN || cost->num_drafted >= PLAIN_EVERY)
        return 0;
    int32_t most = speculation->limits->num_speculative_tokens;
    if (speculation->num_known < FIRST_DRAFTS || !cost->is_measured)
        most = min_int32(most, FEW_DRAFTS);
    sequence->most_missed = most_missed(cost, sequence, 1, 1);
    if (speculation->num_known < FIRST_DRAFTS)
        return most;
    float share = share_of(speculation, num_decoding);
    int32_t count = draft_policy_num_tokens(acceptance, share, most);
    float gain = draft_policy_gain(acceptance, share, count);
    sequence->most_missed = most_missed(cost, sequence, num_decoding, 1 - 1 / (double)gain);
    if (count > 0 && gain >= LEAST_GAIN)
        return gain > least_gain ? count : 0;
    double balance = speculation->balance_ns / cost->plain_ns;
    sequence->most_missed = (int32_t)fmax(balance / (double)cost->input_share, 0);
    return balance >= (double)share && least_gain <= 1 ? 1 : 0;
}

void speculation_propose(struct speculation *speculation, struct sequence *sequence) {
    sequence->num_drafts = 0;
    sequence->num_wanted_drafts = 0;
    sequence->wants_model_drafts = false;
    if ((speculation->drafter == NULL && !speculation->has_model) || !can_draft(sequence))
        return;
    look_up(speculation, sequence);
    int32_t num_tokens = max_int32(speculation->num_decoding, 1);
    float share = draft_cost_share(&speculation->cost, num_tokens);
    int32_t found = draft_policy_num_tokens(&sequence->acceptance, share, sequence->num_drafts);
    float gain = draft_policy_gain(&sequence->acceptance, share, found);
    int32_t proposed = want_model_drafts(speculation, sequence, num_tokens, gain);
    sequence->wants_model_drafts = proposed > 0 && sequence->num_missed <= sequence->most_missed;
    sequence->num_wanted_drafts = sequence->wants_model_drafts ? proposed : found;
}

/* One that computes its history again, or ends with the token in flight, has none verified yet. */
static bool wants_drafts_next(const struct sequence *sequence) {
    return sequence->status == SEQUENCE_RUNNING && sequence->num_wanted_drafts > 0 &&
           (sequence_num_pending(sequence) == 1 || sequence->in_flight.num_drafts > 0);
}

bool speculation_waits(const struct speculation *speculation, const struct scheduler *scheduler) {
    if (speculation->drafter == NULL && !speculation->has_model)
        return false;
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        for (int32_t i = 0; i < g->num_sequences; i++)
            if (!sequence_group_is_held(g) && wants_drafts_next(&g->sequences[i]))
                return true;
    return false;
}
