/* A kv_store (engine/kv/kv_store.h) as the tier below an executor's host block pools: a block is
 * what the pools of all ranks have of it. Engine thread only. */
#ifndef QUIRE_ENGINE_EXECUTOR_STORE_TIER_H
#define QUIRE_ENGINE_EXECUTOR_STORE_TIER_H

#include "engine/executor/executor.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/kv_tier.h"

struct store_tier {
    struct kv_tier tier;
    struct kv_store *store;
    struct executor *executor;
};

/* Both outlive it, and it does not move. Nothing is to be freed. */
void store_tier_init(struct store_tier *tier, struct kv_store *store, struct executor *executor);
/* Returns the bytes of a block in all pools. */
size_t store_tier_block_bytes(const struct executor_info *info);

#endif
