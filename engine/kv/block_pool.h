/* Keeps all KV blocks of one memory (the device's, or the host's for swapping) by id: which are
 * free, and how many owners each one has. The memory itself is the ranks' affair; ids mean the same
 * on every rank.
 *
 * A block without owners is free. Its content may still be wanted: a block marked `cached` keeps it
 * while it is free, and is handed out again only when no other block is left, the one that was
 * freed longest ago first. With several queues, of which a tenant has the one of its number modulo
 * theirs, the next to be handed out is the oldest free block of the longest queue: who floods the
 * cache loses blocks of his own.
 *
 * A pinned block is not handed out even when it has no owner: it is the source of a copy that the
 * step being planned has to make, or in use by a step in flight.
 *
 * Owned by the block manager; engine thread only. Every operation is O(1), but for alloc from a
 * cache of several queues, which is O(queues). */
#ifndef QUIRE_ENGINE_KV_BLOCK_POOL_H
#define QUIRE_ENGINE_KV_BLOCK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block {
    int32_t references; /* tables that hold it */
    int32_t pins;
    int32_t queue;          /* of a cached one */
    bool cached;            /* the prefix cache knows its content */
    bool is_deferred;       /* the block manager's: pinned until steps in flight are collected */
    uint64_t last_step;     /* likewise: the last step that may use it, as far as it is known */
    int32_t previous, next; /* links of the free list it is in, -1 at the ends */
};

struct free_list {
    int32_t first, last; /* -1: none */
    int32_t count;
};

struct block_pool {
    int32_t num_blocks;
    int32_t num_used;         /* with an owner or a pin */
    int32_t num_tenants;      /* with a queue of their own: 1 or more */
    struct block *blocks;     /* [num_blocks] */
    struct free_list bare;    /* free, not cached: a stack */
    struct free_list *cached; /* [num_tenants] free and cached: oldest first */
};

/* num_blocks >= 0, num_tenants >= 1. Returns -1 when memory is short. */
int block_pool_init(struct block_pool *pool, int32_t num_blocks, int32_t num_tenants);
size_t block_pool_bytes(int32_t num_blocks, int32_t num_tenants); /* what it allocates */
void block_pool_finish(struct block_pool *pool);                  /* accepts a zeroed pool */

/* Returns a block with one reference, or -1 when none is free. It may still be marked cached: the
 * caller then makes the cache forget it and calls block_pool_clear_cached before anything else. */
int32_t block_pool_alloc(struct block_pool *pool);
/* Adds an owner; to a free cached block the first one. */
void block_pool_ref(struct block_pool *pool, int32_t block);
/* Drops one owner; the last one frees the block. */
void block_pool_unref(struct block_pool *pool, int32_t block);

void block_pool_pin(struct block_pool *pool, int32_t block); /* with an owner or a pin */
void block_pool_unpin(struct block_pool *pool, int32_t block);

/* Marks a block with an owner; tenant >= 0. */
void block_pool_set_cached(struct block_pool *pool, int32_t block, int32_t tenant);
void block_pool_clear_cached(struct block_pool *pool, int32_t block);

/* Returns how many blocks could be handed out, cached ones included. */
int32_t block_pool_num_free(const struct block_pool *pool);
/* Returns how many of them still have known content. */
int32_t block_pool_num_cached(const struct block_pool *pool);

#endif
