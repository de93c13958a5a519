/* Speculative decoding, as far as the core sees it: after each step asks the drafter what may
 * follow, decides how much of it the next step is to verify, and learns from what was sampled
 * instead. Drafts are verified by sampling every drafted position as usual: they never change what
 * is generated. Engine thread only. */
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

/* Learns what a token costs from a step that took so long; steps with prompts say nothing. */
void speculation_note_step(struct speculation *speculation, const struct step_plan *plan,
                           int64_t step_ns);
/* Compares a token that was appended with what was drafted for its place. */
void speculation_append(struct speculation *speculation, struct sequence *sequence, int32_t token);
/* Drafts what may follow the sequence, once the last token of a step was appended. */
void speculation_propose(struct speculation *speculation, struct sequence *sequence);

/* Returns whether a running sequence wants drafts verified in the next step, which is then planned
 * when its tokens are known. */
bool speculation_waits(const struct speculation *speculation, const struct scheduler *scheduler);

#endif
