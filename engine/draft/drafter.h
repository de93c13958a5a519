/* Looks up tokens that may follow a history, so that one step of the model can check several of
 * them at once (speculative decoding).
 *
 * A proposal never changes what is generated. Each drafted position is sampled as if its draft were
 * not there: what is sampled follows from (seed, position) and the tokens before, so the drafts are
 * accepted for as long as each equals the token sampled in its place, and the first that differs is
 * replaced by it. So a drafter's proposals only decide how many tokens a step yields. They may be
 * wrong, but their ids must be in the vocabulary.
 *
 * A draft model is not a drafter, which is only a lookup and never waits for a device: it is a
 * second model in the rank (engine/executor/rank_draft.h), which proposes at the beginning of the
 * step that checks its drafts. */
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
