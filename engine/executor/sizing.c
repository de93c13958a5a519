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

/* Returns what is left of a device's share. */
static size_t rest_of_share(const struct kv_budget *budget) {
    size_t share = (size_t)(budget->utilization * (double)budget->total_bytes);
    size_t used = budget->total_bytes - budget->free_bytes;
    return share > used ? share - used : 0;
}

/* Returns the most that one sequence may take of the system's memory. */
static size_t most_of_sequence(const struct kv_budget *budget) {
    size_t free = budget->free_bytes;
    switch (budget->length) {
    case KV_LENGTH_SOUGHT:
        return free / 2;
    case KV_LENGTH_REQUESTED:
        return free - free / 8;
    case KV_LENGTH_KEPT:
        return free;
    }
    CHECK(false);
}

static size_t choose_kv_bytes(const struct kv_budget *budget, const struct serving_limits *limits,
                              size_t blocks_per_seq) {
    size_t one, all, free = budget->free_bytes;
    if (budget->total_bytes > 0)
        return rest_of_share(budget);
    if (!checked_mul(blocks_per_seq, budget->block_bytes, &one))
        one = SIZE_MAX;
    if (!checked_mul(one, (size_t)limits->max_num_seqs, &all))
        all = SIZE_MAX;
    size_t others = min_size(free / 4, MAX_CHOSEN_BYTES);
    size_t chosen = one < free ? min_size(one + others, free / 2) : free / 2;
    if (chosen < one)
        chosen = min_size(one, most_of_sequence(budget));
    return min_size(all, chosen);
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

static size_t tokens_in(const struct serving_limits *limits, size_t num_blocks) {
    return (size_t)serving_limits_tokens_in(limits, (int64_t)num_blocks);
}

/* The bytes were requested. */
static int refuse_bytes(const struct kv_budget *budget, const struct serving_limits *limits,
                        size_t blocks, size_t needed, struct error *err) {
    return error_set(err, ERROR_CONFIG,
                     "--kv-cache-memory-bytes: %zu bytes hold the keys and values of %zu tokens, "
                     "but one sequence of --max-model-len %d needs %zu bytes; raise the former to "
                     "that or lower the latter",
                     budget->memory_bytes, tokens_in(limits, blocks), limits->max_model_len,
                     needed);
}

/* They were chosen from the system's memory. */
static int refuse_length(const struct kv_budget *budget, const struct serving_limits *limits,
                         size_t blocks, size_t needed, struct error *err) {
    return error_set(err, ERROR_MEMORY,
                     "out of memory for the KV cache: one sequence of --max-model-len %d needs "
                     "%.1f MiB, but %.1f MiB of the system's memory are available with the weights "
                     "in place, which leaves room for %zu tokens; lower --max-model-len (auto: "
                     "what fits) or choose --kv-cache-dtype int8",
                     limits->max_model_len, mib(needed), mib(budget->free_bytes),
                     tokens_in(limits, blocks));
}

/* Bytes that were requested, and can never be there. */
static int check_requested(const struct kv_budget *budget, size_t blocks, struct error *err) {
    size_t bytes = budget->memory_bytes;
    if (budget->total_bytes > 0 && blocks * budget->block_bytes > budget->free_bytes)
        return error_set(err, ERROR_CONFIG,
                         "--kv-cache-memory-bytes: %.1f MiB, but only %.1f MiB of device memory "
                         "are free, %.1f MiB are missing; lower it, --max-num-batched-tokens or "
                         "--max-num-seqs",
                         mib(bytes), mib(budget->free_bytes), mib(bytes - budget->free_bytes));
    if (budget->total_bytes == 0 && budget->system_bytes > 0 && bytes > budget->system_bytes)
        return error_set(err, ERROR_CONFIG,
                         "--kv-cache-memory-bytes: %.1f MiB, but with the weights in place the "
                         "system has %.1f MiB at most; lower it",
                         mib(bytes), mib(budget->system_bytes));
    return 0;
}

int sizing_choose_blocks(const struct kv_budget *budget, struct serving_limits *limits,
                         struct error *err) {
    CHECK(budget->block_bytes > 0 && limits->block_size > 0 && limits->max_model_len > 0);
    bool was_requested = budget->memory_bytes > 0;
    size_t per_seq = (size_t)serving_limits_blocks_for(limits, limits->max_model_len,
                                                       limits->max_num_batched_tokens);
    size_t bytes = was_requested ? budget->memory_bytes : choose_kv_bytes(budget, limits, per_seq);
    /* slots are 32-bit */
    size_t blocks = min_size(bytes / budget->block_bytes, (size_t)(INT32_MAX / limits->block_size));
    size_t needed = per_seq * budget->block_bytes;
    if (was_requested && check_requested(budget, blocks, err) != 0)
        return -1;
    if (blocks < per_seq && was_requested)
        return refuse_bytes(budget, limits, blocks, needed, err);
    if (blocks < per_seq && budget->total_bytes > 0)
        return refuse_share(budget, limits->max_model_len, bytes, needed, err);
    if (blocks < per_seq)
        return refuse_length(budget, limits, blocks, needed, err);
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
    if (budget->kept_bytes > 0 && budget->kept_bytes < budget->block_bytes)
        return error_set(err, ERROR_CONFIG,
                         "--kv-host-bytes: %.3f MiB; one KV block takes %.3f MiB; must be 0 or at "
                         "least that",
                         mib(budget->kept_bytes), mib(budget->block_bytes));
    if (budget->kept_bytes > free - min_size(bytes, free) && bytes <= free)
        return error_set(err, ERROR_CONFIG,
                         "--kv-host-bytes: %.1f MiB, but only %.1f MiB of the system's memory are "
                         "free beside --swap-space",
                         mib(budget->kept_bytes), mib(free - bytes));
    if (bytes > free)
        return error_set(err, ERROR_CONFIG,
                         "--swap-space: %.1f MiB, but only %.1f MiB of the system's memory are "
                         "free, %.1f MiB are missing; lower it%s",
                         mib(bytes), mib(free), mib(bytes - free),
                         budget->has_dedicated_memory ? "" : " or --kv-cache-memory-bytes");
    bytes += budget->kept_bytes;
    limits->num_host_blocks = (int32_t)min_size(bytes / budget->block_bytes, INT32_MAX);
    return 0;
}
