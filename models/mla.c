/* Multi-head latent attention in its absorbed form. A head's keys and values are products of a
 * token's cached vector c: k = Wk c, v = Wv c. Because q . (Wk c) = (Wk^T q) . c, and the sum of
 * weights w_t Wv c_t is Wv (sum of w_t c_t), attention runs on the cached vectors themselves, which
 * all heads share: a head's query is taken to their space, and its result back. */
#include "models/forward_pass.h"

/* Normalises the first `width` elements of rows of `stride`, in place. */
static void normalise(const struct forward_pass *pass, const struct buffer *weight,
                      const struct buffer *rows, int32_t width, int32_t stride) {
    struct backend *b = pass->backend;
    b->ops->norm(b, &(struct norm_args){.x = rows->data,
                                        .weight = weight->data,
                                        .out = rows->data,
                                        .num_rows = pass->num_tokens,
                                        .row_stride = stride,
                                        .width = width,
                                        .epsilon = pass->config->latent.norm_eps});
}

/* wide = q, by way of `queries` if it is made in two steps. */
static void make_queries(const struct forward_pass *pass, const struct layer_weights *w,
                         const struct buffer *x) {
    int32_t q_rank = pass->config->latent.q_rank;
    if (q_rank > 0) {
        forward_pass_apply_whole(pass, &w->q_a, x, &pass->queries);
        normalise(pass, &w->q_a_norm, &pass->queries, q_rank, q_rank);
        x = &pass->queries;
    }
    forward_pass_apply(pass, &w->qkv, x, &pass->wide);
}

/* A product of each head's vector with its own matrix. */
static void apply_heads(const struct forward_pass *pass, const struct projection *projection,
                        const struct buffer *x, int32_t x_stride, const struct buffer *out,
                        int32_t out_stride) {
    struct backend *b = pass->backend;
    b->ops->linear_heads(b, &(struct head_linear_args){.x = x->data,
                                                       .weight = projection->matrix,
                                                       .out = out->data,
                                                       .num_tokens = pass->num_tokens,
                                                       .num_heads = pass->shard->num_heads,
                                                       .x_stride = x_stride,
                                                       .out_stride = out_stride});
}

static void store(const struct forward_pass *pass, int32_t layer, int32_t q_dim) {
    struct backend *b = pass->backend;
    const struct model_config *config = pass->config;
    const struct kv_place place = pass->places[layer - pass->shard->first_layer];
    int32_t rope = config->layers[layer].rope;
    b->ops->store_latent(b,
                         &(struct latent_store_args){
                             .q = pass->wide.data,
                             .kv = pass->latent.data,
                             .queries = pass->queries.data,
                             .rope_table = rope < 0 ? NULL : pass->weights->rope_tables[rope].data,
                             .cache = pass->cache,
                             .group = place.group,
                             .layer = place.layer,
                             .num_q_heads = pass->shard->num_heads,
                             .q_dim = q_dim,
                             .rotary_dim = config->rotary_dim,
                             .interleaved = config->rope_interleaved});
}

void forward_pass_latent_attention(const struct forward_pass *pass, int32_t layer,
                                   const struct buffer *x, const struct buffer *out) {
    struct backend *b = pass->backend;
    const struct model_config *config = pass->config;
    const struct latent_config *latent = &config->latent;
    const struct layer_weights *w = &pass->weights->layers[layer];
    const struct kv_place place = pass->places[layer - pass->shard->first_layer];
    int32_t q_dim = model_config_query_dim(config);
    forward_pass_apply_whole(pass, &w->kv_a, x, &pass->latent);
    normalise(pass, &w->kv_a_norm, &pass->latent, latent->kv_rank, config->head_dim);
    make_queries(pass, w, x);
    apply_heads(pass, &w->key_up, &pass->wide, q_dim, &pass->queries, config->head_dim);
    store(pass, layer, q_dim);
    if (out == NULL)
        return;
    b->ops->paged_attention(b, &(struct attention_args){.qkv = pass->queries.data,
                                                        .out = pass->wide.data,
                                                        .cache = pass->cache,
                                                        .group = place.group,
                                                        .layer = place.layer,
                                                        .num_q_heads = pass->shard->num_heads,
                                                        .scale = config->attention_scale,
                                                        .window = config->layers[layer].window,
                                                        .soft_cap = config->attention_soft_cap,
                                                        .sinks = w->sinks.data});
    apply_heads(pass, &w->value_up, &pass->wide, latent->kv_rank, out, latent->value_dim);
}
