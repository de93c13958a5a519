/* The free list is a stack: the block freed last is handed out first, and blocks that were never
 * used come last, lowest id first. A lightly loaded server thus writes to the same few blocks again
 * and again, and the rest of the pool stays untouched zero pages. */
#include "engine/kv/block_pool.h"

#include "config/check.h"

#include <stdlib.h>
#include <string.h>

int block_pool_init(struct block_pool *pool, int32_t num_blocks) {
    CHECK(num_blocks >= 1);
    struct block *blocks = calloc((size_t)num_blocks, sizeof(*blocks));
    if (blocks == NULL)
        return -1;
    for (int32_t i = 0; i < num_blocks; i++)
        blocks[i].next_free = i + 1 < num_blocks ? i + 1 : -1;
    *pool = (struct block_pool){.num_blocks = num_blocks, .blocks = blocks};
    return 0;
}

void block_pool_finish(struct block_pool *pool) {
    free(pool->blocks);
    memset(pool, 0, sizeof(*pool));
}

int32_t block_pool_alloc(struct block_pool *pool) {
    int32_t id = pool->first_free;
    if (id < 0)
        return -1;
    struct block *block = &pool->blocks[id];
    CHECK(block->references == 0);
    pool->first_free = block->next_free;
    block->next_free = -1;
    block->references = 1;
    pool->num_used++;
    return id;
}

static struct block *used_block(struct block_pool *pool, int32_t id) {
    CHECK(id >= 0 && id < pool->num_blocks && pool->blocks[id].references > 0);
    return &pool->blocks[id];
}

void block_pool_ref(struct block_pool *pool, int32_t id) {
    struct block *block = used_block(pool, id);
    CHECK(block->references < INT32_MAX);
    block->references++;
}

void block_pool_unref(struct block_pool *pool, int32_t id) {
    struct block *block = used_block(pool, id);
    if (--block->references > 0)
        return;
    block->next_free = pool->first_free;
    pool->first_free = id;
    pool->num_used--;
}

int32_t block_pool_num_free(const struct block_pool *pool) {
    return pool->num_blocks - pool->num_used;
}
