/* Logits never leave the device in the product. Here the op table is copied with the ops that
 * sample replaced by ones that download them first, so that the forward pass runs exactly as it is.
 */
#include "tests/golden/golden_run.h"

#include "config/base/check.h"
#include "models/config/mtp.h"
#include "models/kv_groups.h"
#include "models/weights/weights_reader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTER_SLOT 1
#define ADAPTER_PIECE 5000 /* bytes */

static struct {
    const struct backend_ops *original;
    float *out; /* next row goes here; NULL: not needed */
    int32_t rows_left;
} watched;

static void download_logits(struct backend *b, const struct sample_args *args) {
    if (watched.out != NULL && watched.rows_left > 0) {
        int32_t rows =
            args->num_sample_rows < watched.rows_left ? args->num_sample_rows : watched.rows_left;
        size_t vocab = (size_t)args->vocab_size, stride = vocab + (size_t)args->padding;
        for (int32_t r = 0; r < rows; r++, watched.out += vocab)
            b->ops->download(b, watched.out, args->logits + (size_t)r * stride,
                             vocab * sizeof(float));
        watched.rows_left -= rows;
    }
}

static void watch_sample(struct backend *b, const struct sample_args *args) {
    download_logits(b, args);
    watched.original->sample(b, args);
}

/* Of every rank: the whole rows are brought as well. */
static void watch_vocab_parallel(struct backend *b, const struct vocab_parallel_sample_args *args) {
    bool is_first = args->sample != NULL;
    b->ops->gather_columns(
        b, &(struct gather_columns_args){.x = args->share,
                                         .out = is_first ? args->sample->logits : NULL,
                                         .num_rows = args->num_sample_rows,
                                         .width = args->num_tokens});
    if (is_first)
        download_logits(b, args->sample);
    watched.original->sample_vocab_parallel(b, args);
}

static int init_cache(const struct golden_run *run, struct golden_rank *rank, struct error *err) {
    const struct model_config *config = &run->model->config;
    int32_t num_layers = kv_groups_layers(config, &rank->shard, &run->limits);
    rank->cache.layout = (struct kv_layout){.num_layers = num_layers,
                                            .num_kv_heads = rank->shard.num_kv_heads,
                                            .head_dim = config->head_dim,
                                            .latent_dim = config->latent.kv_rank,
                                            .block_size = GOLDEN_BLOCK_SIZE,
                                            .type = backend_kv_type(rank->backend, run->kv_type)};
    rank->cache.num_blocks = run->limits.num_groups * GOLDEN_NUM_BLOCKS;
    size_t bytes = (size_t)rank->cache.num_blocks * kv_block_bytes(&rank->cache.layout);
    return rank->backend->ops->buffer_alloc(rank->backend, bytes, &rank->cache.buffer, err);
}

/* Fewer logit rows than most steps ask for: chunks of the head are part of the test. */
static const struct serving_limits common_limits = {.max_num_seqs = 2,
                                                    .max_num_batched_tokens = GOLDEN_MAX_TOKENS,
                                                    .max_logit_rows = 12,
                                                    .max_model_len =
                                                        GOLDEN_NUM_BLOCKS * GOLDEN_BLOCK_SIZE,
                                                    .block_size = GOLDEN_BLOCK_SIZE};

static int open_backend(struct golden_run *run, int32_t index, const struct golden_device *device,
                        struct error *err) {
    const struct model_config *model = &run->model->config;
    struct golden_rank *rank = &run->ranks[index];
    struct backend_config config = {.num_threads = 2,
                                    .limits = run->limits,
                                    .head_dim = model->head_dim,
                                    .latent_dim = model->latent.kv_rank,
                                    .num_q_heads = rank->shard.num_heads,
                                    .num_kv_heads = rank->shard.num_kv_heads,
                                    .isa = device->isa,
                                    .activation_dtype = device->dtype,
                                    .batch_invariant = device->batch_invariant,
                                    .group = run->groups[index / rank->shard.num_ranks],
                                    .rank = rank->shard.rank,
                                    .pipeline = run->pipeline,
                                    .stage = index / rank->shard.num_ranks};
    config.limits.vocab_size = model->vocab_size;
    rank->backend = backend_open(device->backend, &config, err);
    return rank->backend != NULL ? 0 : -1;
}

static void watch(struct golden_run *run) {
    run->backend = run->ranks[run->sampler].backend;
    run->original_ops = run->backend->ops;
    run->ops = *run->backend->ops;
    run->ops.sample = watch_sample;
    if (run->ops.sample_vocab_parallel != NULL)
        run->ops.sample_vocab_parallel = watch_vocab_parallel;
    for (int32_t r = 0; r < run->num_ranks; r++)
        run->ranks[r].backend->ops = &run->ops;
}

/* --- What every rank does, each in a thread of its own --- */

struct rank_call {
    struct golden_run *run;
    struct golden_rank *rank;
    struct weights_reader *reader; /* to load */
    const struct batch *batch;     /* to step */
    struct step_result *result;
    int status;
    struct error error;
};

/* One of three slots, in pieces. */
static int load_adapter(const struct golden_run *run, struct golden_rank *rank, struct error *err) {
    struct lora_rows rows = {0};
    if (run->adapter == NULL)
        return 0;
    if (lora_slots_create(rank->backend, &run->model->config, &rank->shard, &run->lora_shape,
                          &rank->lora, err) != 0)
        return -1;
    while (lora_rows_next(&run->model->config, &run->lora_shape, ADAPTER_PIECE, &rows)) {
        void *data = malloc(lora_rows_bytes(&run->model->config, &run->lora_shape, &rows));
        CHECK(data != NULL);
        lora_adapter_copy(run->adapter, &rows, data);
        int status = lora_slots_write(rank->lora, ADAPTER_SLOT, &rows, data, err);
        free(data);
        if (status != 0)
            return -1;
    }
    return rank->backend->ops->synchronize(rank->backend, err);
}

/* Of one rank. The layer reads what the model left in its states, and continues from its own. */
static int share_states(struct golden_run *run, struct golden_rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    size_t row = (size_t)run->model->config.hidden_size * dtype_block_bytes(b->activation_dtype);
    if (run->drafts_for == NULL)
        return 0;
    struct golden_rank *target = &run->drafts_for->ranks[0];
    rank->states = target->states = &target->owned_states;
    llama_set_states(rank->llama, rank->states);
    llama_set_states(target->llama, target->states);
    return b->ops->buffer_alloc(b, GOLDEN_NUM_BLOCKS * GOLDEN_BLOCK_SIZE * row, rank->states, err);
}

static void *load_rank(void *argument) {
    struct rank_call *call = argument;
    struct golden_rank *rank = call->rank;
    const struct model *model = call->run->model;
    const struct weights_options options = {
        .max_model_len = GOLDEN_MAX_TOKENS,
        .quantization = DTYPE_NONE,
        .cuts_key_bias = kv_type_has_scales(call->run->kv_type),
        .shared = call->run->drafts_for != NULL ? call->run->drafts_for->ranks[0].weights : NULL};
    call->status = -1;
    if (weights_load(rank->backend, model, &rank->shard, call->reader, &options, &rank->weights,
                     &call->error) == 0 &&
        load_adapter(call->run, rank, &call->error) == 0 &&
        llama_create(rank->backend, &model->config, &rank->shard, rank->weights, rank->lora,
                     &call->run->limits, &rank->llama, &call->error) == 0 &&
        share_states(call->run, rank, &call->error) == 0)
        call->status = init_cache(call->run, rank, &call->error);
    return NULL;
}

static void *step_rank(void *argument) {
    struct rank_call *call = argument;
    struct golden_rank *rank = call->rank;
    int32_t last = call->batch->inputs.num_tokens - 1;
    llama_forward(rank->llama, &rank->cache, call->batch);
    if (call->run->keeps_states)
        llama_keep_states(rank->llama, &last, &call->run->next_slot, 1);
    llama_sample(rank->llama, call->batch, call->result);
    call->status = rank->backend->ops->synchronize(rank->backend, &call->error);
    return NULL;
}

/* Rank 0 is the caller's. Returns the first failure. */
static int for_ranks(struct golden_run *run, void *(*body)(void *), const struct rank_call *common,
                     struct error *err) {
    struct rank_call calls[GOLDEN_MAX_RANKS];
    pthread_t threads[GOLDEN_MAX_RANKS];
    CHECK(run->num_ranks >= 1);
    for (int32_t i = run->num_ranks - 1; i >= 0; i--) {
        calls[i] = *common;
        calls[i].run = run;
        calls[i].rank = &run->ranks[i];
        calls[i].result = i == run->sampler ? common->result : NULL;
        if (i > 0)
            CHECK(pthread_create(&threads[i], NULL, body, &calls[i]) == 0);
    }
    body(&calls[0]);
    for (int32_t i = 1; i < run->num_ranks; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int32_t i = 0; i < run->num_ranks; i++)
        if (calls[i].status != 0)
            return error_set(err, calls[i].error.code, "%s", calls[i].error.message);
    return 0;
}

static int load(struct golden_run *run, struct error *err) {
    struct rank_call call = {0};
    if (weights_reader_create(run->model, run->num_ranks, &call.reader, err) != 0)
        return -1;
    int status = for_ranks(run, load_rank, &call, err);
    weights_reader_destroy(call.reader);
    return status;
}

static int connect_ranks(struct golden_run *run, const struct golden_device *device,
                         int32_t per_stage, int32_t num_stages, struct error *err) {
    for (int32_t stage = 0; stage < num_stages && per_stage > 1; stage++)
        if (backend_group_create(device->backend, per_stage, &run->groups[stage], err) != 0)
            return -1;
    return num_stages == 1 ? 0
                           : backend_pipeline_create(device->backend, num_stages, per_stage,
                                                     &run->pipeline, err);
}

static int init_parts(struct golden_run *run, const char *model_path,
                      const struct golden_device *device, struct error *err) {
    int32_t per_stage = device->num_ranks > 0 ? device->num_ranks : 1;
    int32_t num_stages = device->num_stages > 0 ? device->num_stages : 1;
    run->num_ranks = per_stage * num_stages;
    run->sampler = run->num_ranks - per_stage;
    run->kv_type = device->kv_type;
    CHECK(run->num_ranks <= GOLDEN_MAX_RANKS);
    run->drafts_for = device->drafts_for;
    if (model_open(model_path, &run->model, err) != 0 ||
        (run->drafts_for != NULL && mtp_select(run->model, err) != 0))
        return -1;
    run->limits = common_limits;
    kv_groups_choose(&run->model->config, &run->limits);
    if (connect_ranks(run, device, per_stage, num_stages, err) != 0)
        return -1;
    for (int32_t i = 0; i < run->num_ranks; i++)
        if (model_shard_init_stage(run->model, DTYPE_NONE, i, per_stage, num_stages,
                                   &run->ranks[i].shard, err) != 0 ||
            open_backend(run, i, device, err) != 0)
            return -1;
    watch(run);
    if (device->adapter != NULL) {
        run->lora_shape = (struct lora_shape){
            .num_slots = 3, .max_rank = LORA_MAX_RANK, .dtype = run->backend->activation_dtype};
        if (lora_adapter_open(device->adapter, run->model, &run->lora_shape, &run->adapter, err) !=
            0)
            return -1;
    }
    return load(run, err);
}

int golden_run_init(struct golden_run *run, const char *model_path,
                    const struct golden_device *device, struct error *err) {
    *run = (struct golden_run){0};
    if (init_parts(run, model_path, device, err) == 0)
        return 0;
    golden_run_finish(run);
    return -1;
}

void golden_run_finish(struct golden_run *run) {
    for (int32_t r = 0; run->original_ops != NULL && r < run->num_ranks; r++)
        run->ranks[r].backend->ops = run->original_ops;
    for (int32_t i = 0; i < run->num_ranks; i++) {
        struct golden_rank *rank = &run->ranks[i];
        if (rank->backend == NULL)
            continue;
        rank->backend->ops->buffer_free(rank->backend, &rank->cache.buffer);
        rank->backend->ops->buffer_free(rank->backend, &rank->owned_states);
        llama_destroy(rank->llama);
        lora_slots_destroy(rank->lora);
        weights_free(rank->backend, rank->weights);
        backend_close(rank->backend);
    }
    for (int32_t stage = 0; stage < GOLDEN_MAX_RANKS; stage++)
        backend_group_destroy(run->groups[stage]);
    backend_pipeline_destroy(run->pipeline);
    lora_adapter_close(run->adapter);
    model_close(run->model);
    *run = (struct golden_run){0};
}

static int32_t block_of_group(int32_t group, int32_t block) {
    return group * GOLDEN_NUM_BLOCKS + block;
}

static void spoil_block(struct golden_run *run, int32_t block) {
    for (int32_t i = 0; i < run->num_ranks; i++) {
        struct golden_rank *rank = &run->ranks[i];
        size_t bytes = kv_block_bytes(&rank->cache.layout);
        unsigned char *filled = malloc(bytes);
        CHECK(filled != NULL);
        memset(filled, 0xff, bytes);
        rank->backend->ops->upload(
            rank->backend, (char *)rank->cache.buffer.data + (size_t)block * bytes, filled, bytes);
        free(filled);
    }
}

void golden_run_drop_blocks(struct golden_run *run, struct golden_sequence *sequence) {
    int32_t first_seen = sequence->num_cached + 1 - run->limits.window;
    for (; (sequence->num_dropped + 1) * GOLDEN_BLOCK_SIZE <= first_seen; sequence->num_dropped++)
        for (int32_t g = run->limits.num_full_groups; g < run->limits.num_groups; g++)
            spoil_block(run, block_of_group(g, sequence->block_table[sequence->num_dropped]));
}

/* Arrays of a step of at most two sequences. */
struct step {
    int32_t num_tokens;
    int32_t num_seqs;
    int32_t token_ids[GOLDEN_MAX_TOKENS];
    int32_t positions[GOLDEN_MAX_TOKENS];
    int32_t slots[KV_GROUPS_MOST * GOLDEN_MAX_TOKENS];
    int32_t logit_rows[GOLDEN_MAX_TOKENS];
    struct sample_row sample_rows[GOLDEN_MAX_TOKENS];
    int32_t query_start[3];
    int32_t context_lens[2];
    int32_t block_tables[KV_GROUPS_MOST * 2 * GOLDEN_NUM_BLOCKS];
    const struct golden_sequence *sequences[2];
};

static void append(struct step *step, struct golden_sequence *sequence, const int32_t *tokens,
                   int32_t count) {
    CHECK(step->num_tokens + count <= GOLDEN_MAX_TOKENS && step->num_seqs < 2);
    for (int32_t i = 0; i < count; i++) {
        int32_t at = step->num_tokens++, position = sequence->num_cached++;
        step->token_ids[at] = tokens[i];
        step->positions[at] = position;
        step->logit_rows[at] = at;
        step->sample_rows[at] = (struct sample_row){.target = SAMPLE_NO_TARGET,
                                                    .num_logprobs = -1,
                                                    .settings.top_p = 1.0F,
                                                    .settings.repetition_penalty = 1.0F,
                                                    .mask = SAMPLE_NO_MASK};
    }
    step->sequences[step->num_seqs] = sequence;
    step->context_lens[step->num_seqs++] = sequence->num_cached;
    step->query_start[step->num_seqs] = step->num_tokens;
}

/* Slots and table of a sequence of the step in a group. */
static void place_sequence(const struct golden_run *run, struct step *step, int32_t group,
                           int32_t s) {
    const struct golden_sequence *sequence = step->sequences[s];
    int32_t *table = step->block_tables + (group * step->num_seqs + s) * GOLDEN_NUM_BLOCKS;
    bool has_window = group >= run->limits.num_full_groups;
    for (int32_t i = 0; i < GOLDEN_NUM_BLOCKS; i++) {
        bool is_dropped = has_window && i < sequence->num_dropped;
        table[i] = block_of_group(group, sequence->block_table[is_dropped ? 0 : i]);
    }
    for (int32_t t = step->query_start[s]; t < step->query_start[s + 1]; t++) {
        int32_t position = step->positions[t];
        step->slots[group * step->num_tokens + t] =
            table[position / GOLDEN_BLOCK_SIZE] * GOLDEN_BLOCK_SIZE + position % GOLDEN_BLOCK_SIZE;
    }
}

static struct batch batch_of(const struct golden_run *run, struct step *step) {
    static const int32_t adapter_slots[2] = {ADAPTER_SLOT, -1};
    for (int32_t group = 0; group < run->limits.num_groups; group++)
        for (int32_t s = 0; s < step->num_seqs; s++)
            place_sequence(run, step, group, s);
    return (struct batch){
        .inputs = {.num_tokens = step->num_tokens,
                   .num_seqs = step->num_seqs,
                   .num_groups = run->limits.num_groups,
                   .max_blocks_per_seq = GOLDEN_NUM_BLOCKS,
                   .token_ids = step->token_ids,
                   .positions = step->positions,
                   .slot_mapping = step->slots,
                   .query_start = step->query_start,
                   .context_lens = step->context_lens,
                   .block_tables = step->block_tables,
                   .adapter_slots = run->adapter != NULL ? adapter_slots : NULL},
        .num_sample_rows = step->num_tokens,
        .logit_rows = step->logit_rows,
        .sample_rows = step->sample_rows,
    };
}

static void forward(struct golden_run *run, struct step *step, float *out_logits,
                    int32_t num_wanted, struct sample_output *out) {
    const struct batch batch = batch_of(run, step);
    struct step_result result = {.rows = out};
    const struct rank_call call = {.batch = &batch, .result = &result};
    watched.original = run->original_ops;
    watched.out = out_logits;
    watched.rows_left = num_wanted;
    CHECK(for_ranks(run, step_rank, &call, NULL) == 0);
    CHECK(result.num_sample_rows == step->num_tokens);
}

int32_t golden_run_step(struct golden_run *run, struct golden_sequence *sequence,
                        const int32_t *tokens, int32_t count, float *out_logits) {
    struct sample_output out[GOLDEN_MAX_TOKENS];
    struct step step = {0};
    append(&step, sequence, tokens, count);
    run->next_slot =
        sequence->block_table[sequence->num_cached / GOLDEN_BLOCK_SIZE] * GOLDEN_BLOCK_SIZE +
        sequence->num_cached % GOLDEN_BLOCK_SIZE;
    forward(run, &step, out_logits, count, out);
    return out[count - 1].token;
}

void golden_run_step_pair(struct golden_run *run, struct golden_sequence *const sequences[2],
                          const int32_t *const tokens[2], const int32_t counts[2],
                          float *out_logits) {
    struct sample_output out[GOLDEN_MAX_TOKENS];
    struct step step = {0};
    append(&step, sequences[0], tokens[0], counts[0]);
    append(&step, sequences[1], tokens[1], counts[1]);
    forward(run, &step, out_logits, counts[0], out);
}

void golden_run_pool(struct golden_run *run, struct golden_sequence *sequence,
                     const int32_t *tokens, int32_t count, struct golden_sequence *company,
                     int32_t num_company, float *sum, float *last) {
    const size_t width = (size_t)run->model->config.hidden_size;
    const struct row_span spans[2] = {{0, count}, {count - 1, 1}};
    float before[2 * GOLDEN_MAX_HIDDEN] = {0}, after[2 * GOLDEN_MAX_HIDDEN];
    struct step step = {0};
    CHECK(width <= GOLDEN_MAX_HIDDEN);
    memcpy(before, sum, width * sizeof(float));
    append(&step, sequence, tokens, count);
    if (company != NULL)
        append(&step, company, tokens, num_company);
    struct batch batch = batch_of(run, &step);
    batch.num_sample_rows = 0;
    batch.num_hidden_sums = 2;
    batch.hidden_spans = spans;
    batch.hidden_sums = before;
    struct step_result result = {.hidden_sums = after};
    const struct rank_call call = {.batch = &batch, .result = &result};
    CHECK(for_ranks(run, step_rank, &call, NULL) == 0);
    memcpy(sum, after, width * sizeof(float));
    memcpy(last, after + width, width * sizeof(float));
}
