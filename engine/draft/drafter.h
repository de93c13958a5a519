/* Proposes tokens that may follow a history, so that one step of the model can check several of
 * them at once (speculative decoding).
 *
 * A proposal never changes what is generated. Each drafted position is sampled as if its draft were
 * not there: what is sampled follows from (seed, position) and the tokens before, so the drafts are
 * accepted for as long as each equals the token sampled in its place, and the first that differs is
 * replaced by it. So a drafter's proposals only decide how many tokens a step yields. They may be
 * wrong, but their ids must be in the vocabulary.
 *
 * A draft model would be a second model in the rank (engine/executor/rank.h), with its own weights
 * and its own KV pool, indexed by the same block ids as the first model's. Block tables, forks,
 * swaps and prefixes then serve both: the rank moves a block in both pools where it now moves one,
 * and a slot mapping is valid in either. Its drafter would answer from what the rank computed after
 * the last step, so that `propose` stays a lookup and never waits for a device. */
#ifndef QUIRE_ENGINE_DRAFT_DRAFTER_H
#define QUIRE_ENGINE_DRAFT_DRAFTER_H

#include "engine/kv/token_view.h"

#include <stdint.h>

struct drafter;

/* Engine thread only. */
struct drafter_ops {
    /* Fills out_tokens[0..n) with tokens that may follow the history, in order, and returns n, 0 to
     * max_tokens. The history holds at least one token. Called once per sampled token of a
     * sequence, so it must take only microseconds and allocate nothing. */
    int32_t (*propose)(struct drafter *drafter, const struct token_view *history,
                       int32_t max_tokens, int32_t *out_tokens);
    void (*destroy)(struct drafter *drafter);
};

struct drafter {
    const struct drafter_ops *ops;
};

#endif
