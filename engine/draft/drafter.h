/* Proposes tokens that may follow a history, so that one step of the model can check several of
 * them at once (speculative decoding).
 *
 * A proposal never changes what is generated. Each drafted position is sampled as if its draft were
 * not there: what is sampled follows from (seed, position) and the tokens before, so the drafts
 * are accepted for as long as each equals the token sampled in its place, and the first that does
 * not is replaced by it. Whatever a drafter proposes thus only decides how many tokens a step
 * yields; it may be wrong, but its ids must be ones of the vocabulary.
 *
 * Where a draft model would stand: a second model in the rank (engine/executor/rank.h), with
 * weights and a KV pool of its own that is indexed by the same block ids as the first model's.
 * Block tables, forks, swaps and prefixes then serve both: the rank moves a block of both pools
 * where it moves one, and a slot mapping is valid in either. Its drafter would answer from what
 * the rank computed behind the last step, so that `propose` stays a lookup and waits for no
 * device. */
#ifndef QUIRE_ENGINE_DRAFT_DRAFTER_H
#define QUIRE_ENGINE_DRAFT_DRAFTER_H

#include "engine/kv/token_view.h"

#include <stdint.h>

struct drafter;

/* Engine thread only. */
struct drafter_ops {
    /* Fills out_tokens[0..n) with tokens that may follow the history, in order, and returns n, 0
     * to max_tokens. The history holds at least one token. Called once per sampled token of a
     * sequence, so that it takes microseconds and allocates nothing. */
    int32_t (*propose)(struct drafter *drafter, const struct token_view *history,
                       int32_t max_tokens, int32_t *out_tokens);
    void (*destroy)(struct drafter *drafter);
};

struct drafter {
    const struct drafter_ops *ops;
};

#endif
