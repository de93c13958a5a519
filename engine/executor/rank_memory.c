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
                                  b->has_dedicated_memory ? b->activation_dtype : DTYPE_NONE,
                                  b->head_rows_step);
    rank->memory.weight_bytes = bytes;
    return check_room(rank, "weights", bytes,
                      "serve a smaller model, stop what else uses the GPU, or lower "
                      "--max-num-batched-tokens or --max-num-seqs",
                      err);
}

int rank_memory_plan_workspace(struct rank *rank, size_t *out_bytes, struct error *err) {
    const struct backend *b = rank->backend;
    size_t bytes = llama_workspace_needed(&rank->model->config, &rank->shard, b->activation_dtype,
                                          b->head_rows_step, &rank->limits);
    rank->memory.workspace_bytes = bytes + b->workspace_bytes;
    *out_bytes = bytes;
    return check_room(rank, "workspace", bytes, "lower --max-num-batched-tokens or --max-num-seqs",
                      err);
}

void rank_memory_measure(struct rank *rank, size_t planned_bytes) {
    struct executor_memory *memory = &rank->memory;
    size_t free, total;
    rank->backend->ops->memory_info(rank->backend, &free, &total);
    rank->free_bytes = free;
    rank->total_bytes = total;
    rank->planned_bytes = planned_bytes;
    size_t left = free > planned_bytes ? free - planned_bytes : 0;
    size_t used = total - left,
           known = memory->weight_bytes + memory->workspace_bytes + memory->recorded_bytes;
    memory->overhead_bytes = used > known ? used - known : 0;
}
