/* The order of loading, and what each step may say when memory is short:
 *
 *   backend      with the workspace of its operations
 *   weights      \ checked against what is free before anything is read
 *   llama        /
 *   dry run      a card only: drivers and libraries take what they need on first use
 *   KV cache     the rest, see kv_budget.h
 *   host pool    of the system's memory, see swap_budget.h
 *
 * The system's memory is given lazily and shared, so only a card's is accounted for, and the host
 * pool, which may be pinned. */
#include "engine/executor/rank.h"

#include "config/base/check.h"
#include "engine/executor/rank_moves.h"
#include "engine/executor/dry_run.h"
#include "engine/kv/block_table.h"
#include "engine/executor/kv_budget.h"
#include "engine/executor/step_limits.h"
#include "engine/executor/swap_budget.h"
#include "models/weights/weights.h"

#include <stdio.h>
#include <string.h>

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

static size_t free_bytes(const struct rank *rank) {
    size_t free, total;
    rank->backend->ops->memory_info(rank->backend, &free, &total);
    return free;
}

/* Refuses a part that a card has no room for, before any of it is there. */
static int check_room(const struct rank *rank, const char *part, size_t needed, const char *remedy,
                      struct error *err) {
    if (!rank->backend->has_dedicated_memory)
        return 0;
    size_t free = free_bytes(rank);
    if (needed <= free)
        return 0;
    return error_set(err, ERROR_MEMORY,
                     "out of device memory for the %s: %.1f MiB needed, %.1f MiB free, %.1f MiB "
                     "missing; %s",
                     part, mib(needed), mib(free), mib(needed - free), remedy);
}

/* The backend's own reason for a shortage knows no options. */
static int explain(struct error *why, const char *part, const char *remedy, struct error *err) {
    if (why->code != ERROR_MEMORY)
        return error_set(err, why->code, "%s", why->message);
    return error_set(err, ERROR_MEMORY, "out of memory for the %s: %s; %s", part, why->message,
                     remedy);
}

static int choose_limits(struct rank *rank, const char *device, struct error *err) {
    const struct worker_config *config = &rank->config;
    struct step_limits step;
    if (step_limits_choose(device, config->max_num_seqs, config->max_num_batched_tokens, &step,
                           err) != 0)
        return -1;
    rank->limits = (struct serving_limits){
        .max_num_seqs = step.max_num_seqs,
        .max_num_batched_tokens = step.max_num_batched_tokens,
        .max_logit_rows = step.max_logit_rows,
        .max_model_len = config->max_model_len,
        .block_size = config->block_size,
        .vocab_size = rank->model->config.vocab_size,
        .hidden_size = rank->model->config.hidden_size,
    };
    return 0;
}

static int open_device(struct rank *rank, const char *device, struct error *err) {
    const struct model_config *model = &rank->model->config;
    const struct worker_config *config = &rank->config;
    struct error why = {0};
    CHECK(choose_limits(rank, device, NULL) == 0);
    const struct backend_config backend_config = {
        .num_threads = config->num_threads,
        .max_step_tokens = rank->limits.max_num_batched_tokens,
        .max_step_seqs = rank->limits.max_num_seqs,
        .max_blocks_per_seq = block_table_blocks_for(config->max_model_len, config->block_size),
        .max_logit_rows = rank->limits.max_logit_rows,
        .vocab_size = model->vocab_size,
        .head_dim = model->head_dim,
        .num_q_heads = model->num_heads,
        .num_kv_heads = model->num_kv_heads,
        .activation_dtype = config->dtype,
        .batch_invariant = config->batch_invariant,
    };
    rank->backend = backend_open(device, &backend_config, &why);
    if (rank->backend == NULL)
        return explain(&why, "workspace of the device's operations",
                       "lower --max-num-batched-tokens or --max-num-seqs", err);
    return 0;
}

/* A card that is there but too full is an error: the CPU would be slower by orders of magnitude,
 * which nobody wants by accident. */
static int open_auto(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (open_device(rank, "cuda", &why) == 0)
        return 0;
    if (why.code == ERROR_MEMORY)
        return error_set(err, why.code, "%s", why.message);
    snprintf(rank->info.why_cpu, sizeof(rank->info.why_cpu), "%s", why.message);
    return open_device(rank, "cpu", err);
}

/* A device that was asked for and cannot be used is a matter of configuration. */
static int open_named(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (open_device(rank, rank->config.device, &why) == 0)
        return 0;
    if (why.code == ERROR_MEMORY)
        return error_set(err, why.code, "%s", why.message);
    return error_set(err, ERROR_CONFIG, "device %s: %s", rank->config.device, why.message);
}

static int choose_kv_dtype(struct rank *rank, struct error *err) {
    enum dtype only = rank->backend->kv_dtype, *dtype = &rank->config.kv_dtype;
    if (*dtype == DTYPE_COUNT)
        *dtype = only != DTYPE_COUNT ? only : model_default_kv_dtype(rank->model);
    if (only == DTYPE_COUNT || *dtype == only)
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "kv-cache-dtype: %s; on %s keys and values are %s like everything of --dtype: "
                     "must be auto or %s",
                     dtype_name(*dtype), rank->backend->name, dtype_name(only), dtype_name(only));
}

static int open_backend(struct rank *rank, struct error *err) {
    if (rank->config.dtype == DTYPE_COUNT)
        rank->config.dtype = model_default_activation_dtype(rank->model);
    /* Options that contradict each other do so on every device. */
    const char *device = rank->config.device;
    if (choose_limits(rank, device, err) != 0)
        return -1;
    int status = strcmp(device, "auto") == 0 ? open_auto(rank, err) : open_named(rank, err);
    if (status != 0 || choose_kv_dtype(rank, err) != 0)
        return -1;
    rank->config.max_num_seqs = rank->limits.max_num_seqs;
    rank->config.max_num_batched_tokens = rank->limits.max_num_batched_tokens;
    return 0;
}

static struct weights_options weights_options_of(const struct rank *rank) {
    return (struct weights_options){.max_model_len = rank->config.max_model_len,
                                    .quantization = rank->config.quantization};
}

static int check_quantization(const struct rank *rank, struct error *err) {
    const struct backend *b = rank->backend;
    if (rank->config.quantization == DTYPE_COUNT || !b->has_dedicated_memory)
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "quantization: int8 is for the CPU; on %s every weight is held in %s: must be "
                     "none",
                     b->name, dtype_name(b->activation_dtype));
}

/* Notes what the weights will take, and that there is room for them. */
static int plan_weights(struct rank *rank, struct error *err) {
    const struct backend *b = rank->backend;
    const struct weights_options options = weights_options_of(rank);
    if (check_quantization(rank, err) != 0)
        return -1;
    rank->info.weight_bytes = weights_needed(
        rank->model, &options, b->has_dedicated_memory ? b->activation_dtype : DTYPE_COUNT);
    return check_room(rank, "weights", rank->info.weight_bytes,
                      "serve a smaller model, stop what else uses the card, or lower "
                      "--max-num-batched-tokens or --max-num-seqs",
                      err);
}

static int load_weights(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    const struct weights_options options = weights_options_of(rank);
    if (plan_weights(rank, err) != 0)
        return -1;
    size_t before = free_bytes(rank);
    if (weights_load(b, rank->model, &options, &rank->weights, err) != 0)
        return -1;
    size_t after = free_bytes(rank);
    memcpy(rank->info.model_digest, rank->weights->digest, sizeof(rank->info.model_digest));
    rank->info.weight_bytes = rank->weights->bytes;
    if (b->has_dedicated_memory && before > after)
        rank->info.weight_bytes = before - after;
    return 0;
}

/* As plan_weights; *out_bytes: what is still to be taken. */
static int plan_workspace(struct rank *rank, size_t *out_bytes, struct error *err) {
    size_t bytes = llama_workspace_needed(&rank->model->config, rank->backend->activation_dtype,
                                          &rank->limits);
    if (check_room(rank, "workspace", bytes, "lower --max-num-batched-tokens or --max-num-seqs",
                   err) != 0)
        return -1;
    rank->info.workspace_bytes = bytes + rank->backend->workspace_bytes;
    *out_bytes = bytes;
    return 0;
}

static int create_llama(struct rank *rank, struct error *err) {
    size_t bytes;
    if (plan_workspace(rank, &bytes, err) != 0 ||
        llama_create(rank->backend, &rank->model->config, rank->weights, &rank->limits,
                     &rank->llama, err) != 0)
        return -1;
    rank->info.workspace_bytes =
        llama_workspace_bytes(rank->llama) + rank->backend->workspace_bytes;
    return 0;
}

static int alloc_blocks(struct rank *rank, int32_t num_blocks, struct error *err) {
    struct backend *b = rank->backend;
    rank->cache.num_blocks = num_blocks;
    return b->ops->buffer_alloc(b, (size_t)num_blocks * kv_block_bytes(&rank->cache.layout),
                                &rank->cache.buffer, err);
}

static int run_dry(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (alloc_blocks(rank, 2, &why) != 0 ||
        dry_run(rank->backend, rank->llama, &rank->cache, &rank->limits, &why) != 0)
        return explain(&why, "largest step", "lower --max-num-batched-tokens or --max-num-seqs",
                       err);
    rank->backend->ops->buffer_free(rank->backend, &rank->cache.buffer);
    return 0;
}

/* planned_bytes: what is known to be needed and not yet taken. */
static int choose_blocks(struct rank *rank, size_t planned_bytes, int32_t *out_num_blocks,
                         struct error *err) {
    const struct worker_config *config = &rank->config;
    struct backend *b = rank->backend;
    struct kv_budget budget = {
        .block_bytes = kv_block_bytes(&rank->cache.layout),
        .block_size = config->block_size,
        .max_model_len = config->max_model_len,
        .max_num_seqs = config->max_num_seqs,
        .memory_bytes = config->kv_memory_bytes,
        .utilization = config->gpu_memory_utilization,
    };
    size_t free, total;
    b->ops->memory_info(b, &free, &total);
    budget.free_bytes = free > planned_bytes ? free - planned_bytes : 0;
    budget.total_bytes = b->has_dedicated_memory ? total : 0;
    size_t used = total - budget.free_bytes;
    size_t known = rank->info.weight_bytes + rank->info.workspace_bytes;
    rank->info.overhead_bytes = used > known ? used - known : 0;
    return kv_budget_blocks(&budget, out_num_blocks, err);
}

static int create_cache(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    int32_t num_blocks;
    if (choose_blocks(rank, 0, &num_blocks, err) != 0)
        return -1;
    struct error why = {0};
    if (alloc_blocks(rank, num_blocks, &why) != 0 || b->ops->synchronize(b, &why) != 0)
        return explain(&why, "KV cache",
                       "lower --gpu-memory-utilization or --kv-cache-memory-bytes", err);
    rank->info.num_blocks = num_blocks;
    rank->info.kv_bytes = rank->cache.buffer.bytes;
    rank->info.free_bytes = free_bytes(rank);
    return 0;
}

/* Notes what the host pool will take, with the KV cache planned and not yet touched. */
static int plan_host_pool(struct rank *rank, struct error *err) {
    struct worker_info *info = &rank->info;
    bool is_card = rank->backend->has_dedicated_memory;
    size_t free = backend_host_free_bytes(), taken = is_card ? 0 : info->kv_bytes;
    const struct swap_budget budget = {
        .block_bytes = kv_block_bytes(&rank->cache.layout),
        .memory_bytes = rank->config.swap_bytes,
        .free_bytes = free > taken ? free - taken : 0,
        .kv_bytes = info->kv_bytes,
        .is_card = is_card,
    };
    if (swap_budget_blocks(&budget, &info->num_host_blocks, err) != 0)
        return -1;
    info->swap_bytes = (size_t)info->num_host_blocks * budget.block_bytes;
    return 0;
}

static int create_host_pool(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    struct worker_info *info = &rank->info;
    struct error why = {0};
    if (plan_host_pool(rank, err) != 0)
        return -1;
    if (info->num_host_blocks == 0)
        return 0;
    if (b->ops->host_alloc(b, info->swap_bytes, &rank->host_pool, &why) != 0)
        return explain(&why, "host pool of KV blocks", "lower --swap-space", err);
    return rank_moves_measure(b, &rank->cache, rank->host_pool.data, info->num_host_blocks,
                              &info->swap_block_ns, err);
}

static void describe(struct rank *rank) {
    struct worker_info *info = &rank->info;
    const struct backend *b = rank->backend;
    snprintf(info->device, sizeof(info->device), "%s", b->name);
    snprintf(info->description, sizeof(info->description), "%s", b->description);
    snprintf(info->numerics, sizeof(info->numerics), "%s", b->numerics);
    info->is_card = b->has_dedicated_memory;
    info->batch_invariant = !info->is_card || rank->config.batch_invariant;
    info->activation_dtype = b->activation_dtype;
    info->kv_dtype = rank->config.kv_dtype;
    info->max_num_seqs = rank->config.max_num_seqs;
    info->max_num_batched_tokens = rank->config.max_num_batched_tokens;
}

static void set_layout(struct rank *rank) {
    const struct model_config *model = &rank->model->config;
    rank->cache.layout = (struct kv_layout){
        .num_layers = model->num_layers,
        .num_kv_heads = model->num_kv_heads,
        .head_dim = model->head_dim,
        .block_size = rank->config.block_size,
        .dtype = rank->config.kv_dtype,
    };
}

static int load(struct rank *rank, struct error *err) {
    if (open_backend(rank, err) != 0 || load_weights(rank, err) != 0 ||
        create_llama(rank, err) != 0)
        return -1;
    set_layout(rank);
    if (rank->backend->has_dedicated_memory && run_dry(rank, err) != 0)
        return -1;
    return create_cache(rank, err) == 0 ? create_host_pool(rank, err) : -1;
}

int rank_load(const struct model *model, const struct worker_config *config, struct rank *out,
              struct error *err) {
    *out = (struct rank){.model = model, .config = *config};
    if (load(out, err) != 0) {
        rank_unload(out);
        return -1;
    }
    describe(out);
    return 0;
}

static int plan(struct rank *rank, struct error *err) {
    struct worker_info *info = &rank->info;
    size_t workspace_bytes;
    if (open_backend(rank, err) != 0 || plan_weights(rank, err) != 0 ||
        plan_workspace(rank, &workspace_bytes, err) != 0)
        return -1;
    set_layout(rank);
    size_t planned = info->weight_bytes + workspace_bytes;
    if (choose_blocks(rank, planned, &info->num_blocks, err) != 0)
        return -1;
    info->kv_bytes = (size_t)info->num_blocks * kv_block_bytes(&rank->cache.layout);
    size_t free = free_bytes(rank), taken = planned + info->kv_bytes;
    info->free_bytes = free > taken ? free - taken : 0;
    return plan_host_pool(rank, err);
}

int rank_plan(const struct model *model, const struct worker_config *config,
              struct worker_info *out, struct error *err) {
    struct rank rank = {.model = model, .config = *config};
    int status = plan(&rank, err);
    if (status == 0) {
        describe(&rank);
        *out = rank.info;
    }
    rank_unload(&rank);
    return status;
}

void rank_unload(struct rank *rank) {
    llama_destroy(rank->llama);
    if (rank->backend != NULL) {
        rank->backend->ops->host_free(rank->backend, &rank->host_pool);
        rank->backend->ops->buffer_free(rank->backend, &rank->cache.buffer);
        weights_free(rank->backend, rank->weights);
        backend_close(rank->backend);
    }
    *rank = (struct rank){0};
}

int rank_step(struct rank *rank, const struct batch *batch, struct step_result *result,
              struct error *err) {
    rank_moves_enqueue(rank->backend, &rank->cache, rank->host_pool.data, batch);
    if (batch->inputs.num_tokens > 0)
        return llama_forward(rank->llama, &rank->cache, batch, result, err);
    CHECK(batch->num_rows == 0 && batch->num_hidden_sums == 0);
    result->num_rows = 0;
    return rank->backend->ops->synchronize(rank->backend, err);
}
