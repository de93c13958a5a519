/* One sequence's map from token position to slot: the blocks it holds, in order of position. Blocks
 * are appended one at a time as tokens need them, so only the last one can be partly filled.
 * Engine thread only. */
#ifndef QUIRE_ENGINE_KV_BLOCK_TABLE_H
#define QUIRE_ENGINE_KV_BLOCK_TABLE_H

#include "engine/kv/block_pool.h"

#include <stdbool.h>
#include <stdint.h>

struct block_table {
    int32_t *blocks; /* [max_blocks], the first num_blocks are held */
    int32_t num_blocks;
    int32_t max_blocks;
};

/* Blocks that hold num_tokens tokens. */
int32_t block_table_blocks_for(int32_t num_tokens, int32_t block_size);

/* Returns -1 when memory is short. */
int block_table_init(struct block_table *table, int32_t max_blocks);
/* The blocks must have been released. Accepts a zeroed table. */
void block_table_finish(struct block_table *table);

/* Takes one more block; false when the pool has none left. */
bool block_table_grow(struct block_table *table, struct block_pool *pool);
/* Gives every block back. */
void block_table_release(struct block_table *table, struct block_pool *pool);

/* block id * block_size + offset of the token at that position, which the table must cover. */
int32_t block_table_slot(const struct block_table *table, int32_t block_size, int32_t position);

#endif
