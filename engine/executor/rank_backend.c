/* The device of a rank, and what is chosen with it: the sizes of a step and the formats. */
#include "engine/executor/rank.h"

#include "config/base/check.h"
#include "engine/executor/sizing.h"
#include "kernels/kv_type.h"
#include "models/kv_groups.h"

#include <stdio.h>
#include <string.h>

/* Replaces the backend's own reason for a shortage, which does not know the options. */
int rank_explain(struct error *why, const char *part, const char *remedy, struct error *err) {
    if (why->code != ERROR_MEMORY)
        return error_set(err, why->code, "%s", why->message);
    return error_set(err, ERROR_MEMORY, "out of memory for the %s: %s; %s", part, why->message,
                     remedy);
}

static bool is_cuda(const char *device) {
    return strncmp(device, "cuda", 4) == 0;
}

/* On the CPU, bfloat16 is permission to round, which nobody gets without requesting it. */
static enum dtype activation_dtype(const struct rank *rank, const char *device) {
    if (rank->config.dtype != DTYPE_AUTO)
        return rank->config.dtype;
    return is_cuda(device) ? model_default_activation_dtype(rank->model) : DTYPE_F32;
}

static size_t device_memory(struct rank *rank, const char *device) {
    rank_watch_begin(rank->watch);
    size_t bytes = backend_device_memory(device);
    rank_watch_end(rank->watch);
    return bytes;
}

static int open_device(struct rank *rank, const char *device, struct error *err) {
    const struct model_config *model = &rank->model->config;
    struct serving_limits *limits = &rank->limits;
    struct error why = {0};
    size_t device_bytes = device_memory(rank, device);
    CHECK(sizing_choose_step(device, device_bytes, &rank->config.limits, limits, NULL) == 0);
    struct backend_config backend_config = {
        .num_threads = rank->config.num_threads,
        .isa = is_cuda(device) ? rank->config.gpu_isa : rank->config.cpu_isa,
        .limits = *limits,
        .head_dim = model->head_dim,
        .latent_dim = model->latent.kv_rank,
        .num_q_heads = rank->shard.num_heads,
        .num_kv_heads = rank->shard.num_kv_heads,
        .activation_dtype = activation_dtype(rank, device),
        .batch_invariant = rank->config.batch_invariant,
        .fp8_activations = rank->config.fp8_activations,
        .fast_sums = rank->config.fast_sums,
        .group = rank->group,
        .rank = rank->shard.rank,
        .pipeline = rank->pipeline,
        .stage = rank->stage,
    };
    if (rank->config.draft_model != NULL)
        rank_draft_widen(rank->config.draft_model, &backend_config);
    rank_watch_begin(rank->watch);
    rank->backend = backend_open(device, &backend_config, &why);
    rank_watch_end(rank->watch);
    if (rank->backend == NULL)
        return rank_explain(&why, "workspace of the device's operations",
                            "lower --max-num-batched-tokens or --max-num-seqs", err);
    return 0;
}

static bool asks_for_gpu(const struct executor_config *config) {
    return config->fp8_activations ||
           (config->gpu_isa != NULL && strcmp(config->gpu_isa, "auto") != 0);
}

/* A GPU that exists but is too full, or lacks what was asked of it, is an error: the CPU would be
 * slower by orders of magnitude, and nobody wants that by accident. */
static int open_auto(struct rank *rank, struct error *err) {
    struct error why = {0};
    if (open_device(rank, "cuda", &why) == 0)
        return 0;
    if (why.code == ERROR_MEMORY || (why.code == ERROR_CONFIG && asks_for_gpu(&rank->config) &&
                                     device_memory(rank, "cuda") > 0))
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
        .num_layers = kv_groups_layers(model, &rank->shard, &rank->limits),
        .num_kv_heads = rank->shard.num_kv_heads,
        .head_dim = model->head_dim,
        .latent_dim = model->latent.kv_rank,
        .block_size = rank->limits.block_size,
        .type = rank->config.kv_type,
    };
}

int rank_open_backend(const struct rank_setup *setup, int32_t index, int32_t num_threads,
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
    bool is_cached = config->packed_cache.folder != NULL && config->packed_cache.build != NULL;
    rank->weights_options = (struct weights_options){
        .max_model_len = rank->config.limits.max_model_len,
        .quantization = config->quantization,
        .packed_cache = is_cached ? &config->packed_cache : NULL,
    };
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
    if (config->draft_model == NULL)
        return 0;
    return rank_draft_init(&rank->draft, config->draft_model, rank->backend, &rank->cache.layout,
                           config->quantization, err);
}
