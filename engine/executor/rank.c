/* The order of loading, and what each step may say when memory is short:
 *
 *   backend      with the workspace of its operations
 *   weights      \ checked against what is free before anything is read
 *   llama        /
 *   dry run      a GPU only: drivers and libraries take what they need on first use
 *   KV cache     the rest, see sizing.h
 *   host pool    for swapped blocks, of the system's memory */
#include "engine/executor/rank.h"

#include "config/base/check.h"
#include "engine/executor/dry_run.h"
#include "engine/executor/rank_memory.h"
#include "engine/executor/rank_moves.h"
#include "engine/executor/sizing.h"
#include "kernels/kv_type.h"

#include <stdio.h>
#include <string.h>

/* The backend's own reason for a shortage knows no options. */
static int explain(struct error *why, const char *part, const char *remedy, struct error *err) {
    if (why->code != ERROR_MEMORY)
        return error_set(err, why->code, "%s", why->message);
    return error_set(err, ERROR_MEMORY, "out of memory for the %s: %s; %s", part, why->message,
                     remedy);
}

static int open_device(struct rank *rank, const char *device, struct error *err) {
    const struct model_config *model = &rank->model->config;
    struct serving_limits *limits = &rank->info->limits;
    struct error why = {0};
    CHECK(sizing_choose_step(device, &rank->config.limits, limits, NULL) == 0);
    const struct backend_config backend_config = {
        .num_threads = rank->config.num_threads,
        .limits = *limits,
        .head_dim = model->head_dim,
        .num_q_heads = rank->shard.num_heads,
        .num_kv_heads = rank->shard.num_kv_heads,
        .activation_dtype = rank->config.dtype,
        .batch_invariant = rank->config.batch_invariant,
    };
    rank->backend = backend_open(device, &backend_config, &why);
    if (rank->backend == NULL)
        return explain(&why, "workspace of the device's operations",
                       "lower --max-num-batched-tokens or --max-num-seqs", err);
    return 0;
}

/* A GPU that is there but too full is an error: the CPU would be slower by orders of magnitude,
 * which nobody wants by accident. */
static int open_auto(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (open_device(rank, "cuda", &why) == 0)
        return 0;
    if (why.code == ERROR_MEMORY)
        return error_set(err, why.code, "%s", why.message);
    snprintf(rank->info->why_cpu, sizeof(rank->info->why_cpu), "%s", why.message);
    return open_device(rank, "cpu", err);
}

/* A device that was requested and cannot be used is a matter of configuration. */
static int open_named(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (open_device(rank, rank->config.device, &why) == 0)
        return 0;
    if (why.code == ERROR_MEMORY)
        return error_set(err, why.code, "%s", why.message);
    return error_set(err, ERROR_CONFIG, "device %s: %s", rank->config.device, why.message);
}

static int choose_kv_type(struct rank *rank, struct error *err) {
    enum kv_type *type = &rank->config.kv_type;
    if (*type == KV_AUTO)
        *type = backend_kv_type(rank->backend, model_default_kv_type(rank->model));
    enum kv_type taken = backend_kv_type(rank->backend, *type);
    if (*type == taken)
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "kv-cache-dtype: %s; on %s keys and values are %s like everything of --dtype: "
                     "must be auto or %s",
                     kv_type_name(*type), rank->backend->name, kv_type_name(taken),
                     kv_type_name(taken));
}

static void describe(struct rank *rank) {
    struct executor_info *info = rank->info;
    const struct backend *b = rank->backend;
    snprintf(info->device, sizeof(info->device), "%s", b->name);
    snprintf(info->description, sizeof(info->description), "%s", b->description);
    snprintf(info->numerics, sizeof(info->numerics), "%s", b->numerics);
    info->has_dedicated_memory = b->has_dedicated_memory;
    info->batch_invariant = !b->has_dedicated_memory || rank->config.batch_invariant;
    info->activation_dtype = b->activation_dtype;
    info->kv_type = rank->config.kv_type;
}

static void set_layout(struct rank *rank) {
    const struct model_config *model = &rank->model->config;
    rank->cache.layout = (struct kv_layout){
        .num_layers = model->num_layers,
        .num_kv_heads = rank->shard.num_kv_heads,
        .head_dim = model->head_dim,
        .block_size = rank->info->limits.block_size,
        .type = rank->config.kv_type,
    };
}

static int open_backend(struct rank *rank, const struct model *model,
                        const struct executor_config *config, struct executor_info *info,
                        struct error *err) {
    *info = (struct executor_info){0};
    *rank = (struct rank){.model = model, .config = *config, .info = info};
    rank->weights_options = (struct weights_options){.max_model_len = config->limits.max_model_len,
                                                     .quantization = config->quantization};
    if (config->dtype == DTYPE_AUTO)
        rank->config.dtype = model_default_activation_dtype(model);
    /* Options that contradict each other do so on every device. */
    if (sizing_choose_step(config->device, &config->limits, &info->limits, err) != 0 ||
        model_shard_init(model, config->quantization, 0, 1, &rank->shard, err) != 0)
        return -1;
    int status = strcmp(config->device, "auto") == 0 ? open_auto(rank, err) : open_named(rank, err);
    if (status != 0 || choose_kv_type(rank, err) != 0)
        return -1;
    describe(rank);
    set_layout(rank);
    return 0;
}

static int load_weights(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    struct executor_info *info = rank->info;
    if (rank_memory_plan_weights(rank, err) != 0)
        return -1;
    size_t before = rank_memory_free(rank);
    if (weights_load_alone(b, rank->model, &rank->shard, &rank->weights_options, &rank->weights,
                           err) != 0)
        return -1;
    size_t after = rank_memory_free(rank);
    memcpy(info->model_digest, rank->weights->digest, sizeof(info->model_digest));
    info->memory.weight_bytes = rank->weights->bytes;
    if (b->has_dedicated_memory && before > after)
        info->memory.weight_bytes = before - after;
    return 0;
}

static int create_llama(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    size_t bytes;
    if (rank_memory_plan_workspace(rank, &bytes, err) != 0 ||
        llama_create(b, &rank->model->config, &rank->shard, rank->weights, &rank->info->limits,
                     &rank->llama, err) != 0)
        return -1;
    rank->info->memory.workspace_bytes = llama_workspace_bytes(rank->llama) + b->workspace_bytes;
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
        dry_run(rank->backend, rank->llama, &rank->cache, &rank->info->limits, &why) != 0)
        return explain(&why, "largest step", "lower --max-num-batched-tokens or --max-num-seqs",
                       err);
    rank->backend->ops->buffer_free(rank->backend, &rank->cache.buffer);
    return 0;
}

static int create_cache(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    struct error why = {0};
    if (rank_memory_plan_blocks(rank, 0, err) != 0)
        return -1;
    if (alloc_blocks(rank, rank->info->limits.num_blocks, &why) != 0 ||
        b->ops->synchronize(b, &why) != 0)
        return explain(&why, "KV cache",
                       "lower --gpu-memory-utilization or --kv-cache-memory-bytes", err);
    rank->info->memory.free_bytes = rank_memory_free(rank);
    return 0;
}

static int create_host_pool(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    struct executor_info *info = rank->info;
    struct error why = {0};
    if (rank_memory_plan_host_blocks(rank, err) != 0)
        return -1;
    if (info->limits.num_host_blocks == 0)
        return 0;
    if (b->ops->host_alloc(b, info->memory.swap_bytes, &rank->host_pool, &why) != 0)
        return explain(&why, "host pool of KV blocks", "lower --swap-space", err);
    return rank_moves_measure(b, &rank->cache, rank->host_pool.data, info->limits.num_host_blocks,
                              &info->swap_block_ns, err);
}

int rank_load(const struct model *model, const struct executor_config *config,
              struct executor_info *info, struct rank *out, struct error *err) {
    if (open_backend(out, model, config, info, err) == 0 && load_weights(out, err) == 0 &&
        create_llama(out, err) == 0 &&
        (!out->backend->has_dedicated_memory || run_dry(out, err) == 0) &&
        create_cache(out, err) == 0 && create_host_pool(out, err) == 0)
        return 0;
    rank_unload(out);
    return -1;
}

static int plan(struct rank *rank, struct error *err) {
    struct executor_memory *memory = &rank->info->memory;
    size_t workspace_bytes;
    if (rank_memory_plan_weights(rank, err) != 0 ||
        rank_memory_plan_workspace(rank, &workspace_bytes, err) != 0)
        return -1;
    size_t planned = memory->weight_bytes + workspace_bytes;
    if (rank_memory_plan_blocks(rank, planned, err) != 0)
        return -1;
    size_t free = rank_memory_free(rank), taken = planned + memory->kv_bytes;
    memory->free_bytes = free > taken ? free - taken : 0;
    return rank_memory_plan_host_blocks(rank, err);
}

int rank_plan(const struct model *model, const struct executor_config *config,
              struct executor_info *info, struct error *err) {
    struct rank rank;
    int status = open_backend(&rank, model, config, info, err);
    if (status == 0)
        status = plan(&rank, err);
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

void rank_begin(struct rank *rank, const struct batch *batch) {
    rank_moves_enqueue(rank->backend, &rank->cache, rank->host_pool.data, batch);
    if (batch->inputs.num_tokens > 0)
        llama_forward(rank->llama, &rank->cache, batch);
}

void rank_sample(struct rank *rank, const struct batch *batch, struct step_result *result) {
    CHECK(batch->inputs.num_tokens > 0 ||
          (batch->num_sample_rows == 0 && batch->num_hidden_sums == 0));
    llama_sample(rank->llama, batch, result);
    rank->backend->ops->step_end(rank->backend);
}

int rank_wait(struct rank *rank, struct error *err) {
    return rank->backend->ops->step_wait(rank->backend, err);
}

bool rank_is_asynchronous(const struct rank *rank) {
    return rank->backend->is_asynchronous;
}
