#include "engine/executor/sizing.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "config/base/numbers.h"

#include <string.h>

#define MAX_CHOSEN_BYTES ((size_t)4 << 30)

static const struct serving_limits *step_defaults(const char *device, size_t memory_bytes) {
    static const struct serving_limits on_cpu = {
        .max_num_seqs = 64, .max_num_batched_tokens = 512, .max_logit_rows = 64};
    static const struct serving_limits on_gpu = {
        .max_num_seqs = 256, .max_num_batched_tokens = 2048, .max_logit_rows = 256};
    static const struct serving_limits on_large_gpu = {
        .max_num_seqs = 1024, .max_num_batched_tokens = 8192, .max_logit_rows = 256};
    if (strncmp(device, "cuda", 4) != 0)
        return &on_cpu;
    return memory_bytes >= SIZING_LARGE_GPU_BYTES ? &on_large_gpu : &on_gpu;
}

int sizing_choose_step(const char *device, size_t memory_bytes,
                       const struct serving_limits *requested, struct serving_limits *out,
                       struct error *err) {
    const struct serving_limits *defaults = step_defaults(device, memory_bytes);
    int32_t seqs = requested->max_num_seqs, tokens = requested->max_num_batched_tokens;
    if (seqs == 0)
        seqs = tokens == 0 ? defaults->max_num_seqs : min_int32(defaults->max_num_seqs, tokens);
    if (tokens == 0)
        tokens = defaults->max_num_batched_tokens > seqs ? defaults->max_num_batched_tokens : seqs;
    if (tokens < seqs)
        return error_set(err, ERROR_CONFIG,
                         "max-num-batched-tokens is %d, must be at least max-num-seqs, which is %d",
                         tokens, seqs);
    *out = *requested;
    out->max_num_seqs = seqs;
    out->max_num_batched_tokens = tokens;
    out->max_logit_rows = min_int32(defaults->max_logit_rows, seqs);
    return 0;
}

static size_t choose_kv_bytes(const struct kv_budget *budget, const struct serving_limits *limits,
                              size_t blocks_per_seq) {
    if (budget->total_bytes > 0) { /* what is left of the device's share */
        size_t share = (size_t)(budget->utilization * (double)budget->total_bytes);
        size_t used = budget->total_bytes - budget->free_bytes;
        return share > used ? share - used : 0;
    }
    size_t bytes;
    if (!checked_mul(blocks_per_seq, (size_t)limits->max_num_seqs, &bytes) ||
        !checked_mul(bytes, budget->block_bytes, &bytes))
        bytes = SIZE_MAX;
    size_t chosen = min_size(budget->free_bytes / 4, MAX_CHOSEN_BYTES);
    if (budget->keeps_length && chosen < blocks_per_seq * budget->block_bytes)
        chosen = min_size(blocks_per_seq * budget->block_bytes, budget->free_bytes);
    return min_size(bytes, chosen);
}

static int refuse_share(const struct kv_budget *budget, int32_t max_model_len, size_t bytes,
                        size_t needed, struct error *err) {
    return error_set(err, ERROR_MEMORY,
                     "out of device memory for the KV cache: --gpu-memory-utilization %g of %.1f "
                     "MiB leaves %.1f MiB, but one sequence of --max-model-len %d needs %.1f MiB, "
                     "%.1f MiB are missing; raise the former, or lower --max-model-len, "
                     "--max-num-batched-tokens or --max-num-seqs",
                     budget->utilization, mib(budget->total_bytes), mib(bytes), max_model_len,
                     mib(needed), mib(needed - bytes));
}

static int refuse_bytes(const struct kv_budget *budget, const struct serving_limits *limits,
                        size_t bytes, size_t blocks, size_t needed, struct error *err) {
    bool was_requested = budget->memory_bytes > 0;
    return error_set(err, was_requested ? ERROR_CONFIG : ERROR_MEMORY,
                     "--kv-cache-memory-bytes: %zu bytes%s hold the keys and values of %zu "
                     "tokens, but one sequence of --max-model-len %d needs %zu bytes; raise the "
                     "former to that or lower the latter",
                     bytes, was_requested ? "" : " (chosen from the memory at hand)",
                     blocks * (size_t)limits->block_size, limits->max_model_len, needed);
}

int sizing_choose_blocks(const struct kv_budget *budget, struct serving_limits *limits,
                         struct error *err) {
    CHECK(budget->block_bytes > 0 && limits->block_size > 0 && limits->max_model_len > 0);
    size_t per_seq = (size_t)serving_limits_max_blocks(limits);
    size_t bytes =
        budget->memory_bytes > 0 ? budget->memory_bytes : choose_kv_bytes(budget, limits, per_seq);
    /* slots are 32-bit */
    size_t blocks = min_size(bytes / budget->block_bytes, (size_t)(INT32_MAX / limits->block_size));
    if (budget->total_bytes > 0 && blocks * budget->block_bytes > budget->free_bytes)
        return error_set(err, ERROR_CONFIG,
                         "--kv-cache-memory-bytes: %.1f MiB, but only %.1f MiB of device memory "
                         "are free, %.1f MiB are missing; lower it, --max-num-batched-tokens or "
                         "--max-num-seqs",
                         mib(bytes), mib(budget->free_bytes), mib(bytes - budget->free_bytes));
    if (blocks < per_seq && budget->total_bytes > 0 && budget->memory_bytes == 0)
        return refuse_share(budget, limits->max_model_len, bytes, per_seq * budget->block_bytes,
                            err);
    if (blocks < per_seq)
        return refuse_bytes(budget, limits, bytes, blocks, per_seq * budget->block_bytes, err);
    limits->num_blocks = (int32_t)blocks;
    return 0;
}

int sizing_choose_host_blocks(const struct swap_budget *budget, struct serving_limits *limits,
                              struct error *err) {
    CHECK(budget->block_bytes > 0);
    size_t bytes = budget->memory_bytes, free = budget->free_bytes;
    if (bytes == SIZE_MAX && budget->has_dedicated_memory)
        bytes = min_size(budget->kv_bytes, min_size(free / 4, MAX_CHOSEN_BYTES));
    else if (bytes == SIZE_MAX)
        bytes = 0;
    else if (bytes > 0 && bytes < budget->block_bytes)
        return error_set(err, ERROR_CONFIG,
                         "--swap-space: %.3f MiB; one KV block takes %.3f MiB; must be 0 or at "
                         "least that",
                         mib(bytes), mib(budget->block_bytes));
    if (bytes > free)
        return error_set(err, ERROR_CONFIG,
                         "--swap-space: %.1f MiB, but only %.1f MiB of the system's memory are "
                         "free, %.1f MiB are missing; lower it%s",
                         mib(bytes), mib(free), mib(bytes - free),
                         budget->has_dedicated_memory ? "" : " or --kv-cache-memory-bytes");
    limits->num_host_blocks = (int32_t)min_size(bytes / budget->block_bytes, INT32_MAX);
    return 0;
}
