/* The products of a layer with its weight matrices, each at one place: what is common to all of
 * them, as their division among ranks, or an adapter to come, is a matter of this file. */
#ifndef QUIRE_MODELS_PROJECTION_H
#define QUIRE_MODELS_PROJECTION_H

#include "models/weights/weights.h"

struct forward_pass; /* forward_pass.h */

/* out = x W^T + bias, for the pass' tokens; of a column-parallel product. `out` has a row of the
 * rank's outputs for each. */
void projection_apply(const struct forward_pass *pass, const struct projection *projection,
                      const struct buffer *x, const struct buffer *out);

/* hidden += residual_scale (x W^T + bias), or with post_norm, which then is a norm's weights,
 * hidden += norm(x W^T + bias); of a row-parallel product. Overwrites `scratch`, which is not x,
 * where the model has norms after its branches or several ranks. Collective where there are several
 * ranks. */
void projection_add_to_hidden(const struct forward_pass *pass, const struct projection *projection,
                              const struct buffer *x, const struct buffer *post_norm,
                              const struct buffer *scratch);

#endif
