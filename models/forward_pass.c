#include "models/forward_pass.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

void forward_pass_norm(const struct forward_pass *pass, const struct buffer *weight, const void *x,
                       void *out, int32_t num_rows, bool accumulate) {
    struct backend *b = pass->backend;
    const struct model_config *config = pass->config;
    const float *weights = weight->data;
    b->ops->norm(
        b, &(struct norm_args){.x = x,
                               .weight = weights,
                               .bias = config->norm_bias ? weights + config->hidden_size : NULL,
                               .out = out,
                               .num_rows = num_rows,
                               .row_stride = config->hidden_size,
                               .width = config->hidden_size,
                               .epsilon = config->norm_eps,
                               .center = config->norm == NORM_LAYER,
                               .accumulate = accumulate});
}

/* --- Products ---
 * Each at one place: what is common to all of them, as their division among ranks and adapters, is
 * a matter of this part. */

/* Choices follow from these logits. */
static bool is_router(enum projection_role role) {
    return role == PROJECTION_ROUTER || role == PROJECTION_SHARED_ROUTER;
}

static void multiply(const struct forward_pass *pass, const struct projection *projection,
                     const void *x, void *out, float scale, bool accumulate) {
    struct backend *b = pass->backend;
    b->ops->linear(b, &(struct linear_args){.x = x,
                                            .weight = projection->matrix,
                                            .out = out,
                                            .num_rows = pass->num_tokens,
                                            .scale = scale,
                                            .accumulate = accumulate,
                                            .float_out = is_router(projection->role)});
    if (pass->has_adapters)
        forward_pass_add_adapters(pass, projection, x, out);
}

void forward_pass_apply(const struct forward_pass *pass, const struct projection *projection,
                        const struct buffer *x, const struct buffer *out) {
    CHECK(model_shard_cut_of(projection->role) == COLUMN_PARALLEL);
    multiply(pass, projection, x->data, out->data, 1.0F, false);
}

void forward_pass_apply_whole(const struct forward_pass *pass, const struct projection *projection,
                              const struct buffer *x, const struct buffer *out) {
    CHECK(model_shard_cut_of(projection->role) == NOT_PARALLEL);
    multiply(pass, projection, x->data, out->data, 1.0F, false);
}

/* The ranks' partial sums in `x` become one, which is added to `out`, or put there. */
static void reduce(const struct forward_pass *pass, const void *x, void *out, bool accumulate) {
    struct backend *b = pass->backend;
    b->ops->all_reduce(b, &(struct all_reduce_args){.x = x,
                                                    .out = out,
                                                    .num_rows = pass->num_tokens,
                                                    .width = pass->config->hidden_size,
                                                    .accumulate = accumulate});
}

/* --- The end of a branch --- */

bool forward_pass_adds_at_once(const struct forward_pass *pass) {
    return pass->shard->num_ranks == 1 && !pass->config->post_norm;
}

float forward_pass_branch_scale(const struct forward_pass *pass) {
    return pass->config->post_norm ? 1.0F : pass->config->residual_scale;
}

void forward_pass_end_branch(const struct forward_pass *pass, const struct buffer *sum,
                             const struct buffer *post_norm) {
    bool is_divided = pass->shard->num_ranks > 1, post = pass->config->post_norm;
    if (is_divided)
        reduce(pass, sum->data, post ? sum->data : pass->hidden.data, !post);
    if (post)
        forward_pass_norm(pass, post_norm, sum->data, pass->hidden.data, pass->num_tokens, true);
}

/* A product that nothing else touches goes to the hidden states at once. */
void forward_pass_add_to_hidden(const struct forward_pass *pass,
                                const struct projection *projection, const struct buffer *x,
                                const struct buffer *post_norm, const struct buffer *scratch) {
    bool at_once = forward_pass_adds_at_once(pass);
    CHECK(model_shard_cut_of(projection->role) == ROW_PARALLEL);
    multiply(pass, projection, x->data, at_once ? pass->hidden.data : scratch->data,
             forward_pass_branch_scale(pass), at_once);
    forward_pass_end_branch(pass, scratch, post_norm);
}

void forward_pass_add_part(const struct forward_pass *pass, const struct projection *projection,
                           const struct buffer *x, const struct buffer *sum) {
    CHECK(model_shard_cut_of(projection->role) == ROW_PARALLEL);
    multiply(pass, projection, x->data,
             forward_pass_adds_at_once(pass) ? pass->hidden.data : sum->data,
             forward_pass_branch_scale(pass), true);
}

/* --- Attention --- */

/* Normalises heads first_head .. first_head + num_heads - 1 of the rows of qkv as one vector, of
 * which other ranks have the rest of total_heads. */
static void normalise_heads(const struct forward_pass *pass, const struct buffer *norm,
                            int32_t first_head, int32_t num_heads, int32_t total_heads) {
    struct backend *b = pass->backend;
    const struct model_config *config = pass->config;
    bool is_divided = pass->shard->num_ranks > 1;
    size_t first = (size_t)first_head * (size_t)config->head_dim;
    char *heads = (char *)pass->wide.data + first * dtype_block_bytes(b->activation_dtype);
    b->ops->norm(b,
                 &(struct norm_args){.x = heads,
                                     .weight = norm->data,
                                     .out = heads,
                                     .num_rows = pass->num_tokens,
                                     .row_stride = model_shard_qkv_width(pass->shard, config),
                                     .width = num_heads * config->head_dim,
                                     .total_width = is_divided ? total_heads * config->head_dim : 0,
                                     .epsilon = config->norm_eps,
                                     .center = config->norm == NORM_LAYER});
}

/* A KV head that several ranks have counts as often: all of them do, and the mean is the same. */
static void normalise_q_and_k(const struct forward_pass *pass, const struct layer_weights *w) {
    const struct model_shard *shard = pass->shard;
    int32_t total_kv_heads = max_int32(pass->config->num_kv_heads, shard->num_ranks);
    normalise_heads(pass, &w->q_norm, 0, shard->num_heads, pass->config->num_heads);
    normalise_heads(pass, &w->k_norm, shard->num_heads, shard->num_kv_heads, total_kv_heads);
}

void forward_pass_attention(const struct forward_pass *pass, int32_t layer, const struct buffer *x,
                            const struct buffer *out) {
    struct backend *b = pass->backend;
    const struct model_config *config = pass->config;
    const struct layer_weights *w = &pass->weights->layers[layer];
    int32_t rope = config->layers[layer].rope;
    const struct kv_place place = pass->places[layer - pass->shard->first_layer];
    bool norms_heads = config->qk_norm == QK_NORM_HEAD;
    CHECK(!norms_heads || config->norm == NORM_RMS);
    forward_pass_apply(pass, &w->qkv, x, &pass->wide);
    if (config->qk_norm == QK_NORM_FULL)
        normalise_q_and_k(pass, w);
    b->ops->rope_store_kv(b,
                          &(struct rope_store_args){
                              .qkv = pass->wide.data,
                              .rope_table = rope < 0 ? NULL : pass->weights->rope_tables[rope].data,
                              .q_norm = norms_heads ? w->q_norm.data : NULL,
                              .k_norm = norms_heads ? w->k_norm.data : NULL,
                              .norm_epsilon = config->norm_eps,
                              .cache = pass->cache,
                              .group = place.group,
                              .layer = place.layer,
                              .num_q_heads = pass->shard->num_heads,
                              .rotary_dim = config->rotary_dim,
                              .interleaved = config->rope_interleaved});
    if (out == NULL)
        return;
    b->ops->paged_attention(b, &(struct attention_args){.qkv = pass->wide.data,
                                                        .out = out->data,
                                                        .cache = pass->cache,
                                                        .group = place.group,
                                                        .layer = place.layer,
                                                        .num_q_heads = pass->shard->num_heads,
                                                        .scale = config->attention_scale,
                                                        .window = config->layers[layer].window,
                                                        .soft_cap = config->attention_soft_cap,
                                                        .sinks = w->sinks.data,
                                                        .key_biases = w->key_biases.heads != NULL
                                                                          ? &w->key_biases
                                                                          : NULL});
}

/* --- The feed-forward network --- */

void forward_pass_gate(const struct forward_pass *pass, const struct buffer *gate_up,
                       const struct buffer *out, int32_t num_rows, int32_t width) {
    struct backend *b = pass->backend;
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = gate_up->data,
                                              .out = out->data,
                                              .num_rows = num_rows,
                                              .width = width,
                                              .activation = pass->config->activation});
}

/* Returns where act(gate) * up is: `narrow`, or `wide` if the product has done it. */
static const struct buffer *apply_gate_up(const struct forward_pass *pass,
                                          const struct projection *projection,
                                          const struct buffer *x, int32_t width) {
    struct backend *b = pass->backend;
    const struct linear_args args = {.x = x->data,
                                     .weight = projection->matrix,
                                     .out = pass->wide.data,
                                     .num_rows = pass->num_tokens,
                                     .scale = 1.0F};
    if (!pass->has_adapters && b->ops->linear_gated != NULL &&
        b->ops->linear_gated(b, &args, pass->config->activation))
        return &pass->wide;
    forward_pass_apply(pass, projection, x, &pass->wide);
    forward_pass_gate(pass, &pass->wide, &pass->narrow, pass->num_tokens, width);
    return &pass->narrow;
}

void forward_pass_ffn(const struct forward_pass *pass, int32_t layer, const struct buffer *x) {
    const struct layer_weights *w = &pass->weights->layers[layer];
    const struct buffer *gated =
        apply_gate_up(pass, &w->gate_up, x, pass->shard->intermediate_size);
    forward_pass_add_to_hidden(pass, &w->down, gated, &w->ffn_post_norm,
                               gated == &pass->wide ? &pass->narrow : &pass->wide);
}
