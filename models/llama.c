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
    struct buffer hidden;    /* [max_step_tokens, hidden] */
    struct buffer narrow;    /* [max_step_tokens, max(hidden, q_width, intermediate)] */
    struct buffer wide;      /* [max_step_tokens, max(qkv width, 2 * intermediate)] */
    struct buffer head_rows; /* [max_logit_rows, hidden] */
    struct buffer logits;    /* float [max_logit_rows, vocab] */
};

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* In elements; the first NUM_ACTIVATIONS are of the backend's activation type, the logits float. */
enum workspace_part { HIDDEN, NARROW, WIDE, HEAD_ROWS, NUM_ACTIVATIONS, LOGITS = NUM_ACTIVATIONS };
#define NUM_WORKSPACE_PARTS (NUM_ACTIVATIONS + 1)

/* False when the sizes do not fit memory addresses. */
static bool measure_workspace(const struct model_config *config, enum dtype activation_dtype,
                              const struct llama_limits *limits,
                              size_t out_bytes[static NUM_WORKSPACE_PARTS]) {
    int32_t hidden = config->hidden_size, ffn = config->intermediate_size;
    int32_t q_width = config->num_heads * config->head_dim;
    int32_t qkv_width = q_width + 2 * config->num_kv_heads * config->head_dim;
    const int32_t widths[NUM_WORKSPACE_PARTS] = {
        [HIDDEN] = hidden,
        [NARROW] = larger(larger(hidden, q_width), ffn),
        [WIDE] = larger(qkv_width, 2 * ffn),
        [HEAD_ROWS] = hidden,
        [LOGITS] = config->vocab_size,
    };
    for (int i = 0; i < NUM_WORKSPACE_PARTS; i++) {
        enum dtype dtype = i < NUM_ACTIVATIONS ? activation_dtype : DTYPE_F32;
        int32_t rows = i < HEAD_ROWS ? limits->max_step_tokens : limits->max_logit_rows;
        if (!checked_mul((size_t)rows, dtype_row_bytes(dtype, (size_t)widths[i]), &out_bytes[i]))
            return false;
    }
    return true;
}

size_t llama_workspace_needed(const struct model_config *config, enum dtype activation_dtype,
                              const struct llama_limits *limits) {
    size_t bytes[NUM_WORKSPACE_PARTS], sum = 0;
    if (!measure_workspace(config, activation_dtype, limits, bytes))
        return SIZE_MAX;
    for (int i = 0; i < NUM_WORKSPACE_PARTS; i++)
        if (!checked_add(sum, bytes[i], &sum))
            return SIZE_MAX;
    return sum;
}

static int alloc_workspace(struct llama *llama, struct error *err) {
    struct backend *b = llama->backend;
    struct buffer *buffers[NUM_WORKSPACE_PARTS] = {
        [HIDDEN] = &llama->hidden,       [NARROW] = &llama->narrow, [WIDE] = &llama->wide,
        [HEAD_ROWS] = &llama->head_rows, [LOGITS] = &llama->logits,
    };
    size_t bytes[NUM_WORKSPACE_PARTS];
    if (!measure_workspace(llama->config, b->activation_dtype, &llama->limits, bytes))
        return error_set(err, ERROR_MEMORY, "the workspace of a step of %d tokens is too large",
                         llama->limits.max_step_tokens);
    for (int i = 0; i < NUM_WORKSPACE_PARTS; i++)
        if (b->ops->buffer_alloc(b, bytes[i], buffers[i], err) != 0)
            return -1;
    return b->ops->synchronize(b, err);
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
    b->ops->norm(b, &(struct norm_args){.x = llama->hidden.data,
                                        .weight = weight->data,
                                        .out = llama->narrow.data,
                                        .num_rows = num_tokens,
                                        .row_stride = llama->config->hidden_size,
                                        .num_groups = 1,
                                        .width = llama->config->hidden_size,
                                        .epsilon = llama->config->norm_eps});
}

/* wide = narrow W^T */
static void project_wide(struct llama *llama, const struct matrix *weight, int32_t num_tokens) {
    struct backend *b = llama->backend;
    b->ops->linear(b, &(struct linear_args){.x = llama->narrow.data,
                                            .weight = weight,
                                            .out = llama->wide.data,
                                            .num_rows = num_tokens,
                                            .scale = 1.0F});
}

/* hidden += narrow W^T */
static void add_to_hidden(struct llama *llama, const struct matrix *weight, int32_t num_tokens) {
    struct backend *b = llama->backend;
    b->ops->linear(b, &(struct linear_args){.x = llama->narrow.data,
                                            .weight = weight,
                                            .out = llama->hidden.data,
                                            .num_rows = num_tokens,
                                            .scale = 1.0F,
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
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = llama->wide.data,
                                              .out = llama->narrow.data,
                                              .num_rows = num_tokens,
                                              .width = llama->config->intermediate_size,
                                              .activation = ACTIVATION_SILU});
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
    b->ops->norm(b, &(struct norm_args){.x = llama->head_rows.data,
                                        .weight = llama->weights->output_norm.data,
                                        .out = llama->head_rows.data,
                                        .num_rows = count,
                                        .row_stride = config->hidden_size,
                                        .num_groups = 1,
                                        .width = config->hidden_size,
                                        .epsilon = config->norm_eps});
    b->ops->linear(b, &(struct linear_args){.x = llama->head_rows.data,
                                            .weight = llama->weights->head,
                                            .out = llama->logits.data,
                                            .num_rows = count,
                                            .scale = 1.0F,
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
    b->ops->embed(b, &(struct embed_args){.table = llama->weights->embedding,
                                          .out = llama->hidden.data,
                                          .scale = 1.0F});
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
