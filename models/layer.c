#include "models/layer.h"

/* narrow = norm(hidden), which a branch reads; without a norm before them branches read hidden. */
static const struct buffer *branch_input(const struct forward_pass *pass,
                                         const struct buffer *norm) {
    if (!pass->config->pre_norm)
        return &pass->hidden;
    forward_pass_norm(pass, norm, pass->hidden.data, pass->narrow.data, pass->num_tokens, false);
    return &pass->narrow;
}

static void run_attention(const struct forward_pass *pass, int32_t layer, const struct buffer *x,
                          const struct buffer *out) {
    if (pass->config->latent.kv_rank > 0)
        forward_pass_latent_attention(pass, layer, x, out);
    else
        forward_pass_attention(pass, layer, x, out);
}

static void run_ffn(const struct forward_pass *pass, int32_t layer, const struct buffer *x) {
    if (pass->config->layers[layer].is_sparse)
        forward_pass_moe(pass, layer, x);
    else
        forward_pass_ffn(pass, layer, x);
}

/* After the attention, whose result is in `narrow`. */
static void end_layer(const struct forward_pass *pass, int32_t layer) {
    const struct layer_weights *w = &pass->weights->layers[layer];
    forward_pass_add_to_hidden(pass, &w->attention_out, &pass->narrow, &w->attention_post_norm,
                               &pass->wide);
    run_ffn(pass, layer, branch_input(pass, &w->ffn_norm));
}

static void run_serial_layer(const struct forward_pass *pass, int32_t layer) {
    const struct layer_weights *w = &pass->weights->layers[layer];
    run_attention(pass, layer, branch_input(pass, &w->attention_norm), &pass->narrow);
    end_layer(pass, layer);
}

static void run_parallel_layer(const struct forward_pass *pass, int32_t layer) {
    const struct layer_weights *w = &pass->weights->layers[layer];
    const struct buffer *x = branch_input(pass, &w->attention_norm);
    run_attention(pass, layer, x, &pass->attended);
    forward_pass_add_to_hidden(pass, &w->attention_out, &pass->attended, NULL, &pass->wide);
    run_ffn(pass, layer, x);
}

void layer_run(const struct forward_pass *pass, int32_t layer) {
    if (pass->config->parallel_residual)
        run_parallel_layer(pass, layer);
    else
        run_serial_layer(pass, layer);
}

/* Of what the rank's heads give: that of q, or latent attention's values. */
static int32_t attention_width(const struct forward_pass *pass) {
    const struct latent_config *latent = &pass->config->latent;
    return latent->kv_rank > 0 ? pass->shard->num_heads * latent->value_dim
                               : model_shard_q_width(pass->shard, pass->config);
}

static void gather(const struct forward_pass *pass, const struct buffer *x, const int32_t *rows,
                   int32_t num_rows, int32_t width, const struct buffer *out) {
    pass->backend->ops->gather_rows(
        pass->backend,
        &(struct gather_rows_args){
            .x = x->data, .rows = rows, .out = out->data, .num_rows = num_rows, .width = width});
}

/* One half of `wide` holds what `wide` does of a quarter of the rows, the other what `narrow` does.
 */
const void *layer_run_rows(const struct forward_pass *pass, int32_t layer, const int32_t *rows,
                           int32_t num_rows) {
    enum { ALIGNMENT = 256 };
    const struct layer_weights *w = &pass->weights->layers[layer];
    size_t half = pass->wide.bytes / 2 / ALIGNMENT * ALIGNMENT;
    struct forward_pass few = *pass;
    if (num_rows > pass->num_tokens / 4 || pass->wide.bytes < 4 * ALIGNMENT ||
        pass->wide.bytes < pass->narrow.bytes || pass->has_adapters ||
        pass->config->parallel_residual)
        return NULL;
    run_attention(pass, layer, branch_input(pass, &w->attention_norm),
                  num_rows > 0 ? &pass->narrow : NULL);
    few.num_tokens = num_rows;
    few.hidden = pass->narrow;
    few.wide.bytes = half;
    few.narrow =
        (struct buffer){.data = (char *)pass->wide.data + half, .bytes = pass->wide.bytes - half};
    if (num_rows > 0) {
        gather(pass, &pass->narrow, rows, num_rows, attention_width(pass), &few.narrow);
        gather(pass, &pass->hidden, rows, num_rows, pass->config->hidden_size, &few.hidden);
        end_layer(&few, layer);
    }
    return few.hidden.data;
}
