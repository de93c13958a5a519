/* Shared by the files of the block manager: how blocks get owners and lose them. */
#ifndef QUIRE_ENGINE_KV_BLOCK_MANAGER_PRIVATE_H
#define QUIRE_ENGINE_KV_BLOCK_MANAGER_PRIVATE_H

#include "engine/kv/block_manager.h"

/* Returns how many groups still have a block there: the first ones, since those that see everything
 * drop none. */
static inline int32_t block_manager_groups_at(const struct block_manager *manager,
                                              const struct block_table *table, int32_t index) {
    return index < table->num_dropped ? manager->config.limits->num_full_groups : table->num_groups;
}

/* Returns a device block with one owner and no content, or -1. */
int32_t block_manager_take(struct block_manager *manager);

/* Drop one owner of a block. Dropping the last one cancels the moves into the block that the step
 * was to make. A device block stays pinned until the steps in flight up to last_step, which use the
 * owner's table, are collected. */
void block_manager_drop_device(struct block_manager *manager, int32_t block, uint64_t last_step);
void block_manager_drop_host(struct block_manager *manager, int32_t block);

#endif
