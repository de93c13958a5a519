#include "engine/kv/block_table.h"

#include "config/check.h"

#include <stdlib.h>
#include <string.h>

int32_t block_table_blocks_for(int32_t num_tokens, int32_t block_size) {
    return num_tokens / block_size + (num_tokens % block_size != 0);
}

int block_table_init(struct block_table *table, int32_t max_blocks) {
    CHECK(max_blocks >= 1);
    int32_t *blocks = malloc((size_t)max_blocks * sizeof(*blocks));
    if (blocks == NULL)
        return -1;
    *table = (struct block_table){.blocks = blocks, .max_blocks = max_blocks};
    return 0;
}

void block_table_finish(struct block_table *table) {
    CHECK(table->num_blocks == 0);
    free(table->blocks);
    memset(table, 0, sizeof(*table));
}

bool block_table_grow(struct block_table *table, struct block_pool *pool) {
    CHECK(table->num_blocks < table->max_blocks);
    int32_t block = block_pool_alloc(pool);
    if (block < 0)
        return false;
    table->blocks[table->num_blocks++] = block;
    return true;
}

/* Last block first, so that the first ones are the next to be reused. */
void block_table_release(struct block_table *table, struct block_pool *pool) {
    while (table->num_blocks > 0)
        block_pool_unref(pool, table->blocks[--table->num_blocks]);
}

int32_t block_table_slot(const struct block_table *table, int32_t block_size, int32_t position) {
    int32_t index = position / block_size;
    CHECK(position >= 0 && index < table->num_blocks);
    return table->blocks[index] * block_size + position % block_size;
}
