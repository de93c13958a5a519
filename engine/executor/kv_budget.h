/* How many KV blocks a rank gets. Pure. */
#ifndef QUIRE_ENGINE_EXECUTOR_KV_BUDGET_H
#define QUIRE_ENGINE_EXECUTOR_KV_BUDGET_H

#include "config/error.h"

#include <stddef.h>
#include <stdint.h>

struct kv_budget {
    size_t block_bytes; /* of all layers */
    int32_t block_size; /* tokens */
    int32_t max_model_len;
    int32_t max_num_seqs;
    size_t memory_bytes; /* --kv-cache-memory-bytes; 0: chosen here */
    size_t free_bytes;   /* memory at hand, with everything but the pool in place */
    /* Of a device with memory of its own; 0: the pool is in the system's memory. */
    size_t total_bytes;
    double utilization; /* --gpu-memory-utilization: share of total_bytes to be used in all */
};

/* When nothing is asked for: in the system's memory, what max_num_seqs sequences of max_model_len
 * tokens can need, but no more than a quarter of the memory at hand and no more than 4 GiB; on a
 * device of its own, what is left of its share, to the last block. Either way one such sequence
 * must fit; ERROR_CONFIG, or ERROR_MEMORY when the bytes were chosen here, says by how much it does
 * not. Bytes that were asked for must be free on a device of its own (ERROR_CONFIG). */
int kv_budget_blocks(const struct kv_budget *budget, int32_t *out_num_blocks, struct error *err);

#endif
