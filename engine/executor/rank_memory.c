#include "engine/executor/rank_memory.h"

#include "config/base/numbers.h"
#include "engine/executor/sizing.h"

size_t rank_memory_free(const struct rank *rank) {
    size_t free, total;
    rank->backend->ops->memory_info(rank->backend, &free, &total);
    return free;
}

static int check_room(const struct rank *rank, const char *part, size_t needed, const char *remedy,
                      struct error *err) {
    if (!rank->backend->has_dedicated_memory)
        return 0;
    size_t free = rank_memory_free(rank);
    if (needed <= free)
        return 0;
    return error_set(err, ERROR_MEMORY,
                     "out of device memory for the %s: %.1f MiB needed, %.1f MiB free, %.1f MiB "
                     "missing; %s",
                     part, mib(needed), mib(free), mib(needed - free), remedy);
}

int rank_memory_plan_weights(struct rank *rank, struct error *err) {
    const struct backend *b = rank->backend;
    if (rank->config.quantization != DTYPE_NONE && b->has_dedicated_memory)
        return error_set(err, ERROR_CONFIG,
                         "quantization: int8 is for the CPU; on %s every weight is held in %s: "
                         "must be none",
                         b->name, dtype_name(b->activation_dtype));
    size_t bytes = weights_needed(rank->model, &rank->shard, &rank->weights_options,
                                  b->has_dedicated_memory ? b->activation_dtype : DTYPE_NONE);
    rank->info->memory.weight_bytes = bytes;
    return check_room(rank, "weights", bytes,
                      "serve a smaller model, stop what else uses the GPU, or lower "
                      "--max-num-batched-tokens or --max-num-seqs",
                      err);
}

int rank_memory_plan_workspace(struct rank *rank, size_t *out_bytes, struct error *err) {
    const struct backend *b = rank->backend;
    size_t bytes = llama_workspace_needed(&rank->model->config, &rank->shard, b->activation_dtype,
                                          &rank->info->limits);
    rank->info->memory.workspace_bytes = bytes + b->workspace_bytes;
    *out_bytes = bytes;
    return check_room(rank, "workspace", bytes, "lower --max-num-batched-tokens or --max-num-seqs",
                      err);
}

int rank_memory_plan_blocks(struct rank *rank, size_t planned_bytes, struct error *err) {
    struct backend *b = rank->backend;
    struct executor_memory *memory = &rank->info->memory;
    size_t free, total;
    b->ops->memory_info(b, &free, &total);
    free = free > planned_bytes ? free - planned_bytes : 0;
    size_t used = total - free, known = memory->weight_bytes + memory->workspace_bytes;
    memory->overhead_bytes = used > known ? used - known : 0;
    const struct kv_budget budget = {
        .block_bytes = kv_block_bytes(&rank->cache.layout),
        .memory_bytes = rank->config.kv_memory_bytes,
        .free_bytes = free,
        .total_bytes = b->has_dedicated_memory ? total : 0,
        .utilization = rank->config.gpu_memory_utilization,
    };
    if (sizing_choose_blocks(&budget, &rank->info->limits, err) != 0)
        return -1;
    memory->kv_bytes = (size_t)rank->info->limits.num_blocks * budget.block_bytes;
    return 0;
}

int rank_memory_plan_host_blocks(struct rank *rank, struct error *err) {
    struct executor_memory *memory = &rank->info->memory;
    bool is_dedicated = rank->backend->has_dedicated_memory;
    size_t free = backend_host_free_bytes(), taken = is_dedicated ? 0 : memory->kv_bytes;
    const struct swap_budget budget = {
        .block_bytes = kv_block_bytes(&rank->cache.layout),
        .memory_bytes = rank->config.swap_bytes,
        .free_bytes = free > taken ? free - taken : 0,
        .kv_bytes = memory->kv_bytes,
        .has_dedicated_memory = is_dedicated,
    };
    if (sizing_choose_host_blocks(&budget, &rank->info->limits, err) != 0)
        return -1;
    memory->swap_bytes = (size_t)rank->info->limits.num_host_blocks * budget.block_bytes;
    return 0;
}
