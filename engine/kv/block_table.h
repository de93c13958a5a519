/* The block table of one sequence: the blocks it holds, in order of position, which map a token's
 * position to its slot in the KV cache. It has a row of blocks for each group of layers
 * (serving_limits.h), with one block of each for the same block_size tokens; counts of blocks here
 * are those of a row. They are appended one at a time as tokens need them, so only the last one can
 * be partly filled. The block manager operates on it (block_manager.h).
 * Engine thread only. */
#ifndef QUIRE_ENGINE_KV_BLOCK_TABLE_H
#define QUIRE_ENGINE_KV_BLOCK_TABLE_H

#include "engine/kv/block_key.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block_table {
    int32_t *blocks; /* [num_groups][max_blocks], the first num_blocks are held; -1: dropped */
    int32_t num_groups;
    int32_t num_blocks;
    int32_t max_blocks;
    int32_t num_dropped;  /* leading blocks before the window, of the groups that have it */
    int32_t num_awaited;  /* not 0: equals num_blocks, and the content of some is on its way from a
                             lower tier (block_manager_await); those before num_keyed are there */
    int32_t num_expected; /* leading blocks that another server says it has stored: they are read
                             even if the store does not know them. Set by the owner of the table; 0
                             once some were not there */
    bool on_host;         /* the ids are those of the host pool */
    uint64_t last_step;   /* the last submitted step that uses it, see block_manager_submit */

    /* The chain of its full blocks' keys, as far as computed. */
    int32_t tenant;
    struct block_key root;
    struct block_adapter adapter; /* of the root, for events; set after block_table_init */
    int32_t num_keyed;
    bool keyed_ahead;     /* also for blocks that were not published yet */
    struct block_key key; /* of block num_keyed - 1; the root while that is 0 */
};

/* Returns -1 when memory is short. */
int block_table_init(struct block_table *table, int32_t max_blocks, int32_t num_groups,
                     int32_t tenant, const struct block_key *root);
size_t block_table_bytes(int32_t max_blocks, int32_t num_groups); /* what it allocates */
/* Moves the memory of an empty table to a table of the same request that has none; zeroes
 * `from`. */
void block_table_pass(struct block_table *from, struct block_table *to);
/* The blocks must have been released. Accepts a zeroed table. */
void block_table_finish(struct block_table *table);

/* Returns where block `index` of a group is. */
static inline int32_t *block_table_at(const struct block_table *table, int32_t group,
                                      int32_t index) {
    return &table->blocks[(size_t)group * (size_t)table->max_blocks + (size_t)index];
}

/* Returns the slot of the token at that position in a group, which the table must hold: block id *
 * block_size + offset in the block. */
int32_t block_table_slot(const struct block_table *table, int32_t group, int32_t block_size,
                         int32_t position);

/* Forgets the keys of blocks from num_blocks on. If there are any, the chain starts again at the
 * root. */
void block_table_cut_keys(struct block_table *table, int32_t num_blocks);

#endif
