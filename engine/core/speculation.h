/* Speculative decoding as the core sees it: after each step it asks the drafter what may follow,
 * decides how many drafts the next step verifies, and learns from what was sampled in their place.
 * Drafts are verified by sampling every drafted position as usual: they never change what is
 * generated. Engine thread only. */
#ifndef QUIRE_ENGINE_CORE_SPECULATION_H
#define QUIRE_ENGINE_CORE_SPECULATION_H

#include "engine/draft/draft_policy.h"
#include "engine/draft/drafter.h"
#include "engine/stats/engine_stats.h"
#include "engine/schedule/scheduler.h"
#include "models/tokenizer/tokenizer.h"

struct grammar_vocabulary;

struct speculation {
    struct drafter *drafter; /* NULL: nothing is drafted, and the functions below do nothing */
    const struct serving_limits *limits;
    const struct tokenizer *tokenizer;
    const struct grammar_vocabulary *vocabulary;
    struct draft_cost cost;
    int32_t num_decoding; /* sequences of the last step that only decoded */
};

/* Learns the cost of a token from the duration of a step; steps with prompts are ignored. */
void speculation_note_step(struct speculation *speculation, const struct step_plan *plan,
                           int64_t step_ns);
/* Compares an appended token with the draft for its position. */
void speculation_append(struct speculation *speculation, struct sequence *sequence, int32_t token);
/* Drafts what may follow the sequence, after a step's last token was appended. */
void speculation_propose(struct speculation *speculation, struct sequence *sequence);

/* Returns whether a running sequence wants drafts verified in the next step. That step is then
 * planned only once the sequence's tokens are known. */
bool speculation_waits(const struct speculation *speculation, const struct scheduler *scheduler);

#endif
