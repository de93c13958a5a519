/* Keeps all KV blocks of one memory (the device's, or the host's for swapping) by id: which are
 * free, and how many owners each has. The ranks manage the memory itself; ids mean the same on
 * every rank.
 *
 * A block without owners is free. Its content may still be wanted: a block marked `cached` keeps it
 * while it is free, and is handed out again only when no other block is left; the one freed longest
 * ago goes first. With several queues (a tenant uses the queue of its number modulo their count),
 * the oldest free block of the longest queue goes first: a tenant that floods the cache loses its
 * own blocks.
 *
 * A pinned block is not handed out even without an owner: it is the source of a copy that the step
 * being planned must make, or a step in flight uses it.
 *
 * Owned by the block manager; engine thread only. Every operation is O(1), except alloc from a
 * cache with several queues, which is O(queues). */
#ifndef QUIRE_ENGINE_KV_BLOCK_POOL_H
#define QUIRE_ENGINE_KV_BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block {
    int32_t references; /* tables that hold it */
    int32_t pins;
    int32_t queue;       /* queue of a cached block */
    int32_t num_drafted; /* for the block manager: first tokens whose keys and values the draft
                            model has computed, too */
    bool cached;         /* the prefix cache knows its content */
    bool is_deferred;    /* for the block manager: pinned until steps in flight are collected */
    bool is_awaited;     /* for the block manager: its content is on the way from a lower tier */
    bool is_expected;    /* for the block manager: awaited, the store may not know of it, and it was
                            not tried to read it */
    uint64_t last_step;  /* for the block manager: the last known step that may use it */
    int32_t previous, next; /* links of the free list it is in, -1 at the ends */
};

struct free_list {
    int32_t first, last; /* -1: none */
    int32_t count;
};

struct block_pool {
    int32_t num_blocks;
    int32_t num_used;         /* with an owner or a pin */
    int32_t num_tenants;      /* tenants with their own queue: 1 or more */
    struct block *blocks;     /* [num_blocks] */
    struct free_list bare;    /* free, not cached: a stack */
    struct free_list *cached; /* [num_tenants] free and cached: oldest first */
};

/* num_blocks >= 0, num_tenants >= 1. Returns -1 when memory is short. */
int block_pool_init(struct block_pool *pool, int32_t num_blocks, int32_t num_tenants);
size_t block_pool_bytes(int32_t num_blocks, int32_t num_tenants); /* what it allocates */
void block_pool_finish(struct block_pool *pool);                  /* accepts a zeroed pool */

/* Returns a block with one reference, or -1 when none is free. It may still be marked cached: the
 * caller then removes it from the cache and calls block_pool_clear_cached before anything else. */
int32_t block_pool_alloc(struct block_pool *pool);
/* Adds an owner; for a free cached block, the first one. */
void block_pool_ref(struct block_pool *pool, int32_t block);
/* Drops one owner; the last one frees the block. */
void block_pool_unref(struct block_pool *pool, int32_t block);

void block_pool_pin(struct block_pool *pool, int32_t block); /* with an owner or a pin */
void block_pool_unpin(struct block_pool *pool, int32_t block);

/* Marks a block that has an owner as cached; tenant >= 0. */
void block_pool_set_cached(struct block_pool *pool, int32_t block, int32_t tenant);
void block_pool_clear_cached(struct block_pool *pool, int32_t block);
/* Does that for all; free ones are then without content. Not O(1). */
void block_pool_clear_all_cached(struct block_pool *pool);

/* Returns the number of blocks that can be handed out, cached ones included. */
int32_t block_pool_num_free(const struct block_pool *pool);
/* Returns how many of these still have cached content. */
int32_t block_pool_num_cached(const struct block_pool *pool);

#endif
