/* The forward pass, and on the right what of struct model_config changes a line:
 *
 *   hidden = embed(token ids)                           embedding_scale
 *   per layer:
 *     qkv = pre(hidden) Wqkv                            pre_norm, norm
 *     q, k = norm(q), norm(k)                           qk_norm
 *     rotate q and k, store k and v in the cache        layers[].rope, rope_interleaved
 *     x = attention(q, cache) Wo                        layers[].window, attention_scale,
 *                                                       attention_soft_cap
 *     hidden += post(x)                                 post_norm, residual_scale
 *     gate | up = pre(hidden) Wgate_up
 *     hidden += post((act(gate) * up) Wdown)            activation
 *   per chunk of sample rows:
 *     logits = cap(norm(hidden[rows]) Whead); sample    logit_scale, final_soft_cap
 *   hidden sums += norm(hidden[tokens])
 *
 * `pre` is a norm or nothing; `post` is a norm (post_norm) or a factor (residual_scale). With
 * parallel_residual both branches read the same norm of hidden, taken before either is added.
 *
 * Three activations are enough for most models: `hidden` lives through the step, `wide` holds qkv
 * and then gate_up, `narrow` holds in turn what each matrix product reads. `branch` is there for
 * what cannot go to `hidden` at once: a branch whose norm is still to come, or the attention's
 * result while `narrow` still serves the FFN. */
#include "models/llama.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"

#include <stdlib.h>

struct llama {
    struct backend *backend;
    const struct model_config *config;
    const struct weights *weights;
    const struct serving_limits *limits;
    struct buffer hidden; /* [max_num_batched_tokens, hidden] */
    struct buffer narrow; /* [max_num_batched_tokens, max(hidden, q_width, intermediate)] */
    struct buffer wide;   /* [max_num_batched_tokens, max(qkv width, 2 * intermediate)] */
    struct buffer branch; /* [max_num_batched_tokens, max(hidden, q_width)]; empty if not needed */
    struct buffer head_rows;   /* [max_logit_rows, hidden] */
    struct buffer logits;      /* float [max_logit_rows, vocab] */
    struct buffer hidden_sums; /* float [max_num_seqs, hidden]; empty if there are none */
};

/* Sizes are in elements; the first NUM_ACTIVATIONS are of the backend's activation type, the others float. */
enum workspace_part {
    HIDDEN,
    NARROW,
    WIDE,
    BRANCH,
    HEAD_ROWS,
    NUM_ACTIVATIONS,
    LOGITS = NUM_ACTIVATIONS,
    HIDDEN_SUMS,
    NUM_WORKSPACE_PARTS
};

/* Returns false when the sizes do not fit memory addresses. */
static bool measure_workspace(const struct model_config *config, enum dtype activation_dtype,
                              const struct serving_limits *limits,
                              size_t out_bytes[static NUM_WORKSPACE_PARTS]) {
    int32_t hidden = config->hidden_size, ffn = config->intermediate_size;
    int32_t q_width = config->num_heads * config->head_dim;
    int32_t qkv_width = q_width + 2 * config->num_kv_heads * config->head_dim;
    bool needs_branch = config->post_norm || config->parallel_residual;
    const int32_t widths[NUM_WORKSPACE_PARTS] = {
        [HIDDEN] = hidden,
        [NARROW] = max_int32(max_int32(hidden, q_width), ffn),
        [WIDE] = max_int32(qkv_width, 2 * ffn),
        [BRANCH] = needs_branch ? max_int32(hidden, q_width) : 0,
        [HEAD_ROWS] = hidden,
        [LOGITS] = config->vocab_size,
        [HIDDEN_SUMS] = hidden,
    };
    const int32_t rows[NUM_WORKSPACE_PARTS] = {
        [HIDDEN] = limits->max_num_batched_tokens, [NARROW] = limits->max_num_batched_tokens,
        [WIDE] = limits->max_num_batched_tokens,   [BRANCH] = limits->max_num_batched_tokens,
        [HEAD_ROWS] = limits->max_logit_rows,      [LOGITS] = limits->max_logit_rows,
        [HIDDEN_SUMS] = limits->max_num_seqs,
    };
    for (int i = 0; i < NUM_WORKSPACE_PARTS; i++) {
        enum dtype dtype = i < NUM_ACTIVATIONS ? activation_dtype : DTYPE_F32;
        if (!checked_mul((size_t)rows[i], dtype_row_bytes(dtype, (size_t)widths[i]), &out_bytes[i]))
            return false;
    }
    return true;
}

size_t llama_workspace_needed(const struct model_config *config, enum dtype activation_dtype,
                              const struct serving_limits *limits) {
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
        [HIDDEN] = &llama->hidden,
        [NARROW] = &llama->narrow,
        [WIDE] = &llama->wide,
        [BRANCH] = &llama->branch,
        [HEAD_ROWS] = &llama->head_rows,
        [LOGITS] = &llama->logits,
        [HIDDEN_SUMS] = &llama->hidden_sums,
    };
    size_t bytes[NUM_WORKSPACE_PARTS];
    if (!measure_workspace(llama->config, b->activation_dtype, llama->limits, bytes))
        return error_set(err, ERROR_MEMORY, "the workspace of a step of %d tokens is too large",
                         llama->limits->max_num_batched_tokens);
    for (int i = 0; i < NUM_WORKSPACE_PARTS; i++)
        if (bytes[i] > 0 && b->ops->buffer_alloc(b, bytes[i], buffers[i], err) != 0)
            return -1;
    return b->ops->synchronize(b, err);
}

int llama_create(struct backend *backend, const struct model_config *config,
                 const struct weights *weights, const struct serving_limits *limits,
                 struct llama **out, struct error *err) {
    CHECK(limits->max_num_batched_tokens > 0 && limits->max_logit_rows > 0);
    CHECK(!(config->parallel_residual && config->post_norm));
    struct llama *llama = calloc(1, sizeof(*llama));
    if (llama == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the forward pass");
    llama->backend = backend;
    llama->config = config;
    llama->weights = weights;
    llama->limits = limits;
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
    ops->buffer_free(llama->backend, &llama->branch);
    ops->buffer_free(llama->backend, &llama->head_rows);
    ops->buffer_free(llama->backend, &llama->logits);
    ops->buffer_free(llama->backend, &llama->hidden_sums);
    free(llama);
}

size_t llama_workspace_bytes(const struct llama *llama) {
    return llama->hidden.bytes + llama->narrow.bytes + llama->wide.bytes + llama->branch.bytes +
           llama->head_rows.bytes + llama->logits.bytes + llama->hidden_sums.bytes;
}

/* --- The parts of a layer --------------------------------------------------------------------- */

/* narrow = norm(hidden), which the branches read; without a norm before them they read hidden. */
static const struct buffer *branch_input(struct llama *llama, const struct buffer *norm,
                                         int32_t num_tokens) {
    struct backend *b = llama->backend;
    const struct model_config *config = llama->config;
    if (!config->pre_norm)
        return &llama->hidden;
    b->ops->norm(b, &(struct norm_args){.x = llama->hidden.data,
                                        .weight = norm->data,
                                        .out = llama->narrow.data,
                                        .num_rows = num_tokens,
                                        .row_stride = config->hidden_size,
                                        .num_groups = 1,
                                        .width = config->hidden_size,
                                        .epsilon = config->norm_eps,
                                        .center = config->norm == NORM_LAYER});
    return &llama->narrow;
}

/* wide = x W^T */
static void project_wide(struct llama *llama, const struct buffer *x, const struct matrix *weight,
                         int32_t num_tokens) {
    struct backend *b = llama->backend;
    b->ops->linear(b, &(struct linear_args){.x = x->data,
                                            .weight = weight,
                                            .out = llama->wide.data,
                                            .num_rows = num_tokens,
                                            .scale = 1.0F});
}

/* hidden += residual_scale * x W^T, or hidden += norm(x W^T) by way of `branch`. */
static void add_branch(struct llama *llama, const struct buffer *x, const struct matrix *weight,
                       const struct buffer *post_norm, int32_t num_tokens) {
    struct backend *b = llama->backend;
    const struct model_config *config = llama->config;
    bool post = config->post_norm;
    b->ops->linear(b, &(struct linear_args){.x = x->data,
                                            .weight = weight,
                                            .out = post ? llama->branch.data : llama->hidden.data,
                                            .num_rows = num_tokens,
                                            .scale = post ? 1.0F : config->residual_scale,
                                            .accumulate = !post});
    if (!post)
        return;
    b->ops->norm(b, &(struct norm_args){.x = llama->branch.data,
                                        .weight = post_norm->data,
                                        .out = llama->hidden.data,
                                        .num_rows = num_tokens,
                                        .row_stride = config->hidden_size,
                                        .num_groups = 1,
                                        .width = config->hidden_size,
                                        .epsilon = config->norm_eps,
                                        .center = config->norm == NORM_LAYER,
                                        .accumulate = true});
}

/* Normalises heads [first_head, first_head + num_heads) within the rows of qkv, each or all as one. */
static void normalise_heads(struct llama *llama, const struct buffer *norm, int32_t first_head,
                            int32_t num_heads, int32_t num_tokens) {
    struct backend *b = llama->backend;
    const struct model_config *config = llama->config;
    bool full = config->qk_norm == QK_NORM_FULL;
    size_t first = (size_t)first_head * (size_t)config->head_dim;
    char *heads = (char *)llama->wide.data + first * dtype_block_bytes(b->activation_dtype);
    b->ops->norm(
        b, &(struct norm_args){.x = heads,
                               .weight = norm->data,
                               .out = heads,
                               .num_rows = num_tokens,
                               .row_stride = (config->num_heads + 2 * config->num_kv_heads) *
                                             config->head_dim,
                               .num_groups = full ? 1 : num_heads,
                               .width = full ? num_heads * config->head_dim : config->head_dim,
                               .epsilon = config->norm_eps,
                               .center = config->norm == NORM_LAYER});
}

/* out = attention of the rows of qkv in `wide`, whose keys and values join the cache. */
static void attend(struct llama *llama, struct kv_cache *cache, int32_t layer,
                   const struct buffer *out, int32_t num_tokens) {
    struct backend *b = llama->backend;
    const struct model_config *config = llama->config;
    const struct layer_weights *w = &llama->weights->layers[layer];
    int32_t rope = config->layers[layer].rope;
    if (config->qk_norm != QK_NORM_NONE) {
        normalise_heads(llama, &w->q_norm, 0, config->num_heads, num_tokens);
        normalise_heads(llama, &w->k_norm, config->num_heads, config->num_kv_heads, num_tokens);
    }
    b->ops->rope_store_kv(
        b, &(struct rope_store_args){.qkv = llama->wide.data,
                                     .rope_table =
                                         rope < 0 ? NULL : llama->weights->rope_tables[rope].data,
                                     .cache = cache,
                                     .layer = layer,
                                     .num_q_heads = config->num_heads,
                                     .rotary_dim = config->rotary_dim,
                                     .interleaved = config->rope_interleaved});
    b->ops->paged_attention(b, &(struct attention_args){.qkv = llama->wide.data,
                                                        .out = out->data,
                                                        .cache = cache,
                                                        .layer = layer,
                                                        .num_q_heads = config->num_heads,
                                                        .scale = config->attention_scale,
                                                        .window = config->layers[layer].window,
                                                        .soft_cap = config->attention_soft_cap});
}

/* narrow = act(gate) * up, of `wide`. */
static void activate(struct llama *llama, int32_t num_tokens) {
    struct backend *b = llama->backend;
    b->ops->act_mul(b, &(struct act_mul_args){.gate_up = llama->wide.data,
                                              .out = llama->narrow.data,
                                              .num_rows = num_tokens,
                                              .width = llama->config->intermediate_size,
                                              .activation = llama->config->activation});
}

static void run_layer(struct llama *llama, struct kv_cache *cache, int32_t layer,
                      int32_t num_tokens) {
    const struct layer_weights *w = &llama->weights->layers[layer];
    const struct buffer *x = branch_input(llama, &w->attention_norm, num_tokens);
    project_wide(llama, x, w->qkv, num_tokens);
    attend(llama, cache, layer, &llama->narrow, num_tokens);
    add_branch(llama, &llama->narrow, w->attention_out, &w->attention_post_norm, num_tokens);
    x = branch_input(llama, &w->ffn_norm, num_tokens);
    project_wide(llama, x, w->gate_up, num_tokens);
    activate(llama, num_tokens);
    add_branch(llama, &llama->narrow, w->down, &w->ffn_post_norm, num_tokens);
}

static void run_parallel_layer(struct llama *llama, struct kv_cache *cache, int32_t layer,
                               int32_t num_tokens) {
    const struct layer_weights *w = &llama->weights->layers[layer];
    const struct buffer *x = branch_input(llama, &w->attention_norm, num_tokens);
    project_wide(llama, x, w->qkv, num_tokens);
    attend(llama, cache, layer, &llama->branch, num_tokens);
    project_wide(llama, x, w->gate_up, num_tokens);
    add_branch(llama, &llama->branch, w->attention_out, NULL, num_tokens);
    activate(llama, num_tokens);
    add_branch(llama, &llama->narrow, w->down, NULL, num_tokens);
}

/* --- The head --------------------------------------------------------------------------------- */

/* out = norm(x), row by row. */
static void normalise_output(struct llama *llama, const void *x, void *out, int32_t num_rows) {
    struct backend *b = llama->backend;
    const struct model_config *config = llama->config;
    b->ops->norm(b, &(struct norm_args){.x = x,
                                        .weight = llama->weights->output_norm.data,
                                        .out = out,
                                        .num_rows = num_rows,
                                        .row_stride = config->hidden_size,
                                        .num_groups = 1,
                                        .width = config->hidden_size,
                                        .epsilon = config->norm_eps,
                                        .center = config->norm == NORM_LAYER});
}

/* Computes logits of sample rows [first, first + count), and samples; count <= max_logit_rows. */
static void sample_chunk(struct llama *llama, const struct batch *batch, int32_t first,
                         int32_t count, const struct step_result *result) {
    struct backend *b = llama->backend;
    const struct model_config *config = llama->config;
    b->ops->gather_rows(b, &(struct gather_rows_args){.x = llama->hidden.data,
                                                      .rows = batch->logit_rows + first,
                                                      .out = llama->head_rows.data,
                                                      .num_rows = count,
                                                      .width = config->hidden_size});
    normalise_output(llama, llama->head_rows.data, llama->head_rows.data, count);
    b->ops->linear(b, &(struct linear_args){.x = llama->head_rows.data,
                                            .weight = llama->weights->head,
                                            .out = llama->logits.data,
                                            .num_rows = count,
                                            .scale = config->logit_scale,
                                            .float_out = true});
    if (config->final_soft_cap > 0.0F)
        b->ops->soft_cap(b, &(struct soft_cap_args){.x = llama->logits.data,
                                                    .num_rows = count,
                                                    .width = config->vocab_size,
                                                    .cap = config->final_soft_cap});
    b->ops->sample(b, &(struct sample_args){.logits = llama->logits.data,
                                            .first_row = first,
                                            .num_sample_rows = count,
                                            .vocab_size = config->vocab_size,
                                            .rows = batch->sample_rows + first,
                                            .counts = batch->token_counts,
                                            .biases = batch->token_biases,
                                            .masks = batch->token_masks,
                                            .listed = batch->listed_tokens,
                                            .out = result->rows + first,
                                            .listed_logprobs = result->listed_logprobs});
}

/* Normalises the rows of all spans, and what lies between, into `narrow` at once. */
static void add_to_hidden_sums(struct llama *llama, const struct batch *batch, float *out_sums) {
    struct backend *b = llama->backend;
    const struct row_span *spans = batch->hidden_spans, *last = &spans[batch->num_hidden_sums - 1];
    size_t width = (size_t)llama->config->hidden_size;
    size_t row_bytes = width * dtype_block_bytes(b->activation_dtype);
    size_t sums_bytes = (size_t)batch->num_hidden_sums * width * sizeof(float);
    size_t offset = (size_t)spans->first_row * row_bytes;
    CHECK(batch->num_hidden_sums <= llama->limits->max_num_seqs);
    normalise_output(llama, (const char *)llama->hidden.data + offset,
                     (char *)llama->narrow.data + offset,
                     last->first_row + last->num_rows - spans->first_row);
    b->ops->upload(b, llama->hidden_sums.data, batch->hidden_sums, sums_bytes);
    b->ops->add_rows(b, &(struct add_rows_args){.x = llama->narrow.data,
                                                .spans = spans,
                                                .sums = llama->hidden_sums.data,
                                                .num_spans = batch->num_hidden_sums,
                                                .width = llama->config->hidden_size});
    b->ops->download(b, out_sums, llama->hidden_sums.data, sums_bytes);
}

void llama_forward(struct llama *llama, struct kv_cache *cache, const struct batch *batch) {
    struct backend *b = llama->backend;
    int32_t num_tokens = batch->inputs.num_tokens;
    CHECK(num_tokens > 0 && num_tokens <= llama->limits->max_num_batched_tokens);
    b->ops->step_begin(b, &batch->inputs);
    b->ops->embed(b, &(struct embed_args){.table = llama->weights->embedding,
                                          .out = llama->hidden.data,
                                          .scale = llama->config->embedding_scale});
    for (int32_t layer = 0; layer < llama->config->num_layers; layer++)
        if (llama->config->parallel_residual)
            run_parallel_layer(llama, cache, layer, num_tokens);
        else
            run_layer(llama, cache, layer, num_tokens);
}

void llama_sample(struct llama *llama, const struct batch *batch, struct step_result *result) {
    int32_t chunk = llama->limits->max_logit_rows;
    for (int32_t first = 0; first < batch->num_sample_rows; first += chunk) {
        int32_t left = batch->num_sample_rows - first;
        sample_chunk(llama, batch, first, min_int32(left, chunk), result);
    }
    if (batch->num_hidden_sums > 0)
        add_to_hidden_sums(llama, batch, result->hidden_sums);
    result->num_sample_rows = batch->num_sample_rows;
}

int llama_step(struct llama *llama, struct kv_cache *cache, const struct batch *batch,
               struct step_result *result, struct error *err) {
    struct backend *b = llama->backend;
    llama_forward(llama, cache, batch);
    llama_sample(llama, batch, result);
    return b->ops->synchronize(b, err);
}
