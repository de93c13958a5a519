#include "engine/executor/kv_budget.h"

#include "config/base/check.h"
#include "config/base/checked.h"
#include "engine/kv/block_table.h"

#include <stdbool.h>

#define MOST_CHOSEN_BYTES ((size_t)4 << 30)

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

/* What is left of the device's share. */
static size_t left_bytes(const struct kv_budget *budget) {
    size_t share = (size_t)(budget->utilization * (double)budget->total_bytes);
    size_t used = budget->total_bytes - budget->free_bytes;
    return share > used ? share - used : 0;
}

static size_t chosen_bytes(const struct kv_budget *budget, size_t blocks_per_seq) {
    size_t bytes;
    if (budget->total_bytes > 0)
        return left_bytes(budget);
    if (!checked_mul(blocks_per_seq, (size_t)budget->max_num_seqs, &bytes) ||
        !checked_mul(bytes, budget->block_bytes, &bytes))
        bytes = SIZE_MAX;
    return smaller(bytes, smaller(budget->free_bytes / 4, MOST_CHOSEN_BYTES));
}

static int refuse_share(const struct kv_budget *budget, size_t bytes, size_t needed,
                        struct error *err) {
    return error_set(err, ERROR_MEMORY,
                     "out of device memory for the KV cache: --gpu-memory-utilization %g of %.1f "
                     "MiB leaves %.1f MiB, but one sequence of --max-model-len %d needs %.1f MiB, "
                     "%.1f MiB are missing; raise the former, or lower --max-model-len, "
                     "--max-num-batched-tokens or --max-num-seqs",
                     budget->utilization, mib(budget->total_bytes), mib(bytes),
                     budget->max_model_len, mib(needed), mib(needed - bytes));
}

static int refuse_bytes(const struct kv_budget *budget, size_t bytes, size_t blocks, size_t needed,
                        struct error *err) {
    bool was_asked = budget->memory_bytes > 0;
    return error_set(err, was_asked ? ERROR_CONFIG : ERROR_MEMORY,
                     "--kv-cache-memory-bytes: %zu bytes%s hold the keys and values of %zu "
                     "tokens, but one sequence of --max-model-len %d needs %zu bytes; raise the "
                     "former to that or lower the latter",
                     bytes, was_asked ? "" : " (chosen from the memory at hand)",
                     blocks * (size_t)budget->block_size, budget->max_model_len, needed);
}

int kv_budget_blocks(const struct kv_budget *budget, int32_t *out_num_blocks, struct error *err) {
    CHECK(budget->block_bytes > 0 && budget->block_size > 0 && budget->max_model_len > 0);
    size_t per_seq = (size_t)block_table_blocks_for(budget->max_model_len, budget->block_size);
    size_t bytes = budget->memory_bytes > 0 ? budget->memory_bytes : chosen_bytes(budget, per_seq);
    /* slots are 32-bit */
    size_t blocks = smaller(bytes / budget->block_bytes, (size_t)(INT32_MAX / budget->block_size));
    if (budget->total_bytes > 0 && blocks * budget->block_bytes > budget->free_bytes)
        return error_set(err, ERROR_CONFIG,
                         "--kv-cache-memory-bytes: %.1f MiB, but only %.1f MiB of device memory "
                         "are free, %.1f MiB are missing; lower it, --max-num-batched-tokens or "
                         "--max-num-seqs",
                         mib(bytes), mib(budget->free_bytes), mib(bytes - budget->free_bytes));
    if (blocks < per_seq && budget->total_bytes > 0 && budget->memory_bytes == 0)
        return refuse_share(budget, bytes, per_seq * budget->block_bytes, err);
    if (blocks < per_seq)
        return refuse_bytes(budget, bytes, blocks, per_seq * budget->block_bytes, err);
    *out_num_blocks = (int32_t)blocks;
    return 0;
}
