#include "engine/executor/rank_draft.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"
#include "engine/executor/rank.h"
#include "kernels/kv_type.h"

#include <stdlib.h>
#include <string.h>

/* --- What cannot have a draft model --- */

/* What messages call it. */
static const char *what(const struct model *draft) {
    return draft->config.is_mtp ? "mtp" : "model";
}

int rank_draft_check(const struct executor_config *config, struct error *err) {
    int32_t num_ranks = max_int32(config->num_ranks, 1) * max_int32(config->num_stages, 1);
    int32_t kept = serving_limits_longest_window(&config->limits);
    if (config->draft_model == NULL)
        return 0;
    if (config->transport != NULL)
        return error_set(err, ERROR_CONFIG,
                         "speculative-config: %s is for one rank; mpirun has started several "
                         "processes",
                         what(config->draft_model));
    if (num_ranks > 1)
        return error_set(err, ERROR_CONFIG,
                         "speculative-config: %s is for one rank, not %d; tensor-parallel-size "
                         "and pipeline-parallel-size must be 1",
                         what(config->draft_model), num_ranks);
    int32_t window = model_window(&config->draft_model->config);
    if (kept > 0 && (window == 0 || window > kept))
        return error_set(err, ERROR_CONFIG,
                         "speculative-config: model needs more than the last %d tokens; the served "
                         "model sees no others, so their keys and values are not kept",
                         kept);
    return 0;
}

void rank_draft_widen(const struct model *model, struct backend_config *config) {
    const struct model_config *own = &model->config;
    config->limits.vocab_size = max_int32(config->limits.vocab_size, own->vocab_size);
    config->head_dim = max_int32(config->head_dim, own->head_dim);
    config->latent_dim = max_int32(config->latent_dim, own->latent.kv_rank);
    config->num_q_heads = max_int32(config->num_q_heads, own->num_heads);
    config->num_kv_heads = max_int32(config->num_kv_heads, own->num_kv_heads);
}

/* A GPU prepares attention of one kind. */
static int check_layouts(const struct rank_draft *draft, const struct kv_layout *served,
                         struct error *err) {
    bool is_latent = draft->cache.layout.latent_dim > 0;
    if (!draft->backend->has_dedicated_memory || is_latent == (served->latent_dim > 0))
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "speculative-config: model has %s attention and the served model has not; on "
                     "%s both must have the same",
                     is_latent ? "latent" : "no latent", draft->backend->name);
}

/* --- Opening and closing --- */

static struct kv_layout states_layout(const struct model_config *config,
                                      const struct backend *backend, int32_t block_size) {
    return (struct kv_layout){.num_layers = 1,
                              .num_kv_heads = 1,
                              .head_dim = config->hidden_size,
                              .latent_dim = config->hidden_size,
                              .block_size = block_size,
                              .type = kv_type_of_dtype(backend->activation_dtype)};
}

int rank_draft_init(struct rank_draft *out, const struct model *model, struct backend *backend,
                    const struct kv_layout *served, enum dtype quantization, struct error *err) {
    const struct model_config *config = &model->config;
    if (config->is_mtp && backend->has_dedicated_memory)
        return error_set(err, ERROR_CONFIG,
                         "speculative-config: mtp is for the CPU, and not yet for %s",
                         backend->name);
    *out = (struct rank_draft){.model = model, .backend = backend};
    if (model_shard_init(model, quantization, 0, 1, &out->shard, err) != 0)
        return -1;
    if (config->is_mtp)
        out->states.layout = states_layout(config, backend, served->block_size);
    out->cache.layout = (struct kv_layout){
        .num_layers = out->shard.num_layers,
        .num_kv_heads = out->shard.num_kv_heads,
        .head_dim = config->head_dim,
        .latent_dim = config->latent.kv_rank,
        .block_size = served->block_size,
        .type = served->type,
    };
    return check_layouts(out, served, err);
}

size_t rank_draft_plan(struct rank_draft *draft, const struct serving_limits *limits,
                       const struct weights_options *options) {
    const struct backend *b = draft->backend;
    const struct model_config *config = &draft->model->config;
    draft->target_vocab_size = limits->vocab_size;
    draft->limits = *limits;
    draft->limits.vocab_size = config->vocab_size;
    draft->limits.hidden_size = config->hidden_size;
    draft->limits.num_groups = 1; /* the first, which keeps all that any other keeps */
    draft->limits.num_full_groups = 0;
    size_t weights = weights_needed(draft->model, &draft->shard, options, b);
    size_t workspace = llama_workspace_needed(config, &draft->shard, NULL, b->activation_dtype,
                                              b->head_rows_step, &draft->limits);
    return checked_add(weights, workspace, &weights) ? weights : SIZE_MAX;
}

static int alloc_arrays(struct rank_draft *draft, struct error *err) {
    const struct serving_limits *limits = &draft->limits;
    const struct batch_capacity capacity = {.num_tokens = limits->max_num_batched_tokens,
                                            .num_seqs = limits->max_num_seqs,
                                            .num_table_blocks = serving_limits_max_blocks(limits),
                                            .num_sample_rows = limits->max_num_seqs};
    draft->outputs = calloc((size_t)limits->max_num_seqs, sizeof(*draft->outputs));
    draft->token_ids = calloc((size_t)limits->max_num_batched_tokens, sizeof(*draft->token_ids));
    draft->next_slots = calloc((size_t)limits->max_num_seqs, sizeof(*draft->next_slots));
    if (draft->outputs != NULL && draft->token_ids != NULL && draft->next_slots != NULL &&
        batch_arena_init(&draft->arena, &capacity) == 0)
        return 0;
    return error_set(err, ERROR_MEMORY, "no memory for the arrays of the draft model's steps");
}

int rank_draft_load(struct rank_draft *draft, struct weights_reader *reader,
                    const struct weights_options *options, const struct weights *target,
                    struct rank_watch *watch, struct error *err) {
    struct backend *b = draft->backend;
    struct weights_options own = *options;
    own.shared = target;
    if (alloc_arrays(draft, err) != 0 ||
        weights_load(b, draft->model, &draft->shard, reader, &own, &draft->weights, err) != 0)
        return -1;
    rank_watch_begin(watch);
    int status = b->ops->synchronize(b, err);
    if (status == 0)
        status = llama_create(b, &draft->model->config, &draft->shard, draft->weights, NULL,
                              &draft->limits, &draft->llama, err);
    if (status == 0 && rank_draft_has_states(draft))
        llama_set_states(draft->llama, &draft->states.buffer);
    rank_watch_end(watch);
    return status;
}

size_t rank_draft_bytes(const struct rank_draft *draft) {
    return draft->weights->bytes + llama_workspace_bytes(draft->llama);
}

void rank_draft_close(struct rank_draft *draft) {
    struct backend *b = draft->backend;
    if (draft->model == NULL)
        return;
    llama_destroy(draft->llama);
    b->ops->buffer_free(b, &draft->cache.buffer);
    b->ops->buffer_free(b, &draft->states.buffer);
    weights_free(b, draft->weights);
    batch_arena_finish(&draft->arena);
    free(draft->outputs);
    free(draft->token_ids);
    free(draft->next_slots);
    *draft = (struct rank_draft){0};
}

/* --- A pass --- */

static int32_t slot_of(const struct rank_draft *draft, const int32_t *table, int32_t position) {
    int32_t block_size = draft->cache.layout.block_size;
    return table[position / block_size] * block_size + position % block_size;
}

/* Adds `count` tokens from a position on, of the request's sequence. An MTP layer computes them in
 * the places before theirs. */
static void add_tokens(struct rank_draft *draft, const struct batch *batch,
                       const struct draft_request *request, const int32_t *tokens, int32_t begin,
                       int32_t count) {
    struct batch_arena *a = &draft->arena;
    int32_t seq = a->counts->num_seqs++, token = a->counts->num_tokens;
    int32_t block_size = draft->cache.layout.block_size, end;
    size_t stride = (size_t)batch->inputs.max_blocks_per_seq;
    const int32_t *table = batch->inputs.block_tables + (size_t)request->seq * stride;
    begin -= rank_draft_has_states(draft) ? 1 : 0;
    end = begin + count;
    CHECK(begin >= 0 && count > 0 && end <= batch->inputs.context_lens[request->seq]);
    CHECK(count <= draft->limits.max_num_batched_tokens - token);
    for (int32_t position = begin; position < end; position++, token++) {
        a->token_ids[token] = tokens[position - begin];
        a->positions[token] = position;
        a->slot_mapping[token] = slot_of(draft, table, position);
    }
    memcpy(a->block_tables + (size_t)seq * stride, table,
           ((size_t)(end - 1) / (size_t)block_size + 1) * sizeof(*table));
    a->context_lens[seq] = end;
    a->query_start[seq + 1] = token;
    a->counts->num_tokens = token;
}

/* Draft `index` of the request follows the token added last. It depends on no other row, and
 * nothing but its token is wanted, and the state that an MTP layer continues from. */
static void add_row(struct rank_draft *draft, const struct batch *batch,
                    const struct draft_request *request, int32_t index) {
    struct batch_arena *a = &draft->arena;
    struct sample_row *row = &a->sample_rows[a->counts->num_sample_rows];
    int32_t seq = a->counts->num_seqs - 1, end = a->context_lens[seq];
    const int32_t *table = batch->inputs.block_tables +
                           (size_t)request->seq * (size_t)batch->inputs.max_blocks_per_seq;
    if (rank_draft_has_states(draft)) /* which leaves the last token's place free */
        draft->next_slots[a->counts->num_sample_rows] = slot_of(draft, table, end);
    a->logit_rows[a->counts->num_sample_rows++] = a->counts->num_tokens - 1;
    *row = batch->sample_rows[request->first_row + index];
    row->target = SAMPLE_NO_TARGET;
    row->num_logprobs = -1;
    row->num_counts = row->num_listed = row->num_ranked = 0;
    row->mask = SAMPLE_NO_MASK;
    if (draft->limits.vocab_size < draft->target_vocab_size)
        row->num_biases = 0; /* some may be of tokens that it lacks */
}

static void begin_pass(struct rank_draft *draft, const struct batch *batch) {
    *draft->arena.counts =
        (struct batch_counts){.max_blocks_per_seq = batch->inputs.max_blocks_per_seq};
    draft->arena.query_start[0] = 0;
}

/* Returns 0, or -1 when the device has failed. */
static int run_pass(struct rank_draft *draft, const struct batch *batch, struct rank_watch *watch) {
    struct backend *b = draft->backend;
    struct batch pass = batch_arena_view(&draft->arena);
    struct step_result result = {.rows = draft->outputs};
    pass.num_biases = batch->num_biases;
    pass.token_biases = batch->token_biases;
    rank_watch_begin(watch);
    llama_forward(draft->llama, &draft->cache, &pass);
    if (rank_draft_has_states(draft) && pass.num_sample_rows > 0)
        llama_keep_states(draft->llama, pass.logit_rows, draft->next_slots, pass.num_sample_rows);
    llama_sample(draft->llama, &pass, &result);
    b->ops->step_end(b);
    int status = b->ops->step_wait(b, NULL);
    rank_watch_end(watch);
    return status;
}

/* --- All passes of a batch --- */

static void add_inputs(struct rank_draft *draft, const struct batch *batch) {
    const int32_t *inputs = batch->draft_inputs;
    begin_pass(draft, batch);
    for (int32_t i = 0; i < batch->num_draft_requests; i++) {
        const struct draft_request *request = &batch->draft_requests[i];
        add_tokens(draft, batch, request, inputs, request->begin, request->num_inputs);
        if (request->num_drafts > 0)
            add_row(draft, batch, request, 0);
        inputs += request->num_inputs;
    }
}

/* Adds draft index - 1 of each request that wants draft `index`. */
static void add_drafts(struct rank_draft *draft, const struct batch *batch, int32_t index,
                       const int32_t *drafts) {
    begin_pass(draft, batch);
    for (int32_t i = 0; i < batch->num_draft_requests; i++) {
        const struct draft_request *request = &batch->draft_requests[i];
        if (request->num_drafts > index) {
            add_tokens(draft, batch, request, drafts + index - 1,
                       request->begin + request->num_inputs + index - 1, 1);
            add_row(draft, batch, request, index);
        }
        drafts += request->num_drafts;
    }
}

/* A token that the other model lacks becomes one that it has. */
static void take_drafts(const struct rank_draft *draft, const struct batch *batch, int32_t index,
                        int32_t *drafts) {
    const struct sample_output *output = draft->outputs;
    for (int32_t i = 0; i < batch->num_draft_requests; i++) {
        int32_t num_drafts = batch->draft_requests[i].num_drafts;
        if (num_drafts > index) {
            int32_t token = (output++)->token;
            drafts[index] = token < draft->target_vocab_size ? token : 0;
        }
        drafts += num_drafts;
    }
}

static int32_t most_drafts(const struct batch *batch, int32_t *out_sum) {
    int32_t most = 0;
    *out_sum = 0;
    for (int32_t i = 0; i < batch->num_draft_requests; i++) {
        most = max_int32(most, batch->draft_requests[i].num_drafts);
        *out_sum += batch->draft_requests[i].num_drafts;
    }
    return most;
}

static struct batch with_drafts(struct rank_draft *draft, const struct batch *batch,
                                const int32_t *drafts) {
    struct batch filled = *batch;
    memcpy(draft->token_ids, batch->inputs.token_ids,
           (size_t)batch->inputs.num_tokens * sizeof(*draft->token_ids));
    for (int32_t i = 0; i < batch->num_draft_requests; i++) {
        const struct draft_request *request = &batch->draft_requests[i];
        int32_t first = batch->inputs.query_start[request->seq + 1] - request->num_drafts;
        CHECK(first >= batch->inputs.query_start[request->seq]);
        memcpy(draft->token_ids + first, drafts, (size_t)request->num_drafts * sizeof(*drafts));
        drafts += request->num_drafts;
    }
    filled.inputs.token_ids = draft->token_ids;
    return filled;
}

struct batch rank_draft_run(struct rank_draft *draft, const struct batch *batch,
                            struct step_result *result, struct rank_watch *watch) {
    int32_t sum, most = most_drafts(batch, &sum);
    CHECK(draft->model != NULL && batch->num_draft_requests <= draft->limits.max_num_seqs);
    CHECK(!batch->has_late_inputs && batch->inputs.token_rows == NULL);
    memset(result->drafts, 0, (size_t)sum * sizeof(*result->drafts));
    add_inputs(draft, batch);
    int status = run_pass(draft, batch, watch);
    for (int32_t i = 0; i < most && status == 0; i++) {
        if (i > 0) {
            add_drafts(draft, batch, i, result->drafts);
            status = run_pass(draft, batch, watch);
        }
        if (status == 0)
            take_drafts(draft, batch, i, result->drafts);
    }
    return with_drafts(draft, batch, result->drafts);
}
