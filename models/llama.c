/* The forward pass:
 *
 *   hidden = embed(token ids)
 *   per layer:  qkv    = norm(hidden) Wqkv;  rotate q and k, store k and v in the cache
 *               hidden += attention(q, cache) Wo
 *               hidden += (silu(gate) * up) Wdown,  gate | up = norm(hidden) Wgate_up
 *   per chunk of wanted rows:  logits = norm(hidden[rows]) Whead;  sample
 *
 * Three activations are enough: `hidden` lives through the step, `wide` holds qkv and then gate_up,
 * `narrow` holds in turn what each matrix product reads. */
#include "models/llama.h"

#include "config/check.h"
#include "config/checked.h"

#include <math.h>
#include <stdlib.h>

struct llama {
    struct backend *backend;
    const struct model_config *config;
    const struct weights *weights;
    struct llama_limits limits;
    int32_t q_width;         /* num_heads * head_dim */
    struct buffer hidden;    /* [max_step_tokens, hidden] */
    struct buffer narrow;    /* [max_step_tokens, max(hidden, q_width, intermediate)] */
    struct buffer wide;      /* [max_step_tokens, max(qkv width, 2 * intermediate)] */
    struct buffer head_rows; /* [max_logit_rows, hidden] */
    struct buffer logits;    /* float [max_logit_rows, vocab] */
};

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

static int alloc_rows(struct llama *llama, int32_t rows, int32_t width, enum dtype dtype,
                      struct buffer *out, struct error *err) {
    size_t bytes;
    if (!checked_mul((size_t)rows, dtype_row_bytes(dtype, (size_t)width), &bytes))
        return error_set(err, ERROR_MEMORY, "a workspace of %d x %d elements is too large", rows,
                         width);
    return llama->backend->ops->buffer_alloc(llama->backend, bytes, out, err);
}

static int alloc_workspace(struct llama *llama, struct error *err) {
    const struct model_config *config = llama->config;
    enum dtype dtype = llama->backend->activation_dtype;
    int32_t tokens = llama->limits.max_step_tokens, rows = llama->limits.max_logit_rows;
    int32_t hidden = config->hidden_size, ffn = config->intermediate_size;
    int32_t qkv_width = llama->q_width + 2 * config->num_kv_heads * config->head_dim;
    int32_t narrow = larger(larger(hidden, llama->q_width), ffn);
    int32_t wide = larger(qkv_width, 2 * ffn);
    if (alloc_rows(llama, tokens, hidden, dtype, &llama->hidden, err) != 0 ||
        alloc_rows(llama, tokens, narrow, dtype, &llama->narrow, err) != 0 ||
        alloc_rows(llama, tokens, wide, dtype, &llama->wide, err) != 0 ||
        alloc_rows(llama, rows, hidden, dtype, &llama->head_rows, err) != 0)
        return -1;
    return alloc_rows(llama, rows, config->vocab_size, DTYPE_F32, &llama->logits, err);
}

int llama_create(struct backend *backend, const struct model_config *config,
                 const struct weights *weights, const struct llama_limits *limits,
                 struct llama **out, struct error *err) {
    CHECK(limits->max_step_tokens > 0 && limits->max_logit_rows > 0);
    struct llama *llama = calloc(1, sizeof(*llama));
    if (llama == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the forward pass");
    llama->backend = backend;
    llama->config = config;
    llama->weights = weights;
    llama->limits = *limits;
    llama->q_width = config->num_heads * config->head_dim;
    if (alloc_workspace(llama, err) != 0) {
        llama_destroy(llama);
        return -1;
    }
    *out = llama;
    return 0;
}

void llama_destroy(struct llama *llama) {
    if (llama == NULL)
        return;
    const struct backend_ops *ops = llama->backend->ops;
    ops->buffer_free(llama->backend, &llama->hidden);
    ops->buffer_free(llama->backend, &llama->narrow);
    ops->buffer_free(llama->backend, &llama->wide);
    ops->buffer_free(llama->backend, &llama->head_rows);
    ops->buffer_free(llama->backend, &llama->logits);
    free(llama);
}

size_t llama_workspace_bytes(const struct llama *llama) {
    return llama->hidden.bytes + llama->narrow.bytes + llama->wide.bytes + llama->head_rows.bytes +
           llama->logits.bytes;
}

/* narrow = norm(hidden) */
static void normalise(struct llama *llama, const struct buffer *weight, int32_t num_tokens) {
    struct backend *b = llama->backend;
    b->ops->rmsnorm(b, &(struct rmsnorm_args){.x = llama->hidden.data,
                                              .weight = weight->data,
                                              .out = llama->narrow.data,
                                              .num_rows = num_tokens,
                                              .width = llama->config->hidden_size,
                                              .epsilon = llama->config->rms_norm_eps});
}

/* wide = narrow W^T */
static void project_wide(struct llama *llama, const struct matrix *weight, int32_t num_tokens) {
    struct backend *b = llama->backend;
    b->ops->linear(b, &(struct linear_args){.x = llama->narrow.data,
                                            .weight = weight,
                                            .out = llama->wide.data,
                                            .num_rows = num_tokens});
}

/* hidden += narrow W^T */
static void add_to_hidden(struct llama *llama, const struct matrix *weight, int32_t num_tokens) {
    struct backend *b = llama->backend;
    b->ops->linear(b, &(struct linear_args){.x = llama->narrow.data,
                                            .weight = weight,
                                            .out = llama->hidden.data,
                                            .num_rows = num_tokens,
                                            .accumulate = true});
}

static void attention_block(struct llama *llama, struct kv_cache *cache, int32_t layer,
                            int32_t num_tokens) {
    struct backend *b = llama->backend;
    const struct model_config *config = llama->config;
    const struct layer_weights *w = &llama->weights->layers[layer];
    normalise(llama, &w->attention_norm, num_tokens);
    project_wide(llama, w->qkv, num_tokens);
    b->ops->rope_store_kv(b,
                          &(struct rope_store_args){.qkv = llama->wide.data,
                                                    .rope_table = llama->weights->rope_table.data,
                                                    .cache = cache,
                                                    .layer = layer,
                                                    .num_q_heads = config->num_heads,
                                                    .rotary_dim = config->rotary_dim,
                                                    .interleaved = config->rope_interleaved});
    b->ops->paged_attention(
        b, &(struct attention_args){.qkv = llama->wide.data,
                                    .out = llama->narrow.data,
                                    .cache = cache,
                                    .layer = layer,
                                    .num_q_heads = config->num_heads,
                                    .scale = 1.0F / sqrtf((float)config->head_dim)});
    add_to_hidden(llama, w->attention_out, num_tokens);
}

static void ffn_block(struct llama *llama, int32_t layer, int32_t num_tokens) {
    struct backend *b = llama->backend;
    const struct layer_weights *w = &llama->weights->layers[layer];
    normalise(llama, &w->ffn_norm, num_tokens);
    project_wide(llama, w->gate_up, num_tokens);
    b->ops->silu_mul(b, &(struct silu_mul_args){.gate_up = llama->wide.data,
                                                .out = llama->narrow.data,
                                                .num_rows = num_tokens,
                                                .width = llama->config->intermediate_size});
    add_to_hidden(llama, w->down, num_tokens);
}

/* Rows [first, first + count) of the batch; count <= max_logit_rows. */
static void sample_chunk(struct llama *llama, const struct batch *batch, int32_t first,
                         int32_t count, struct sample_output *out) {
    struct backend *b = llama->backend;
    const struct model_config *config = llama->config;
    b->ops->gather_rows(b, &(struct gather_rows_args){.x = llama->hidden.data,
                                                      .rows = batch->logit_rows + first,
                                                      .out = llama->head_rows.data,
                                                      .num_rows = count,
                                                      .width = config->hidden_size});
    b->ops->rmsnorm(b, &(struct rmsnorm_args){.x = llama->head_rows.data,
                                              .weight = llama->weights->output_norm.data,
                                              .out = llama->head_rows.data,
                                              .num_rows = count,
                                              .width = config->hidden_size,
                                              .epsilon = config->rms_norm_eps});
    b->ops->linear(b, &(struct linear_args){.x = llama->head_rows.data,
                                            .weight = llama->weights->head,
                                            .out = llama->logits.data,
                                            .num_rows = count,
                                            .float_out = true});
    b->ops->sample(b, &(struct sample_args){.logits = llama->logits.data,
                                            .num_rows = count,
                                            .vocab_size = config->vocab_size,
                                            .rows = batch->sample_rows + first,
                                            .counts = batch->token_counts,
                                            .biases = batch->token_biases,
                                            .out = out});
}

int llama_forward(struct llama *llama, struct kv_cache *cache, const struct batch *batch,
                  struct step_result *result, struct error *err) {
    struct backend *b = llama->backend;
    int32_t num_tokens = batch->inputs.num_tokens;
    CHECK(num_tokens > 0 && num_tokens <= llama->limits.max_step_tokens);
    b->ops->step_begin(b, &batch->inputs);
    b->ops->embed(b, llama->weights->embedding, llama->hidden.data);
    for (int32_t layer = 0; layer < llama->config->num_layers; layer++) {
        attention_block(llama, cache, layer, num_tokens);
        ffn_block(llama, layer, num_tokens);
    }
    int32_t chunk = llama->limits.max_logit_rows;
    for (int32_t first = 0; first < batch->num_rows; first += chunk) {
        int32_t left = batch->num_rows - first;
        sample_chunk(llama, batch, first, left < chunk ? left : chunk, result->rows + first);
    }
    if (b->ops->synchronize(b, err) != 0)
        return -1;
    result->num_rows = batch->num_rows;
    return 0;
}
