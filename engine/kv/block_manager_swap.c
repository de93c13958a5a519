/* Tables are swapped in two passes: one that counts what the other side must have free, one that
 * cannot fail. moved_to says where a block of the old side has gone, so that what the tables share
 * stays shared; between calls all of it is -1.
 *
 * A block that is to be copied to in this step has no content yet: out goes the copy's source. */
#include "engine/kv/block_manager_private.h"

#include "config/base/check.h"

/* Marks an entry of a table that is swapped in, whose block was found in the cache: negative,
 * unlike the host's blocks. Its own inverse. */
static int32_t mark_found(int32_t block) {
    return -1 - block;
}

/* Returns where a block's content is before this step's copies. */
static int32_t content_block(const struct block_manager *manager, int32_t block) {
    int32_t source = move_list_source(&manager->copies, block);
    return source >= 0 ? source : block;
}

/* Returns the device's block that still has the content of a host block, or -1. */
static int32_t find_origin(const struct block_manager *manager, int32_t host) {
    const struct swap_origin *origin = &manager->origins[host];
    if (origin->serial == 0 ||
        prefix_cache_serial(&manager->cache, origin->block) != origin->serial)
        return -1;
    return origin->block;
}

/* Returns the block that is counted for a block of a table; -1: none. */
typedef int32_t counted_fn(const struct block_manager *manager, int32_t block);

static int32_t block_itself(const struct block_manager *manager, int32_t block) {
    return block;
}

/* A found block that has an owner already takes none of the free ones. */
static int32_t block_to_swap_in(const struct block_manager *manager, int32_t host) {
    int32_t found = find_origin(manager, host);
    if (found < 0)
        return host;
    const struct block *block = &manager->pool.blocks[found];
    return block->references > 0 || block->pins > 0 ? -1 : host;
}

/* Marks those of a table in moved_to, or removes the marks. Returns how many it changed. */
static int32_t mark_blocks(struct block_manager *manager, const struct block_table *table,
                           counted_fn *counted_for, bool marks) {
    int32_t count = 0;
    for (int32_t i = 0; i < table->num_blocks; i++)
        for (int32_t g = 0; g < block_manager_groups_at(manager, table, i); g++) {
            int32_t counted = counted_for(manager, *block_table_at(table, g, i));
            if (counted < 0 || (manager->moved_to[counted] >= 0) == marks)
                continue;
            manager->moved_to[counted] = marks ? counted : -1;
            count++;
        }
    return count;
}

static int32_t count_blocks(struct block_manager *manager, struct block_table *const *tables,
                            int32_t num_tables, counted_fn *counted_for) {
    int32_t count = 0;
    for (int32_t t = 0; t < num_tables; t++)
        count += mark_blocks(manager, tables[t], counted_for, true);
    for (int32_t t = 0; t < num_tables; t++)
        mark_blocks(manager, tables[t], counted_for, false);
    return count;
}

static void check_side(struct block_table *const *tables, int32_t num_tables, bool on_host) {
    for (int32_t t = 0; t < num_tables; t++)
        CHECK(tables[t]->on_host == on_host);
}

int32_t block_manager_count_distinct(struct block_manager *manager,
                                     struct block_table *const *tables, int32_t num_tables) {
    if (num_tables > 0)
        check_side(tables, num_tables, tables[0]->on_host);
    return count_blocks(manager, tables, num_tables, block_itself);
}

static void forget_places(struct block_manager *manager, const struct move_list *moves,
                          int32_t first) {
    for (int32_t i = first; i < moves->count; i++)
        manager->moved_to[moves->from[i]] = -1;
}

/* Takes a host block for the content. */
static int32_t swap_block_out(struct block_manager *manager, int32_t source) {
    int32_t host = block_manager_take_host(manager);
    move_list_add(&manager->swap_out, source, host);
    manager->moved_to[source] = host;
    manager->host.blocks[host].num_drafted = manager->pool.blocks[source].num_drafted;
    bool cached = manager->pool.blocks[source].cached;
    manager->origins[host] = (struct swap_origin){
        .block = source, .serial = cached ? prefix_cache_serial(&manager->cache, source) : 0};
    return host;
}

static void swap_entry_out(struct block_manager *manager, const struct block_table *table,
                           int32_t *block) {
    int32_t source = content_block(manager, *block);
    int32_t host = manager->moved_to[source];
    if (host >= 0)
        block_pool_ref(&manager->host, host);
    else
        host = swap_block_out(manager, source);
    block_manager_drop_device(manager, *block, table->last_step);
    *block = host;
}

/* Moves the last block first, as a release does. */
static void swap_table_out(struct block_manager *manager, struct block_table *table) {
    for (int32_t i = table->num_blocks - 1; i >= 0; i--)
        for (int32_t g = 0; g < block_manager_groups_at(manager, table, i); g++)
            swap_entry_out(manager, table, block_table_at(table, g, i));
    table->on_host = true;
}

/* Returns whether any of the table's content is not on the device before this step, but comes in
 * with it or later. */
static bool comes_in(const struct block_manager *manager, const struct block_table *table) {
    bool comes = table->num_awaited > 0;
    for (int32_t i = 0; i < table->num_blocks; i++)
        for (int32_t g = 0; g < block_manager_groups_at(manager, table, i); g++)
            comes |= move_list_source(&manager->swap_in,
                                      content_block(manager, *block_table_at(table, g, i))) >= 0;
    return comes;
}

bool block_manager_swap_out(struct block_manager *manager, struct block_table *const *tables,
                            int32_t num_tables) {
    check_side(tables, num_tables, false);
    for (int32_t t = 0; t < num_tables; t++)
        if (comes_in(manager, tables[t]))
            return false;
    if (count_blocks(manager, tables, num_tables, content_block) >
        block_pool_num_free(&manager->host))
        return false;
    int32_t first = manager->swap_out.count;
    for (int32_t t = 0; t < num_tables; t++)
        swap_table_out(manager, tables[t]);
    forget_places(manager, &manager->swap_out, first);
    return true;
}

/* Comes before any block is taken for another, since a found one may be free and the next in
 * turn. */
static void take_found(struct block_manager *manager, struct block_table *table) {
    for (int32_t i = 0; i < table->num_blocks; i++)
        for (int32_t g = 0; g < block_manager_groups_at(manager, table, i); g++) {
            int32_t *block = block_table_at(table, g, i), found = find_origin(manager, *block);
            if (found < 0)
                continue;
            block_pool_ref(&manager->pool, found);
            block_manager_drop_host(manager, *block);
            *block = mark_found(found);
        }
}

static int32_t swap_block_in(struct block_manager *manager, int32_t host) {
    int32_t block = block_manager_take(manager);
    CHECK(block >= 0);
    move_list_add(&manager->swap_in, host, block);
    block_pool_pin(&manager->host, host);
    manager->moved_to[host] = block;
    manager->pool.blocks[block].num_drafted = manager->host.blocks[host].num_drafted;
    return block;
}

/* The cache no longer knows a block that was swapped in. */
static void swap_entry_in(struct block_manager *manager, struct block_table *table, int32_t index,
                          int32_t *entry) {
    int32_t host = *entry;
    if (host < 0) {
        *entry = mark_found(host);
        return;
    }
    int32_t block = manager->moved_to[host];
    if (block >= 0)
        block_pool_ref(&manager->pool, block);
    else
        block = swap_block_in(manager, host);
    block_manager_drop_host(manager, host);
    *entry = block;
    block_table_cut_keys(table, index);
}

static void swap_table_in(struct block_manager *manager, struct block_table *table) {
    for (int32_t i = 0; i < table->num_blocks; i++)
        for (int32_t g = 0; g < block_manager_groups_at(manager, table, i); g++)
            swap_entry_in(manager, table, i, block_table_at(table, g, i));
    table->on_host = false;
}

bool block_manager_swap_in(struct block_manager *manager, struct block_table *const *tables,
                           int32_t num_tables) {
    check_side(tables, num_tables, true);
    if (count_blocks(manager, tables, num_tables, block_to_swap_in) >
        block_pool_num_free(&manager->pool))
        return false;
    int32_t first = manager->swap_in.count;
    for (int32_t t = 0; t < num_tables; t++)
        take_found(manager, tables[t]);
    for (int32_t t = 0; t < num_tables; t++)
        swap_table_in(manager, tables[t]);
    forget_places(manager, &manager->swap_in, first);
    return true;
}
