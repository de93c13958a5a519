/* Speculative decoding as the core sees it: after each step it decides how many drafts the next
 * step verifies, and whether they are looked up in the history (drafter.h) or proposed by the draft
 * model, and learns from what was sampled in their place. Drafts are verified by sampling every
 * drafted position as usual: they never change what is generated.
 *
 * What is looked up costs nothing but its verification. What the draft model proposes takes a pass
 * of it for each draft, at the beginning of the step that verifies them. How much longer such a
 * step is follows from the sequences that decode: it is measured, for each power of two of their
 * number, by comparison with steps without drafts, of which there is one now and then. A draft
 * model that does not pay is tried again for a small part of the time. No clock but that of the
 * steps' durations is read. Engine thread only. */
#ifndef QUIRE_ENGINE_CORE_SPECULATION_H
#define QUIRE_ENGINE_CORE_SPECULATION_H

#include "engine/draft/draft_policy.h"
#include "engine/draft/drafter.h"
#include "engine/stats/engine_stats.h"
#include "engine/schedule/scheduler.h"
#include "models/tokenizer/tokenizer.h"

struct grammar_vocabulary;

#define SPECULATION_MAGNITUDES 16 /* powers of two */

/* What a draft of the draft model costs where that many sequences decode. */
struct model_cost {
    double plain_ns;     /* of a step without drafts; 0: not measured yet */
    float share;         /* of that, for one draft of each sequence, verified */
    float input_share;   /* of that, for a token that the draft model catches up with */
    bool is_measured;    /* the share */
    int32_t num_plain;   /* steps without drafts, up to a few */
    int32_t num_in_row;  /* of these since the last step with some */
    int32_t num_drafted; /* steps with drafts since the last one without */
};

struct speculation {
    struct drafter *drafter; /* NULL: nothing is looked up */
    bool has_model;          /* there is a draft model. Without either the functions do nothing */
    bool has_mtp;            /* it is an MTP layer, which computes accepted drafts again */
    const struct serving_limits *limits;
    const struct tokenizer *tokenizer;
    const struct grammar_vocabulary *vocabulary;
    struct draft_cost cost; /* of verifying */
    int32_t num_decoding;   /* sequences of the last step that only decoded */
    struct model_cost model_costs[SPECULATION_MAGNITUDES];
    struct draft_acceptance model_acceptance; /* of all sequences: where each begins */
    int32_t num_known;                        /* drafts that it follows from, up to some */
    /* The time that drafts of the draft model have saved, less what they took, plus a small part of
     * all time: what trials may take. Bounded on both sides. */
    double balance_ns;
    double saved_ns; /* by each accepted draft of the last step; 0: not known */
};

void speculation_init(struct speculation *speculation);

/* Learns the costs of drafts from the time since the step before was committed; steps with prompts
 * are ignored. */
void speculation_note_step(struct speculation *speculation, const struct step_plan *plan,
                           int64_t step_ns);
/* Learns how many of the draft model's drafts of an entry were accepted. */
void speculation_note_drafts(struct speculation *speculation, const struct planned_sequence *entry,
                             int32_t num_accepted);
/* Compares an appended token with the draft for its position. */
void speculation_append(struct speculation *speculation, struct sequence *sequence, int32_t token);
/* Drafts what may follow the sequence, after a step's last token was appended. */
void speculation_propose(struct speculation *speculation, struct sequence *sequence);

/* Returns whether a running sequence wants drafts verified in the next step. That step is then
 * planned only once the sequence's tokens are known. */
bool speculation_waits(const struct speculation *speculation, const struct scheduler *scheduler);

#endif
