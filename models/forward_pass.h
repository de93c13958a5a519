/* Private to models/: one pass of a step's tokens through the layers, and the parts of a layer.
 * Rank's thread only. */
#ifndef QUIRE_MODELS_FORWARD_PASS_H
#define QUIRE_MODELS_FORWARD_PASS_H

#include "kernels/backend.h"
#include "models/kv_groups.h"
#include "models/lora/lora_slots.h"
#include "models/weights/model_shard.h"
#include "models/weights/weights.h"

struct forward_pass {
    struct backend *backend;
    const struct model_config *config;
    const struct model_shard *shard; /* sizes are those of the shard, not of the configuration */
    const struct weights *weights;
    struct kv_cache *cache;
    struct kv_place places[MODEL_MAX_LAYERS]; /* in the cache, of the rank's layers */
    const struct lora_slots *lora;            /* NULL: no room for adapters */
    bool has_adapters;                        /* some sequence of the step uses one */
    int32_t num_tokens;                       /* of the step: rows of every activation */

    /* Activations of the backend's type. `hidden` lives through the step. `wide` holds qkv, then
     * gate_up, and in between what will be added to `hidden`. `narrow` holds in turn the input of
     * each product. */
    struct buffer hidden;   /* [tokens, hidden] */
    struct buffer narrow;   /* [tokens, max(hidden, q width, intermediate, shared size)] */
    struct buffer wide;     /* [tokens, max(qkv width, 2 * intermediate)], and as wide as hidden
                               where forward_pass_add_to_hidden needs it */
    struct buffer attended; /* [tokens, q width]: the attention's result while `narrow` still serves
                               the FFN; empty without parallel_residual */

    /* Of a model with latent attention (mla.c); otherwise empty. */
    struct buffer latent;  /* [tokens, head_dim]: what the cache gets */
    struct buffer queries; /* [tokens, heads * head_dim], and at least q_rank */

    /* Of a model with experts (moe.c); otherwise empty. `wide` then also holds the results of every
     * choice: [tokens * chosen, max(2 * expert size, hidden)]. */
    struct buffer expert_inner;  /* [tokens * chosen, expert size], and as wide as hidden */
    struct buffer router_logits; /* float [tokens, experts] */
    struct buffer choices;       /* struct expert_choices */

    /* Of a rank with room for adapters (lora.c); otherwise empty. */
    struct buffer lora_inner;   /* [tokens, LORA_MAX_PARTS * max_rank]: A x */
    struct buffer lora_choices; /* struct expert_choices: each token's slot */
};

/* Products: out = x W^T + bias, for the pass' tokens, of a column-parallel product: a row of the
 * rank's outputs for each; and of one that every rank has, a router's in float. */
void forward_pass_apply(const struct forward_pass *pass, const struct projection *projection,
                        const struct buffer *x, const struct buffer *out);
void forward_pass_apply_whole(const struct forward_pass *pass, const struct projection *projection,
                              const struct buffer *x, const struct buffer *out);

/* out = or += the norm of each of num_rows rows of hidden_size elements, with these weights.
 */
void forward_pass_norm(const struct forward_pass *pass, const struct buffer *weight, const void *x,
                       void *out, int32_t num_rows, bool accumulate);

/* hidden += residual_scale (x W^T + bias), or with post_norm (the weights of a norm), hidden +=
 * norm(x W^T + bias), for a row-parallel product. Overwrites `scratch`, which must not be x, if the
 * model has norms after its branches or several ranks. Collective if there are several ranks. */
void forward_pass_add_to_hidden(const struct forward_pass *pass,
                                const struct projection *projection, const struct buffer *x,
                                const struct buffer *post_norm, const struct buffer *scratch);

/* A branch whose result consists of several sums, each scaled by forward_pass_branch_scale: if
 * forward_pass_adds_at_once, each is added to the hidden states; otherwise to `sum` [tokens,
 * hidden], which forward_pass_end_branch then reduces among the ranks, normalises and adds.
 * forward_pass_add_part adds that of a row-parallel product so. */
bool forward_pass_adds_at_once(const struct forward_pass *pass);
void forward_pass_add_part(const struct forward_pass *pass, const struct projection *projection,
                           const struct buffer *x, const struct buffer *sum);
float forward_pass_branch_scale(const struct forward_pass *pass);
void forward_pass_end_branch(const struct forward_pass *pass, const struct buffer *sum,
                             const struct buffer *post_norm);

/* qkv = x Wqkv; q and k are normalised if the model does that, and rotated; k and v are stored in
 * the cache; out = attention of q over the cache: [tokens, q width], unless out is NULL. Overwrites
 * `wide`; `out` may be x. Collective if a norm spans the heads of several ranks. */
void forward_pass_attention(const struct forward_pass *pass, int32_t layer, const struct buffer *x,
                            const struct buffer *out);

/* mla.c: the same for latent attention; out [tokens, heads' values]. */
void forward_pass_latent_attention(const struct forward_pass *pass, int32_t layer,
                                   const struct buffer *x, const struct buffer *out);

/* mtp.c: of a layer that predicts further tokens. `states` has a row [hidden] for each slot of the
 * KV cache. The first adds the states of the tokens' slots to their embeddings in `hidden`, by the
 * layer's projection. The second normalises the last hidden states of these rows (NULL: of the
 * first `count`), as before the head, and stores them in the slots, for the next call of the first.
 * Both overwrite `narrow`. */
void forward_pass_mtp_input(const struct forward_pass *pass, const struct buffer *states,
                            const int32_t *slots);
void forward_pass_keep_states(const struct forward_pass *pass, const int32_t *rows,
                              const int32_t *slots, int32_t count, const struct buffer *states);

/* out [num_rows, width] = act(gate) * up, of rows of gate, then up. */
void forward_pass_gate(const struct forward_pass *pass, const struct buffer *gate_up,
                       const struct buffer *out, int32_t num_rows, int32_t width);

/* hidden += (act(gate) * up) Wdown, where gate | up = x Wgate_up; the sum is computed as in
 * forward_pass_add_to_hidden. Overwrites `wide` and `narrow`; x may be `narrow`. Collective if
 * there are several ranks. */
void forward_pass_ffn(const struct forward_pass *pass, int32_t layer, const struct buffer *x);

/* lora.c: finds each token's slot, once a step; then after each product of a projection, out +=
 * B (A x) for the tokens that have an adapter. x is what the projection was multiplied with. */
void forward_pass_choose_adapters(const struct forward_pass *pass);
void forward_pass_add_adapters(const struct forward_pass *pass, const struct projection *projection,
                               const void *x, void *out);

/* moe.c: the same for a sparse layer. hidden += sum over the chosen experts of weight * expert(x),
 * plus the shared expert's result. x may be `narrow`. */
void forward_pass_moe(const struct forward_pass *pass, int32_t layer, const struct buffer *x);

#endif
