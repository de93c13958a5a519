#include "engine/kv_budget.h"

#include "config/check.h"
#include "config/checked.h"
#include "engine/block_table.h"

#define MOST_CHOSEN_BYTES ((size_t)4 << 30)

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t chosen_bytes(const struct kv_budget *budget, size_t blocks_per_seq) {
    size_t bytes;
    if (!checked_mul(blocks_per_seq, (size_t)budget->max_num_seqs, &bytes) ||
        !checked_mul(bytes, budget->block_bytes, &bytes))
        bytes = SIZE_MAX;
    return smaller(bytes, smaller(budget->available_bytes / 4, MOST_CHOSEN_BYTES));
}

int kv_budget_blocks(const struct kv_budget *budget, int32_t *out_num_blocks, struct error *err) {
    CHECK(budget->block_bytes > 0 && budget->block_size > 0 && budget->max_model_len > 0);
    size_t per_seq = (size_t)block_table_blocks_for(budget->max_model_len, budget->block_size);
    size_t bytes = budget->memory_bytes > 0 ? budget->memory_bytes : chosen_bytes(budget, per_seq);
    /* slots are 32-bit */
    size_t blocks = smaller(bytes / budget->block_bytes, (size_t)(INT32_MAX / budget->block_size));
    if (blocks < per_seq)
        return error_set(
            err, budget->memory_bytes > 0 ? ERROR_CONFIG : ERROR_MEMORY,
            "--kv-cache-memory-bytes: %zu bytes%s hold the keys and values of %zu "
            "tokens, but one sequence of --max-model-len %d needs %zu bytes; raise the "
            "former to that or lower the latter",
            bytes, budget->memory_bytes > 0 ? "" : " (chosen from the memory at hand)",
            blocks * (size_t)budget->block_size, budget->max_model_len,
            per_seq * budget->block_bytes);
    *out_num_blocks = (int32_t)blocks;
    return 0;
}
