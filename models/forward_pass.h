/* Private to models/: one pass of a step's tokens through the layers; what their parts work on
 * (attention.h, ffn.h, projection.h). Of the rank's thread. */
#ifndef QUIRE_MODELS_FORWARD_PASS_H
#define QUIRE_MODELS_FORWARD_PASS_H

#include "kernels/backend.h"
#include "models/weights/model_shard.h"
#include "models/weights/weights.h"

struct forward_pass {
    struct backend *backend;
    const struct model_config *config;
    const struct model_shard *shard; /* sizes are of this, not of the configuration */
    const struct weights *weights;
    struct kv_cache *cache;
    int32_t num_tokens; /* of the step: rows of every activation */

    /* Activations of the backend's type. `hidden` lives through the step; `wide` holds qkv, then
     * gate_up, and in between what is on its way to `hidden`; `narrow` holds in turn what each
     * product reads. */
    struct buffer hidden;   /* [tokens, hidden] */
    struct buffer narrow;   /* [tokens, max(hidden, q width, intermediate)] */
    struct buffer wide;     /* [tokens, max(qkv width, 2 * intermediate)], and as wide as hidden
                               where projection_add_to_hidden needs it */
    struct buffer attended; /* [tokens, q width]: the attention's result while `narrow` still serves
                               the FFN; empty without parallel_residual */
};

/* out = or += the norm of each of num_rows rows as wide as the hidden states, with these weights.
 */
void forward_pass_norm(const struct forward_pass *pass, const struct buffer *weight, const void *x,
                       void *out, int32_t num_rows, bool accumulate);

#endif
