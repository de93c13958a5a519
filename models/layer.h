/* Private to models/: a layer of the forward pass, from its two branches. Rank's thread only. */
#ifndef QUIRE_MODELS_LAYER_H
#define QUIRE_MODELS_LAYER_H

#include "models/forward_pass.h"

/* hidden += the layer's attention, hidden += its FFN. Overwrites all other activations. Collective
 * if there are several ranks. */
void layer_run(const struct forward_pass *pass, int32_t layer);

/* For a layer of whose result only these rows are read, which do not decrease: of the others it
 * stores keys and values. Returns where these rows' hidden states are, one after another, until the
 * next layer; or NULL, having done nothing, where the rows are too many for it to be of use, or the
 * layer is not of the kind that can. `rows` stays valid until the step was waited for. */
const void *layer_run_rows(const struct forward_pass *pass, int32_t layer, const int32_t *rows,
                           int32_t num_rows);

#endif
