/* Shared by the files of the block manager: how blocks get owners and lose them. */
#ifndef QUIRE_ENGINE_KV_BLOCK_MANAGER_PRIVATE_H
#define QUIRE_ENGINE_KV_BLOCK_MANAGER_PRIVATE_H

#include "engine/kv/block_manager.h"

#define READ_WEIGHT 8 /* a read counts for an eighth of the mean */

/* Returns how many groups still have a block there: the first ones, since those that see everything
 * drop none. */
static inline int32_t block_manager_groups_at(const struct block_manager *manager,
                                              const struct block_table *table, int32_t index) {
    return index < table->num_dropped ? manager->config.limits->num_full_groups : table->num_groups;
}

/* Returns whether the table's blocks are not found by everybody's prompts. */
static inline bool block_manager_is_private(const struct block_manager *manager,
                                            const struct block_table *table) {
    return manager->config.num_tenants > 1 || !block_key_equal(&table->root, &manager->public_root);
}

/* Return a device or host block with one owner and no content, or -1. */
int32_t block_manager_take(struct block_manager *manager);
int32_t block_manager_take_host(struct block_manager *manager);

/* Drop one owner of a block. Dropping the last one cancels the moves into the block that the step
 * was to make. A device block stays pinned until the steps in flight up to last_step, which use the
 * owner's table, are collected. */
void block_manager_drop_device(struct block_manager *manager, int32_t block, uint64_t last_step);
void block_manager_drop_host(struct block_manager *manager, int32_t block);

/* --- block_manager_tiers.c --- */

int block_manager_init_tiers(struct block_manager *manager);
size_t block_manager_tiers_bytes(const struct block_manager_config *config);
/* Ends the jobs, too. */
void block_manager_finish_tiers(struct block_manager *manager);
/* Forgets what the host keeps, and what the store was to get. */
void block_manager_flush_tiers(struct block_manager *manager);

/* Has the step copy a block of the cache that is about to lose its content to a free host block, if
 * a tier is to have it. */
void block_manager_keep(struct block_manager *manager, int32_t block);
/* Notes that the cache has a new block. */
void block_manager_note_cached(struct block_manager *manager, int32_t block);
/* Reports that the step being planned was submitted, and its moves are no longer listed. */
void block_manager_submit_tiers(struct block_manager *manager);
/* Returns the host block that has the content, or will have it when the step being planned is run;
 * or -1. */
int32_t block_manager_find_kept(const struct block_manager *manager,
                                const struct block_content *content);
/* Begins to read the content from the store. False: it does not have it, or there are too many jobs
 * or no host block for it now. */
bool block_manager_begin_read(struct block_manager *manager, const struct block_content *content);

/* Has the step bring a host block's content to a device block of the table, and adds that to the
 * cache. */
void block_manager_promote(struct block_manager *manager, const struct block_table *table,
                           int32_t host, int32_t block);

/* --- block_manager_cache.c --- */

/* Where a search in the keys of a table's blocks is. */
struct key_cursor {
    int32_t index;        /* of the next block */
    struct block_key key; /* of the block before it, or the root */
};

/* Describes the block at the cursor, without its group, and moves on; `tokens` has room for its
 * tokens. */
struct block_content block_manager_next_content(const struct block_manager *manager,
                                                const struct block_table *table,
                                                struct key_cursor *cursor,
                                                const struct token_view *view, int32_t *tokens);

#endif
