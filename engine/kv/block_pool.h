/* All KV blocks of the server by id: who is free, and how many owners each one has. The memory
 * itself is the ranks' affair; ids mean the same on every rank.
 *
 * Owned by the scheduler; engine thread only. Every operation is O(1). */
#ifndef QUIRE_ENGINE_KV_BLOCK_POOL_H
#define QUIRE_ENGINE_KV_BLOCK_POOL_H

#include <stdint.h>

struct block {
    int32_t references; /* tables that hold it; 0: free */
    int32_t next_free;  /* link of the free list, -1 at its end */
};

struct block_pool {
    int32_t num_blocks;
    int32_t num_used;
    int32_t first_free;   /* -1: none */
    struct block *blocks; /* [num_blocks] */
};

/* num_blocks >= 1. Returns -1 when memory is short. */
int block_pool_init(struct block_pool *pool, int32_t num_blocks);
void block_pool_finish(struct block_pool *pool); /* accepts a zeroed pool */

/* A block with one reference, or -1 when none is free. */
int32_t block_pool_alloc(struct block_pool *pool);
/* Another owner of a block in use. */
void block_pool_ref(struct block_pool *pool, int32_t block);
/* Drops one owner; the last one frees the block. */
void block_pool_unref(struct block_pool *pool, int32_t block);

int32_t block_pool_num_free(const struct block_pool *pool);

#endif
