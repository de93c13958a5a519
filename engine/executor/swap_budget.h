/* How many blocks the host pool gets, which takes KV blocks of preempted sequences. Pure. */
#ifndef QUIRE_ENGINE_EXECUTOR_SWAP_BUDGET_H
#define QUIRE_ENGINE_EXECUTOR_SWAP_BUDGET_H

#include "config/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct swap_budget {
    size_t block_bytes;  /* of all layers */
    size_t memory_bytes; /* --swap-space; SIZE_MAX: chosen here */
    size_t free_bytes;   /* the system's memory at hand, with all else in place */
    size_t kv_bytes;     /* of the KV pool */
    bool is_card;        /* the KV pool is not in the system's memory */
};

/* When it is chosen here: nothing on the CPU, whose KV pool could as well be larger; beside a card
 * the smallest of 4 GiB, a quarter of the memory at hand and the KV pool. Whole blocks, possibly
 * none. ERROR_CONFIG when what was asked for is not there, or is less than a block. */
int swap_budget_blocks(const struct swap_budget *budget, int32_t *out_num_blocks,
                       struct error *err);

#endif
