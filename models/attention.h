/* The attention of a layer, from the normalised hidden states to what the output product reads. */
#ifndef QUIRE_MODELS_ATTENTION_H
#define QUIRE_MODELS_ATTENTION_H

#include "models/forward_pass.h"

/* qkv = x Wqkv; q and k are normalised where the model does that, and rotated; k and v join the
 * cache; out = attention of q over it: [tokens, q width]. Overwrites `wide`; `out` may be x.
 * Collective where a norm goes over the heads of several ranks. */
void attention_forward(const struct forward_pass *pass, int32_t layer, const struct buffer *x,
                       const struct buffer *out);

#endif
