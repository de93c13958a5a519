/* Shared by the files of the block manager: how blocks get owners and lose them. */
#ifndef QUIRE_ENGINE_KV_BLOCK_MANAGER_PRIVATE_H
#define QUIRE_ENGINE_KV_BLOCK_MANAGER_PRIVATE_H

#include "engine/kv/block_manager.h"

/* Returns a block of the device with one owner and no content, or -1. */
int32_t block_manager_take(struct block_manager *manager);

/* Drops one owner of a block. With the last one go the moves into it that the step was to make. A
 * block of the device stays pinned until the steps in flight up to last_step were collected: those
 * that use the owner's table. */
void block_manager_drop_device(struct block_manager *manager, int32_t block, uint64_t last_step);
void block_manager_drop_host(struct block_manager *manager, int32_t block);

#endif
