/* The order of loading, and which part an error names when memory is short:
 *
 *   backend      with the workspace of its ops
 *   weights      \
 *   adapters      | checked against the free memory before anything is read
 *   llama        /
 *   dry run      only on a GPU: drivers and libraries allocate what they need on first use,
 *                algorithms are timed, and decode steps are recorded, and dropped again
 *
 * then, once it is known how many blocks every rank has room for (sizing.h)
 *
 *   KV cache
 *   recorded     decode steps, which read and write this cache
 *   host pool    for swapped blocks, in the system's memory */
#include "engine/executor/rank.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "engine/executor/sizing.h"
#include "kernels/kv_type.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* --- The size of each part --- */

/* Returns the bytes of the device's memory that are free now. */
static size_t free_bytes_of(const struct rank *rank) {
    size_t free, total;
    rank->backend->ops->memory_info(rank->backend, &free, &total);
    return free;
}

static int check_room(const struct rank *rank, const char *part, size_t needed, const char *remedy,
                      struct error *err) {
    if (!rank->backend->has_dedicated_memory)
        return 0;
    size_t free = free_bytes_of(rank);
    if (needed <= free)
        return 0;
    return error_set(err, ERROR_MEMORY,
                     "out of device memory for the %s: %.1f MiB needed, %.1f MiB free, %.1f MiB "
                     "missing; %s",
                     part, mib(needed), mib(free), mib(needed - free), remedy);
}

/* The size of each part is stored in rank->memory before anything of the part is allocated. A part
 * that a GPU has no room for is an ERROR_MEMORY that says how much is missing and what helps. The
 * system's memory is allocated lazily and shared, so only a GPU's is accounted for here. */
static int plan_weights(struct rank *rank, struct error *err) {
    const struct backend *b = rank->backend;
    if (rank->config.quantization != DTYPE_NONE && b->has_dedicated_memory)
        return error_set(err, ERROR_CONFIG,
                         "quantization: int8 is for the CPU; on %s every weight is held in %s: "
                         "must be none",
                         b->name, dtype_name(b->activation_dtype));
    size_t bytes = weights_needed(rank->model, &rank->shard, &rank->weights_options,
                                  b->has_dedicated_memory ? b->activation_dtype : DTYPE_NONE,
                                  b->head_rows_step);
    rank->memory.weight_bytes = bytes;
    return check_room(rank, "weights", bytes,
                      "serve a smaller model, stop other programs that use the GPU, or lower "
                      "--max-num-batched-tokens or --max-num-seqs",
                      err);
}

static int plan_adapters(struct rank *rank, struct error *err) {
    const struct backend *b = rank->backend;
    if (rank->config.lora.num_slots == 0)
        return 0;
    size_t bytes = lora_slots_needed(&rank->model->config, &rank->shard, &rank->config.lora,
                                     b->has_dedicated_memory ? b->activation_dtype : DTYPE_NONE);
    rank->memory.adapter_bytes = bytes;
    return check_room(rank, "adapters", bytes, "lower --max-loras or --max-lora-rank", err);
}

/* *out_bytes: what llama_create will allocate, in addition to what the backend took when it was
 * opened. */
static int plan_workspace(struct rank *rank, size_t *out_bytes, struct error *err) {
    const struct backend *b = rank->backend;
    const struct lora_shape *lora = rank->config.lora.num_slots > 0 ? &rank->config.lora : NULL;
    size_t bytes = llama_workspace_needed(&rank->model->config, &rank->shard, lora,
                                          b->activation_dtype, b->head_rows_step, &rank->limits);
    rank->memory.workspace_bytes = bytes + b->workspace_bytes;
    *out_bytes = bytes;
    return check_room(rank, "workspace", bytes, "lower --max-num-batched-tokens or --max-num-seqs",
                      err);
}

/* Stores what is left for the pools. planned_bytes: known to be needed and not allocated yet. */
static void measure_free(struct rank *rank, size_t planned_bytes) {
    struct executor_memory *memory = &rank->memory;
    size_t free, total;
    rank->backend->ops->memory_info(rank->backend, &free, &total);
    rank->free_bytes = free;
    rank->total_bytes = total;
    rank->planned_bytes = planned_bytes;
    size_t left = free > planned_bytes ? free - planned_bytes : 0;
    size_t used = total - left, known = memory->weight_bytes + memory->adapter_bytes +
                                        memory->workspace_bytes + memory->recorded_bytes;
    memory->overhead_bytes = used > known ? used - known : 0;
}

/* --- Opening, loading and closing --- */

/* Replaces the backend's own reason for a shortage, which does not know the options. */
static int explain(struct error *why, const char *part, const char *remedy, struct error *err) {
    if (why->code != ERROR_MEMORY)
        return error_set(err, why->code, "%s", why->message);
    return error_set(err, ERROR_MEMORY, "out of memory for the %s: %s; %s", part, why->message,
                     remedy);
}

/* On the CPU, bfloat16 is permission to round, which nobody gets without requesting it. */
static enum dtype activation_dtype(const struct rank *rank, const char *device) {
    if (rank->config.dtype != DTYPE_AUTO)
        return rank->config.dtype;
    return strncmp(device, "cuda", 4) == 0 ? model_default_activation_dtype(rank->model)
                                           : DTYPE_F32;
}

static int open_device(struct rank *rank, const char *device, struct error *err) {
    const struct model_config *model = &rank->model->config;
    struct serving_limits *limits = &rank->limits;
    struct error why = {0};
    rank_watch_begin(rank->watch);
    size_t device_bytes = backend_device_memory(device);
    rank_watch_end(rank->watch);
    CHECK(sizing_choose_step(device, device_bytes, &rank->config.limits, limits, NULL) == 0);
    const struct backend_config backend_config = {
        .num_threads = rank->config.num_threads,
        .isa = rank->config.cpu_isa,
        .limits = *limits,
        .head_dim = model->head_dim,
        .latent_dim = model->latent.kv_rank,
        .num_q_heads = rank->shard.num_heads,
        .num_kv_heads = rank->shard.num_kv_heads,
        .activation_dtype = activation_dtype(rank, device),
        .batch_invariant = rank->config.batch_invariant,
        .group = rank->group,
        .rank = rank->shard.rank,
        .pipeline = rank->pipeline,
        .stage = rank->stage,
    };
    rank_watch_begin(rank->watch);
    rank->backend = backend_open(device, &backend_config, &why);
    rank_watch_end(rank->watch);
    if (rank->backend == NULL)
        return explain(&why, "workspace of the device's operations",
                       "lower --max-num-batched-tokens or --max-num-seqs", err);
    return 0;
}

/* A GPU that exists but is too full is an error: the CPU would be slower by orders of magnitude,
 * and nobody wants that by accident. */
static int open_auto(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (open_device(rank, "cuda", &why) == 0)
        return 0;
    if (why.code == ERROR_MEMORY)
        return error_set(err, why.code, "%s", why.message);
    snprintf(rank->why_cpu, sizeof(rank->why_cpu), "%s", why.message);
    return open_device(rank, "cpu", err);
}

/* A device that was requested and cannot be used is an error of the configuration. */
static int open_named(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (open_device(rank, rank->config.device, &why) == 0)
        return 0;
    if (why.code == ERROR_MEMORY)
        return error_set(err, why.code, "%s", why.message);
    return error_set(err, ERROR_CONFIG, "device %s: %s", rank->config.device, why.message);
}

/* "auto, bf16, int8 or fp8" */
static void list_kv_types(uint32_t types, char *text, size_t size) {
    int used = snprintf(text, size, "auto");
    for (enum kv_type type = 0; type < NUM_KV_TYPES && (types >> type) != 0; type++)
        if ((types & KV_TYPE_BIT(type)) != 0)
            used += snprintf(text + used, size - (size_t)used, "%s%s",
                             types >> type == 1 ? " or " : ", ", kv_type_name(type));
}

static int choose_kv_type(struct rank *rank, struct error *err) {
    enum kv_type *type = &rank->config.kv_type;
    if (*type == KV_AUTO)
        *type = backend_kv_type(rank->backend, model_default_kv_type(rank->model));
    if ((rank->backend->kv_types & KV_TYPE_BIT(*type)) != 0)
        return 0;
    char taken[96];
    list_kv_types(rank->backend->kv_types, taken, sizeof(taken));
    return error_set(err, ERROR_CONFIG,
                     "kv-cache-dtype: %s; on %s with this --dtype keys and values must be %s",
                     kv_type_name(*type), rank->backend->name, taken);
}

/* Chooses the type of their numbers; without any, the shape is all zeros. */
static void choose_lora_shape(struct rank *rank) {
    const struct backend *b = rank->backend;
    struct lora_shape *shape = &rank->config.lora;
    CHECK(shape->num_slots >= 0 && shape->num_slots <= LORA_MAX_SLOTS);
    if (shape->num_slots == 0)
        *shape = (struct lora_shape){0};
    else if (shape->dtype == DTYPE_AUTO)
        shape->dtype = b->has_dedicated_memory ? b->activation_dtype : DTYPE_F16;
}

static void set_layout(struct rank *rank) {
    const struct model_config *model = &rank->model->config;
    rank->cache.layout = (struct kv_layout){
        .num_layers = rank->shard.num_layers,
        .num_kv_heads = rank->shard.num_kv_heads,
        .head_dim = model->head_dim,
        .latent_dim = model->latent.kv_rank,
        .block_size = rank->limits.block_size,
        .type = rank->config.kv_type,
    };
}

static int open_backend(const struct rank_setup *setup, int32_t index, int32_t num_threads,
                        struct rank *rank, struct error *err) {
    const struct executor_config *config = setup->config;
    int32_t number = setup->first_rank + index, per_stage = setup->num_ranks / setup->num_stages;
    int32_t stage = number / per_stage;
    *rank = (struct rank){.model = setup->model,
                          .config = *config,
                          .group = setup->groups[stage],
                          .pipeline = setup->pipeline,
                          .stage = stage,
                          .watch = setup->watches != NULL ? &setup->watches[index] : NULL};
    snprintf(rank->why_cpu, sizeof(rank->why_cpu), "%s", setup->why_cpu);
    rank->config.device = setup->device;
    rank->config.num_threads = num_threads;
    if (config->limits.max_model_len == 0)
        rank->config.limits.max_model_len = config->most_model_len;
    rank->weights_options = (struct weights_options){
        .max_model_len = rank->config.limits.max_model_len, .quantization = config->quantization};
    /* Options that contradict each other do so on every device. */
    if (sizing_choose_step(setup->device, 0, &rank->config.limits, &rank->limits, err) != 0 ||
        model_shard_init_stage(setup->model, config->quantization, number, per_stage,
                               setup->num_stages, &rank->shard, err) != 0)
        return -1;
    int status = strcmp(setup->device, "auto") == 0 ? open_auto(rank, err) : open_named(rank, err);
    if (status != 0 || choose_kv_type(rank, err) != 0)
        return -1;
    choose_lora_shape(rank);
    rank->weights_options.cuts_key_bias = kv_type_has_scales(rank->config.kv_type);
    rank->records_steps = !config->enforce_eager && rank->backend->ops->recording != NULL;
    if (!rank->backend->has_dedicated_memory)
        rank->watch = NULL; /* a CPU may take as long as it needs */
    set_layout(rank);
    return 0;
}

static int load_weights(struct rank *rank, struct weights_reader *reader, struct error *err) {
    struct backend *b = rank->backend;
    if (plan_weights(rank, err) != 0)
        return -1;
    size_t before = free_bytes_of(rank);
    if (weights_load(b, rank->model, &rank->shard, reader, &rank->weights_options, &rank->weights,
                     err) != 0)
        return -1;
    rank_watch_begin(rank->watch);
    int status = b->ops->synchronize(b, err);
    rank_watch_end(rank->watch);
    if (status != 0)
        return -1;
    size_t after = free_bytes_of(rank);
    rank->memory.weight_bytes = rank->weights->bytes;
    if (b->has_dedicated_memory && before > after)
        rank->memory.weight_bytes = before - after;
    return 0;
}

static int create_adapters(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (plan_adapters(rank, err) != 0)
        return -1;
    if (rank->config.lora.num_slots == 0)
        return 0;
    rank_watch_begin(rank->watch);
    int status = lora_slots_create(rank->backend, &rank->model->config, &rank->shard,
                                   &rank->config.lora, &rank->lora, &why);
    rank_watch_end(rank->watch);
    if (status != 0)
        return explain(&why, "adapters", "lower --max-loras or --max-lora-rank", err);
    rank->memory.adapter_bytes = lora_slots_bytes(rank->lora);
    return 0;
}

static int create_llama(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    size_t bytes;
    if (plan_workspace(rank, &bytes, err) != 0)
        return -1;
    rank_watch_begin(rank->watch);
    int status = llama_create(b, &rank->model->config, &rank->shard, rank->weights, rank->lora,
                              &rank->limits, &rank->llama, err);
    rank_watch_end(rank->watch);
    if (status != 0)
        return -1;
    rank->memory.workspace_bytes = llama_workspace_bytes(rank->llama) + b->workspace_bytes;
    return 0;
}

static int alloc_blocks(struct rank *rank, int32_t num_blocks, struct error *err) {
    struct backend *b = rank->backend;
    rank->cache.num_blocks = num_blocks;
    return b->ops->buffer_alloc(b, (size_t)num_blocks * kv_block_bytes(&rank->cache.layout),
                                &rank->cache.buffer, err);
}

static int record_steps(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (!rank->records_steps)
        return 0;
    int64_t begin = clock_now_ns();
    rank_watch_begin(rank->watch);
    int status = llama_record(rank->llama, &rank->cache, &why);
    rank_watch_end(rank->watch);
    rank->recording_ns += clock_now_ns() - begin;
    return status == 0 ? 0
                       : explain(&why, "recorded decode steps",
                                 "lower --gpu-memory-utilization or --max-num-seqs", err);
}

/* *out_returned: bytes of the recorded steps that are free again until steps are recorded for the
 * cache. */
static int run_dry(struct rank *rank, size_t *out_returned, struct error *err) {
    struct error why = {0};
    if (alloc_blocks(rank, 2, &why) != 0 ||
        dry_run(rank->backend, rank->llama, &rank->cache, &rank->limits, rank->lora != NULL,
                rank->watch, &rank->tuning, &why) != 0)
        return explain(&why, "largest step", "lower --max-num-batched-tokens or --max-num-seqs",
                       err);
    size_t before = free_bytes_of(rank);
    if (record_steps(rank, err) != 0)
        return -1;
    size_t with_steps = free_bytes_of(rank);
    llama_forget_recorded(rank->llama);
    size_t after = free_bytes_of(rank);
    rank->memory.recorded_bytes = before > with_steps ? before - with_steps : 0;
    *out_returned = after > with_steps ? after - with_steps : 0;
    rank->backend->ops->buffer_free(rank->backend, &rank->cache.buffer);
    return 0;
}

static int plan_memory(struct rank *rank, struct error *err) {
    size_t workspace_bytes;
    if (plan_weights(rank, err) != 0 || plan_adapters(rank, err) != 0 ||
        plan_workspace(rank, &workspace_bytes, err) != 0)
        return -1;
    measure_free(rank, rank->memory.weight_bytes + rank->memory.adapter_bytes + workspace_bytes);
    return 0;
}

int rank_open(const struct rank_setup *setup, int32_t index, int32_t num_threads, struct rank *out,
              struct error *err) {
    if (open_backend(setup, index, num_threads, out, err) == 0 && plan_memory(out, err) == 0)
        return 0;
    rank_close(out);
    return -1;
}

int rank_plan_length(struct rank *rank, int32_t max_model_len, struct error *err) {
    rank->config.limits.max_model_len = max_model_len;
    rank->limits.max_model_len = max_model_len;
    rank->weights_options.max_model_len = max_model_len;
    return plan_memory(rank, err);
}

int rank_load(struct rank *rank, struct weights_reader *reader, struct error *err) {
    size_t returned_bytes = 0;
    if (load_weights(rank, reader, err) != 0 || create_adapters(rank, err) != 0 ||
        create_llama(rank, err) != 0 ||
        (rank->backend->has_dedicated_memory && run_dry(rank, &returned_bytes, err) != 0))
        return -1;
    measure_free(rank, returned_bytes);
    return 0;
}

static int create_cache(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    struct error why = {0};
    rank_watch_begin(rank->watch);
    int status = alloc_blocks(rank, rank->limits.num_blocks, &why);
    if (status == 0)
        status = b->ops->synchronize(b, &why);
    rank_watch_end(rank->watch);
    if (status != 0)
        return explain(&why, "KV cache",
                       "lower --gpu-memory-utilization or --kv-cache-memory-bytes", err);
    return 0;
}

static int create_host_pool(struct rank *rank, struct error *err) {
    struct backend *b = rank->backend;
    int32_t num_blocks = rank->limits.num_host_blocks;
    size_t bytes = (size_t)num_blocks * kv_block_bytes(&rank->cache.layout);
    struct error why = {0};
    if (num_blocks == 0)
        return 0;
    if (b->ops->host_alloc(b, bytes, &rank->host_pool, &why) != 0)
        return explain(&why, "host pool of KV blocks", "lower --swap-space", err);
    rank_watch_begin(rank->watch);
    int status = rank_moves_measure(b, &rank->cache, rank->host_pool.data, num_blocks,
                                    &rank->swap_block_ns, err);
    rank_watch_end(rank->watch);
    return status;
}

int rank_allocate(struct rank *rank, struct error *err) {
    if (create_cache(rank, err) != 0 ||
        (rank->backend->has_dedicated_memory && record_steps(rank, err) != 0))
        return -1;
    rank->memory.free_bytes = free_bytes_of(rank);
    return create_host_pool(rank, err);
}

static void free_pools(struct rank *rank) {
    rank->backend->ops->host_free(rank->backend, &rank->host_pool);
    rank->backend->ops->buffer_free(rank->backend, &rank->cache.buffer);
}

void rank_release(struct rank *rank) {
    rank_watch_begin(rank->watch);
    if (rank->records_steps)
        llama_forget_recorded(rank->llama);
    free_pools(rank);
    rank_watch_end(rank->watch);
}

void rank_close(struct rank *rank) {
    llama_destroy(rank->llama);
    if (rank->backend != NULL) {
        free_pools(rank);
        lora_slots_destroy(rank->lora);
        weights_free(rank->backend, rank->weights);
        backend_close(rank->backend);
    }
    *rank = (struct rank){0};
}

/* --- Steps --- */

void rank_begin(struct rank *rank, const struct batch *batch) {
    rank_watch_begin(rank->watch);
    rank_write_adapters(rank, batch);
    rank_moves_enqueue(rank->backend, &rank->cache, rank->host_pool.data, batch);
    if (batch->inputs.num_tokens > 0)
        llama_forward(rank->llama, &rank->cache, batch);
    rank_watch_end(rank->watch);
}

void rank_sample(struct rank *rank, const struct batch *batch, struct step_result *result) {
    CHECK(batch->inputs.num_tokens > 0 ||
          (batch->num_sample_rows == 0 && batch->num_hidden_sums == 0));
    rank_watch_begin(rank->watch);
    llama_sample(rank->llama, batch, result);
    rank->backend->ops->step_end(rank->backend);
    rank_watch_end(rank->watch);
}

int rank_wait(struct rank *rank, struct error *err) {
    rank_watch_begin(rank->watch);
    int status = rank->backend->ops->step_wait(rank->backend, err);
    rank_watch_end(rank->watch);
    if (status == 0 && rank->failure.code != ERROR_NONE)
        return error_set(err, rank->failure.code, "%s", rank->failure.message);
    return status;
}

struct backend_group_traffic rank_traffic(const struct rank *rank) {
    struct backend_group_traffic sums = {0}, rows = {0};
    if (rank->group != NULL)
        backend_group_get_traffic(rank->group, rank->shard.rank, &sums);
    if (rank->pipeline != NULL)
        backend_pipeline_get_traffic(rank->pipeline, rank->stage, rank->shard.rank, &rows);
    return (struct backend_group_traffic){.bytes_sent = sums.bytes_sent + rows.bytes_sent,
                                          .bytes_received =
                                              sums.bytes_received + rows.bytes_received,
                                          .wait_ns = sums.wait_ns + rows.wait_ns};
}

bool rank_is_asynchronous(const struct rank *rank) {
    return rank->backend->ops->step_is_done != NULL;
}

bool rank_is_done(const struct rank *rank) {
    return rank->backend->ops->step_is_done(rank->backend);
}
