/* The forward pass, and on the right what of struct model_config changes a line:
 *
 *   hidden = embed(token ids)                           embedding_scale
 *     and states of the slots, by a projection (mtp.c)  is_mtp
 *   per layer:
 *     qkv = pre(hidden) Wqkv                            pre_norm, norm
 *     (every product W x + B A x with an adapter: lora.c)
 *     q, k = norm(q), norm(k)                           qk_norm
 *     rotate q and k, store k and v in the cache        layers[].rope, rope_interleaved
 *     x = attention(q, cache) Wo                        layers[].window, attention_scale,
 *                                                       attention_soft_cap
 *     or of latent attention (mla.c): q, and what is    latent
 *     cached of k and v, are products of products
 *     hidden += post(x)                                 post_norm, residual_scale
 *     gate | up = pre(hidden) Wgate_up
 *     hidden += post((act(gate) * up) Wdown)            activation
 *     or of a sparse layer (moe.c):                     layers[].is_sparse, moe
 *     hidden += post(sum of w_e expert_e(pre(hidden)))
 *     (the last layer after its attention: of the rows that are sampled, if these are few)
 *   per chunk of sample rows:
 *     logits = cap(norm(hidden[rows]) Whead); sample    logit_scale, final_soft_cap
 *   hidden sums += norm(hidden[tokens])
 *
 * `pre` is a norm or nothing; `post` is a norm (post_norm) or a factor (residual_scale). With
 * parallel_residual both branches read the same norm of hidden, taken before either is added.
 *
 * What a rank has of the model is in struct model_shard: each computes its heads, its part of the
 * FFN and its rows of the vocabulary, and forward_pass_add_to_hidden, the embedding and the
 * gathered logits bring the parts together.
 *
 * In a pipeline a stage does its layers' part of this: but for the first it receives `hidden`
 * instead of the embedding, and but for the last it sends it on instead of sampling.
 *
 * A decode step that was recorded is one replay of all of this up to the logits. */
#include "models/llama.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "models/forward_pass.h"
#include "models/layer.h"
#include "models/recorded_steps.h"

#include <stdlib.h>

struct llama {
    struct forward_pass pass;
    const struct serving_limits *limits;
    const struct buffer *states; /* see llama_set_states */
    const int32_t *slots;        /* of the step */
    const void *sampled_hidden;  /* [num_sample_rows, hidden] of the last llama_forward, if its last
                                    layer went on with these rows alone; otherwise NULL */
    struct buffer head_rows;     /* [max_logit_rows, hidden] */
    struct buffer logits_share;  /* float [max_logit_rows, rank's vocab]; empty for one rank */
    struct buffer logits; /* float [max_logit_rows, vocab]; empty on ranks that do not sample */
    struct buffer hidden_sums; /* float [max_num_seqs, hidden]; likewise */
    size_t workspace_bytes;    /* of all of them */
    struct recorded_steps recorded, with_adapters;
    const struct recorded_step *replayed; /* by the last llama_forward; NULL: none */
    bool was_recorded;                    /* every size has run */
};

/* Sizes are in elements; the first NUM_ACTIVATIONS are of the backend's activation type, the others
 * float. The first NUM_ROW_PARTS have rows. */
enum workspace_part {
    HIDDEN,
    NARROW,
    WIDE,
    ATTENDED,
    EXPERT_INNER,
    LATENT,
    QUERIES,
    LORA_INNER,
    HEAD_ROWS,
    NUM_ACTIVATIONS,
    ROUTER_LOGITS = NUM_ACTIVATIONS,
    LOGITS_SHARE,
    LOGITS,
    HIDDEN_SUMS,
    NUM_ROW_PARTS,
    CHOICES = NUM_ROW_PARTS, /* bytes, like the next */
    LORA_CHOICES,
    NUM_WORKSPACE_PARTS
};

/* Rank 0 of the stage that has the head has the results. */
static bool has_results(const struct model_shard *shard) {
    return shard->has_head && shard->rank == 0;
}

/* Returns whether there is one stage: what it samples, it can embed. */
static bool is_whole(const struct model_shard *shard) {
    return shard->has_embedding && shard->has_head;
}

/* Returns the elements of a token's rows in the parts of the layers. */
static void measure_latent(const struct model_config *config, const struct model_shard *shard,
                           int32_t widths[static NUM_ROW_PARTS]) {
    const struct latent_config *latent = &config->latent;
    if (latent->kv_rank == 0)
        return;
    int32_t wide = max_int32(model_config_query_dim(config), latent->kv_rank);
    widths[WIDE] = max_int32(widths[WIDE], shard->num_heads * wide);
    widths[LATENT] = config->head_dim;
    widths[QUERIES] = max_int32(shard->num_heads * config->head_dim, latent->q_rank);
}

static void measure_layers(const struct model_config *config, const struct model_shard *shard,
                           int32_t widths[static NUM_ROW_PARTS]) {
    const struct moe_config *moe = &config->moe;
    int32_t hidden = config->hidden_size, q_width = model_shard_q_width(shard, config);
    int32_t ffn = max_int32(shard->intermediate_size, shard->shared_size);
    bool has_way_station = config->post_norm || shard->num_ranks > 1 || moe->num_experts > 0;
    int32_t chosen = moe->num_chosen, expert = shard->expert_size;
    widths[HIDDEN] = hidden;
    widths[NARROW] = max_int32(max_int32(hidden, q_width), ffn);
    int32_t qkv = config->latent.kv_rank > 0 ? 0 : model_shard_qkv_width(shard, config);
    widths[WIDE] = max_int32(max_int32(qkv, 2 * ffn), has_way_station ? hidden : 0);
    widths[WIDE] = max_int32(widths[WIDE], chosen * max_int32(2 * expert, hidden));
    widths[ATTENDED] = config->parallel_residual ? q_width : 0;
    widths[EXPERT_INNER] = chosen > 0 ? max_int32(chosen * expert, hidden) : 0;
    widths[ROUTER_LOGITS] = moe->num_experts;
    measure_latent(config, shard, widths);
}

/* Returns false when the sizes do not fit memory addresses. */
static bool measure_workspace(const struct model_config *config, const struct model_shard *shard,
                              const struct lora_shape *lora, enum dtype activation_dtype,
                              int32_t head_rows_step, const struct serving_limits *limits,
                              size_t out_bytes[static NUM_WORKSPACE_PARTS]) {
    int32_t hidden = config->hidden_size, tokens = limits->max_num_batched_tokens;
    bool is_divided = shard->num_ranks > 1, samples = has_results(shard);
    int32_t widths[NUM_ROW_PARTS] = {
        [HEAD_ROWS] = shard->has_head ? hidden : 0,
        [LOGITS_SHARE] = shard->has_head && is_divided ? shard->vocab_size : 0,
        [LOGITS] = !samples     ? 0
                   : is_divided ? config->vocab_size
                                : weights_head_rows(shard, head_rows_step),
        [HIDDEN_SUMS] = samples ? hidden : 0,
        [LORA_INNER] = lora != NULL ? LORA_MAX_PARTS * lora->max_rank : 0,
    };
    const int32_t rows[NUM_ROW_PARTS] = {
        [HIDDEN] = tokens,
        [NARROW] = tokens,
        [WIDE] = tokens,
        [ATTENDED] = tokens,
        [EXPERT_INNER] = tokens,
        [LATENT] = tokens,
        [QUERIES] = tokens,
        [LORA_INNER] = tokens,
        [ROUTER_LOGITS] = tokens,
        [HEAD_ROWS] = limits->max_logit_rows,
        [LOGITS_SHARE] = limits->max_logit_rows,
        [LOGITS] = limits->max_logit_rows,
        [HIDDEN_SUMS] = limits->max_num_seqs,
    };
    measure_layers(config, shard, widths);
    for (int i = 0; i < NUM_ROW_PARTS; i++) {
        enum dtype dtype = i < NUM_ACTIVATIONS ? activation_dtype : DTYPE_F32;
        if (!checked_mul((size_t)rows[i], dtype_row_bytes(dtype, (size_t)widths[i]), &out_bytes[i]))
            return false;
    }
    out_bytes[CHOICES] =
        config->moe.num_experts == 0
            ? 0
            : expert_choices_bytes(tokens, config->moe.num_chosen, config->moe.num_experts);
    out_bytes[LORA_CHOICES] = lora == NULL ? 0 : expert_choices_bytes(tokens, 1, lora->num_slots);
    return out_bytes[CHOICES] != SIZE_MAX && out_bytes[LORA_CHOICES] != SIZE_MAX;
}

size_t llama_workspace_needed(const struct model_config *config, const struct model_shard *shard,
                              const struct lora_shape *lora, enum dtype activation_dtype,
                              int32_t head_rows_step, const struct serving_limits *limits) {
    size_t bytes[NUM_WORKSPACE_PARTS], sum = 0;
    if (!measure_workspace(config, shard, lora, activation_dtype, head_rows_step, limits, bytes))
        return SIZE_MAX;
    for (int i = 0; i < NUM_WORKSPACE_PARTS; i++)
        if (!checked_add(sum, bytes[i], &sum))
            return SIZE_MAX;
    return sum;
}

/* Points to the buffers of the workspace, by part. */
static void list_buffers(struct llama *llama, struct buffer *out[static NUM_WORKSPACE_PARTS]) {
    out[HIDDEN] = &llama->pass.hidden;
    out[NARROW] = &llama->pass.narrow;
    out[WIDE] = &llama->pass.wide;
    out[ATTENDED] = &llama->pass.attended;
    out[EXPERT_INNER] = &llama->pass.expert_inner;
    out[LATENT] = &llama->pass.latent;
    out[QUERIES] = &llama->pass.queries;
    out[ROUTER_LOGITS] = &llama->pass.router_logits;
    out[CHOICES] = &llama->pass.choices;
    out[LORA_INNER] = &llama->pass.lora_inner;
    out[LORA_CHOICES] = &llama->pass.lora_choices;
    out[HEAD_ROWS] = &llama->head_rows;
    out[LOGITS_SHARE] = &llama->logits_share;
    out[LOGITS] = &llama->logits;
    out[HIDDEN_SUMS] = &llama->hidden_sums;
}

static int alloc_workspace(struct llama *llama, struct error *err) {
    const struct forward_pass *pass = &llama->pass;
    struct backend *b = pass->backend;
    struct buffer *buffers[NUM_WORKSPACE_PARTS];
    size_t bytes[NUM_WORKSPACE_PARTS];
    const struct lora_shape *lora = pass->lora != NULL ? lora_slots_shape(pass->lora) : NULL;
    if (!measure_workspace(pass->config, pass->shard, lora, b->activation_dtype, b->head_rows_step,
                           llama->limits, bytes))
        return error_set(err, ERROR_MEMORY, "the workspace of a step of %d tokens is too large",
                         llama->limits->max_num_batched_tokens);
    list_buffers(llama, buffers);
    for (int i = 0; i < NUM_WORKSPACE_PARTS; i++) {
        if (bytes[i] > 0 && b->ops->buffer_alloc(b, bytes[i], buffers[i], err) != 0)
            return -1;
        llama->workspace_bytes += bytes[i];
    }
    return b->ops->synchronize(b, err);
}

int llama_create(struct backend *backend, const struct model_config *config,
                 const struct model_shard *shard, const struct weights *weights,
                 const struct lora_slots *lora, const struct serving_limits *limits,
                 struct llama **out, struct error *err) {
    CHECK(limits->max_num_batched_tokens > 0 && limits->max_logit_rows > 0);
    /* Both branches read one norm, of hidden states that neither has been added to. */
    CHECK(!config->parallel_residual || (config->pre_norm && !config->post_norm));
    /* The shared expert reads the branch's input after the others' results were added. */
    CHECK(config->moe.num_experts == 0 || config->pre_norm);
    struct llama *llama = calloc(1, sizeof(*llama));
    if (llama == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the forward pass");
    llama->pass = (struct forward_pass){
        .backend = backend, .config = config, .shard = shard, .weights = weights, .lora = lora};
    llama->limits = limits;
    for (int32_t i = 0; i < shard->num_layers; i++)
        llama->pass.places[i] = kv_groups_place(config, shard, limits, shard->first_layer + i);
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
    struct backend *b = llama->pass.backend;
    struct buffer *buffers[NUM_WORKSPACE_PARTS];
    llama_forget_recorded(llama);
    list_buffers(llama, buffers);
    for (int i = 0; i < NUM_WORKSPACE_PARTS; i++)
        b->ops->buffer_free(b, buffers[i]);
    free(llama);
}

size_t llama_workspace_bytes(const struct llama *llama) {
    return llama->workspace_bytes;
}

/* --- The layers --- */

/* Each token's vector; of a row that another rank has, zeros, to which that rank adds it. */
static void embed(const struct forward_pass *pass) {
    struct backend *b = pass->backend;
    b->ops->embed(b, &(struct embed_args){.table = pass->weights->embedding,
                                          .out = pass->hidden.data,
                                          .first_row = pass->shard->first_vocab,
                                          .scale = pass->config->embedding_scale});
    if (pass->shard->num_ranks > 1)
        b->ops->all_reduce(b, &(struct all_reduce_args){.x = pass->hidden.data,
                                                        .out = pass->hidden.data,
                                                        .num_rows = pass->num_tokens,
                                                        .width = pass->config->hidden_size});
}

static struct stage_rows_args hidden_rows(const struct forward_pass *pass) {
    return (struct stage_rows_args){
        .x = pass->hidden.data, .num_rows = pass->num_tokens, .width = pass->config->hidden_size};
}

/* From the stage before, if there is one. */
static void receive_hidden(const struct forward_pass *pass) {
    const struct stage_rows_args rows = hidden_rows(pass);
    if (!pass->shard->has_embedding)
        pass->backend->ops->receive_rows(pass->backend, &rows);
}

/* Returns whether rows of the last layer are read that are not sampled. With several ranks it is
 * assumed: they would have to agree, and only the one that samples knows of hidden sums. */
static bool reads_all_rows(const struct llama *llama, const struct batch *batch) {
    const struct model_shard *shard = llama->pass.shard;
    return !shard->has_head || shard->num_ranks > 1 || llama->states != NULL ||
           llama->pass.config->is_mtp || batch->num_hidden_sums > 0;
}

/* Of the step that was begun. batch: NULL in a recording. */
static void run_layers(struct llama *llama, const struct batch *batch) {
    struct forward_pass *pass = &llama->pass;
    const struct model_shard *shard = pass->shard;
    int32_t last = shard->first_layer + shard->num_layers - 1;
    const struct stage_rows_args rows = hidden_rows(pass);
    if (shard->has_embedding)
        embed(pass);
    if (pass->config->is_mtp)
        forward_pass_mtp_input(pass, llama->states, llama->slots);
    if (pass->has_adapters)
        forward_pass_choose_adapters(pass);
    for (int32_t layer = shard->first_layer; layer < last; layer++)
        layer_run(pass, layer);
    llama->sampled_hidden =
        batch == NULL || reads_all_rows(llama, batch)
            ? NULL
            : layer_run_rows(pass, last, batch->logit_rows, batch->num_sample_rows);
    if (llama->sampled_hidden == NULL)
        layer_run(pass, last);
    if (!shard->has_head)
        pass->backend->ops->send_rows(pass->backend, &rows);
}

/* What is sampled is known before the forward pass, unless it comes late. */
static struct step_inputs inputs_of(const struct batch *batch) {
    struct step_inputs inputs = batch->inputs;
    inputs.num_sample_rows = batch->num_sample_rows;
    inputs.logit_rows = batch->num_sample_rows > 0 ? batch->logit_rows : NULL;
    inputs.sample_rows = inputs.logit_rows && !batch->has_late_inputs ? batch->sample_rows : NULL;
    return inputs;
}

void llama_forward(struct llama *llama, struct kv_cache *cache, const struct batch *batch) {
    struct forward_pass *pass = &llama->pass;
    struct backend *b = pass->backend;
    struct step_inputs inputs = inputs_of(batch);
    pass->cache = cache;
    pass->num_tokens = inputs.num_tokens;
    llama->slots = inputs.slot_mapping;
    CHECK(pass->num_tokens > 0 && pass->num_tokens <= llama->limits->max_num_batched_tokens);
    CHECK(inputs.token_rows == NULL || is_whole(pass->shard));
    pass->has_adapters = pass->lora != NULL && inputs.adapter_slots != NULL;
    llama->replayed =
        recorded_steps_find(pass->has_adapters ? &llama->with_adapters : &llama->recorded, batch);
    if (llama->replayed != NULL) {
        inputs.num_padding = llama->replayed->num_rows - inputs.num_tokens;
        inputs.logit_rows = NULL;
    }
    if (llama->replayed == NULL)
        receive_hidden(pass);
    b->ops->step_begin(b, &inputs);
    if (llama->replayed != NULL)
        b->ops->recording->replay(b, llama->replayed->recording);
    else
        run_layers(llama, batch);
    if (llama->states != NULL && !pass->config->is_mtp)
        llama_keep_states(llama, NULL, inputs.slot_mapping, inputs.num_tokens);
}

void llama_set_states(struct llama *llama, const struct buffer *states) {
    CHECK(is_whole(llama->pass.shard));
    llama->states = states;
}

void llama_keep_states(struct llama *llama, const int32_t *rows, const int32_t *slots,
                       int32_t count) {
    forward_pass_keep_states(&llama->pass, rows, slots, count, llama->states);
}

/* --- The head --- */

static int32_t logits_width(const struct llama *llama) {
    const struct forward_pass *pass = &llama->pass;
    return pass->shard->num_ranks > 1
               ? pass->config->vocab_size
               : weights_head_rows(pass->shard, pass->backend->head_rows_step);
}

/* Returns where this rank computes logits: its columns of them. */
static float *own_logits(const struct llama *llama) {
    return llama->pass.shard->num_ranks > 1 ? llama->logits_share.data : llama->logits.data;
}

/* Logits of `count` rows of hidden states. */
static void compute_logits(struct llama *llama, const void *hidden, int32_t count) {
    const struct forward_pass *pass = &llama->pass;
    struct backend *b = pass->backend;
    float *logits = own_logits(llama);
    bool is_divided = pass->shard->num_ranks > 1;
    forward_pass_norm(pass, &pass->weights->output_norm, hidden, llama->head_rows.data, count,
                      false);
    b->ops->linear(b, &(struct linear_args){.x = llama->head_rows.data,
                                            .weight = pass->weights->head,
                                            .out = logits,
                                            .num_rows = count,
                                            .scale = pass->config->logit_scale,
                                            .float_out = true});
    if (pass->config->final_soft_cap > 0.0F)
        b->ops->soft_cap(b, &(struct soft_cap_args){.x = logits,
                                                    .num_rows = count,
                                                    .width = is_divided ? pass->shard->vocab_size
                                                                        : logits_width(llama),
                                                    .cap = pass->config->final_soft_cap});
}

/* What is sampled in rows first .. first + count - 1 where the results are. */
static struct sample_args sample_args_of(const struct llama *llama, const struct batch *batch,
                                         int32_t first, int32_t count,
                                         const struct step_result *result) {
    int32_t vocab_size = llama->pass.config->vocab_size;
    return (struct sample_args){.logits = llama->logits.data,
                                .first_row = first,
                                .num_sample_rows = count,
                                .vocab_size = vocab_size,
                                .padding = logits_width(llama) - vocab_size,
                                .rows = batch->sample_rows + first,
                                .counts = batch->token_counts,
                                .biases = batch->token_biases,
                                .masks = batch->token_masks,
                                .listed = batch->listed_tokens,
                                .out = result->rows + first,
                                .listed_logprobs = result->listed_logprobs};
}

/* Samples from logits of which each rank has its share. args: of rank 0, else NULL. */
static void sample_divided(struct llama *llama, int32_t count, const struct sample_row *rows,
                           const struct sample_args *args) {
    const struct model_shard *shard = llama->pass.shard;
    struct backend *b = llama->pass.backend;
    if (b->ops->sample_vocab_parallel != NULL) {
        b->ops->sample_vocab_parallel(
            b, &(struct vocab_parallel_sample_args){.share = own_logits(llama),
                                                    .first_token = shard->first_vocab,
                                                    .num_tokens = shard->vocab_size,
                                                    .num_sample_rows = count,
                                                    .rows = rows,
                                                    .sample = args});
        return;
    }
    b->ops->gather_columns(b, &(struct gather_columns_args){.x = own_logits(llama),
                                                            .out = llama->logits.data,
                                                            .num_rows = count,
                                                            .width = shard->vocab_size});
    if (args != NULL)
        b->ops->sample(b, args);
}

/* Samples in rows first .. first + count - 1. Rank 0 has the results; the others learn its tokens.
 */
static void sample_rows(struct llama *llama, const struct batch *batch, int32_t first,
                        int32_t count, const struct step_result *result) {
    const struct model_shard *shard = llama->pass.shard;
    struct backend *b = llama->pass.backend;
    struct sample_args args;
    if (has_results(shard))
        args = sample_args_of(llama, batch, first, count, result);
    if (shard->num_ranks == 1) {
        b->ops->sample(b, &args);
        return;
    }
    sample_divided(llama, count, batch->sample_rows + first, has_results(shard) ? &args : NULL);
    if (is_whole(shard))
        b->ops->share_samples(
            b, &(struct share_samples_args){.first_row = first, .num_sample_rows = count});
}

/* count <= max_logit_rows. */
static void sample_chunk(struct llama *llama, const struct batch *batch, int32_t first,
                         int32_t count, const struct step_result *result) {
    const struct forward_pass *pass = &llama->pass;
    struct backend *b = pass->backend;
    int32_t width = pass->config->hidden_size;
    size_t row_bytes = dtype_row_bytes(b->activation_dtype, (size_t)width);
    const void *rows = llama->head_rows.data;
    if (llama->sampled_hidden != NULL)
        rows = (const char *)llama->sampled_hidden + (size_t)first * row_bytes;
    else
        b->ops->gather_rows(b, &(struct gather_rows_args){.x = pass->hidden.data,
                                                          .rows = batch->logit_rows + first,
                                                          .out = llama->head_rows.data,
                                                          .num_rows = count,
                                                          .width = width});
    compute_logits(llama, rows, count);
    sample_rows(llama, batch, first, count, result);
}

/* Normalises the rows of all spans, and what lies between, into `narrow` at once. */
static void add_to_hidden_sums(struct llama *llama, const struct batch *batch, float *out_sums) {
    const struct forward_pass *pass = &llama->pass;
    struct backend *b = pass->backend;
    const struct row_span *spans = batch->hidden_spans, *last = &spans[batch->num_hidden_sums - 1];
    size_t width = (size_t)pass->config->hidden_size;
    size_t row_bytes = width * dtype_block_bytes(b->activation_dtype);
    size_t sums_bytes = (size_t)batch->num_hidden_sums * width * sizeof(float);
    size_t offset = (size_t)spans->first_row * row_bytes;
    CHECK(batch->num_hidden_sums <= llama->limits->max_num_seqs);
    forward_pass_norm(pass, &pass->weights->output_norm, (const char *)pass->hidden.data + offset,
                      (char *)pass->narrow.data + offset,
                      last->first_row + last->num_rows - spans->first_row, false);
    b->ops->upload(b, llama->hidden_sums.data, batch->hidden_sums, sums_bytes);
    b->ops->add_rows(b, &(struct add_rows_args){.x = pass->narrow.data,
                                                .spans = spans,
                                                .sums = llama->hidden_sums.data,
                                                .num_spans = batch->num_hidden_sums,
                                                .width = pass->config->hidden_size});
    b->ops->download(b, out_sums, llama->hidden_sums.data, sums_bytes);
}

void llama_sample(struct llama *llama, const struct batch *batch, struct step_result *result) {
    const struct model_shard *shard = llama->pass.shard;
    int32_t num_rows = batch->num_sample_rows, chunk = llama->limits->max_logit_rows;
    if (!shard->has_head)
        return;
    if (llama->replayed != NULL)
        sample_rows(llama, batch, 0, num_rows, result);
    else
        for (int32_t first = 0; first < num_rows; first += chunk)
            sample_chunk(llama, batch, first, min_int32(num_rows - first, chunk), result);
    if (!has_results(shard))
        return;
    if (batch->num_hidden_sums > 0)
        add_to_hidden_sums(llama, batch, result->hidden_sums);
    result->num_sample_rows = num_rows;
}

int llama_step(struct llama *llama, struct kv_cache *cache, const struct batch *batch,
               struct step_result *result, struct error *err) {
    struct backend *b = llama->pass.backend;
    llama_forward(llama, cache, batch);
    llama_sample(llama, batch, result);
    return b->ops->synchronize(b, err);
}

/* --- Recorded steps --- */

/* A decode step of num_rows sequences up to the logits, after its step_begin. Each sequence has one
 * token, so that the hidden states are the rows of the head. */
static void enqueue_decode(struct llama *llama, int32_t num_rows) {
    llama->pass.num_tokens = num_rows;
    receive_hidden(&llama->pass);
    run_layers(llama, NULL);
    if (llama->pass.shard->has_head)
        compute_logits(llama, llama->pass.hidden.data, num_rows);
}

/* Of nothing but padding, which touches no block of the cache. What attention plans is known to the
 * step after the first, unless another llama's was in between; what a size needs is loaded once. */
static int record_step(struct llama *llama, int32_t num_rows, bool is_first, struct recording **out,
                       struct error *err) {
    static const int32_t no_tokens[1] = {0};
    struct backend *b = llama->pass.backend;
    const struct step_inputs padding = {.num_padding = num_rows,
                                        .num_groups = serving_limits_groups(llama->limits),
                                        .query_start = no_tokens};
    if (is_first || !llama->was_recorded) {
        b->ops->step_begin(b, &padding);
        enqueue_decode(llama, num_rows);
    }
    b->ops->step_begin(b, &padding);
    if (b->ops->synchronize(b, err) != 0 || b->ops->recording->begin(b, 0, err) != 0)
        return -1;
    enqueue_decode(llama, num_rows);
    return b->ops->recording->end(b, out, err);
}

static int record_sizes(struct llama *llama, struct recorded_steps *out, struct error *err) {
    const struct serving_limits *limits = llama->limits;
    int32_t sizes[RECORDED_STEPS_MAX_SIZES];
    int32_t count = recorded_steps_sizes(
        min_int32(limits->max_num_seqs,
                  min_int32(limits->max_num_batched_tokens, limits->max_logit_rows)),
        sizes);
    for (int32_t i = 0; i < count; i++) {
        struct recorded_step step = {.num_rows = sizes[i]};
        if (record_step(llama, step.num_rows, i == 0, &step.recording, err) != 0)
            return -1;
        out->steps[out->count++] = step;
    }
    return 0;
}

/* With adapters, once more for the steps that use some. */
int llama_record(struct llama *llama, struct kv_cache *cache, struct error *err) {
    struct forward_pass *pass = &llama->pass;
    /* An MTP layer reads a list of slots that a recording would not have. */
    if (pass->backend->ops->recording == NULL || pass->config->is_mtp)
        return 0;
    pass->cache = cache;
    pass->has_adapters = false;
    int status = record_sizes(llama, &llama->recorded, err);
    pass->has_adapters = pass->lora != NULL;
    if (status == 0 && pass->has_adapters)
        status = record_sizes(llama, &llama->with_adapters, err);
    if (status != 0) {
        llama_forget_recorded(llama);
        return -1;
    }
    llama->was_recorded = true;
    return 0;
}

static void forget(struct backend *b, struct recorded_steps *recorded) {
    for (int32_t i = 0; i < recorded->count; i++)
        b->ops->recording->free(b, recorded->steps[i].recording);
    recorded->count = 0;
}

void llama_forget_recorded(struct llama *llama) {
    forget(llama->pass.backend, &llama->recorded);
    forget(llama->pass.backend, &llama->with_adapters);
    llama->replayed = NULL;
}

int32_t llama_num_recorded(const struct llama *llama) {
    return llama->recorded.count + llama->with_adapters.count;
}
