#include "engine/executor/swap_budget.h"

#include "config/base/check.h"

#define MOST_CHOSEN_BYTES ((size_t)4 << 30)

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static double mib(size_t bytes) {
    return (double)bytes / (1 << 20);
}

static size_t chosen_bytes(const struct swap_budget *budget) {
    if (!budget->is_card)
        return 0;
    return smaller(budget->kv_bytes, smaller(budget->free_bytes / 4, MOST_CHOSEN_BYTES));
}

int swap_budget_blocks(const struct swap_budget *budget, int32_t *out_num_blocks,
                       struct error *err) {
    CHECK(budget->block_bytes > 0);
    size_t bytes = budget->memory_bytes, free = budget->free_bytes;
    if (bytes == SIZE_MAX)
        bytes = chosen_bytes(budget);
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
                         budget->is_card ? "" : " or --kv-cache-memory-bytes");
    *out_num_blocks = (int32_t)smaller(bytes / budget->block_bytes, INT32_MAX);
    return 0;
}
