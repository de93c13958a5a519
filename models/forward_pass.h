/* Private to models/: one pass of a step's tokens through the layers, and the parts of a layer. Of
 * the rank's thread. */
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
                               where forward_pass_add_to_hidden needs it */
    struct buffer attended; /* [tokens, q width]: the attention's result while `narrow` still serves
                               the FFN; empty without parallel_residual */
};

/* out = or += the norm of each of num_rows rows as wide as the hidden states, with these weights.
 */
void forward_pass_norm(const struct forward_pass *pass, const struct buffer *weight, const void *x,
                       void *out, int32_t num_rows, bool accumulate);

/* hidden += residual_scale (x W^T + bias), or with post_norm, which then is a norm's weights,
 * hidden += norm(x W^T + bias); of a row-parallel product. Overwrites `scratch`, which is not x,
 * where the model has norms after its branches or several ranks. Collective where there are several
 * ranks. */
void forward_pass_add_to_hidden(const struct forward_pass *pass,
                                const struct projection *projection, const struct buffer *x,
                                const struct buffer *post_norm, const struct buffer *scratch);

/* qkv = x Wqkv; q and k are normalised where the model does that, and rotated; k and v join the
 * cache; out = attention of q over it: [tokens, q width]. Overwrites `wide`; `out` may be x.
 * Collective where a norm goes over the heads of several ranks. */
void forward_pass_attention(const struct forward_pass *pass, int32_t layer, const struct buffer *x,
                            const struct buffer *out);

/* hidden += (act(gate) * up) Wdown, where gate | up = x Wgate_up; the sum as
 * forward_pass_add_to_hidden says. Overwrites `wide` and `narrow`; x may be `narrow`. Collective
 * where there are several ranks. */
void forward_pass_ffn(const struct forward_pass *pass, int32_t layer, const struct buffer *x);

#endif
