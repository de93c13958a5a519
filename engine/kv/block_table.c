#include "engine/kv/block_table.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

size_t block_table_bytes(int32_t max_blocks, int32_t num_groups) {
    return (size_t)num_groups * (size_t)max_blocks * sizeof(int32_t);
}

int block_table_init(struct block_table *table, int32_t max_blocks, int32_t num_groups,
                     int32_t tenant, const struct block_key *root) {
    CHECK(max_blocks >= 1 && num_groups >= 1 && tenant >= 0);
    int32_t *blocks = malloc(block_table_bytes(max_blocks, num_groups));
    if (blocks == NULL)
        return -1;
    *table = (struct block_table){.blocks = blocks,
                                  .num_groups = num_groups,
                                  .max_blocks = max_blocks,
                                  .tenant = tenant,
                                  .root = *root,
                                  .key = *root};
    return 0;
}

void block_table_pass(struct block_table *from, struct block_table *to) {
    CHECK(from->blocks != NULL && from->num_blocks == 0 && to->blocks == NULL);
    block_table_cut_keys(from, 0);
    *to = *from;
    memset(from, 0, sizeof(*from));
}

void block_table_finish(struct block_table *table) {
    CHECK(table->num_blocks == 0);
    free(table->blocks);
    memset(table, 0, sizeof(*table));
}

int32_t block_table_slot(const struct block_table *table, int32_t group, int32_t block_size,
                         int32_t position) {
    int32_t index = position / block_size;
    CHECK(position >= 0 && index < table->num_blocks && !table->on_host);
    int32_t block = *block_table_at(table, group, index);
    CHECK(block >= 0);
    return block * block_size + position % block_size;
}

void block_table_cut_keys(struct block_table *table, int32_t num_blocks) {
    if (table->num_keyed <= num_blocks)
        return;
    table->num_keyed = 0;
    table->keyed_ahead = false;
    table->key = table->root;
}
