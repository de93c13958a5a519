/* The feed-forward network of a layer. */
#ifndef QUIRE_MODELS_FFN_H
#define QUIRE_MODELS_FFN_H

#include "models/forward_pass.h"

/* hidden += (act(gate) * up) Wdown, where gate | up = x Wgate_up; the sum as
 * projection_add_to_hidden says. Overwrites `wide` and `narrow`; x may be `narrow`. Collective
 * where there are several ranks. */
void ffn_forward(const struct forward_pass *pass, int32_t layer, const struct buffer *x);

#endif
