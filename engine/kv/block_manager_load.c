/* How what tiers below the device have comes to the tables that await it: from the host with the
 * step that is being planned, from the store to the host before. */
#include "engine/kv/block_manager_private.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/numbers.h"

#define PATIENCE_NS (100 * CLOCK_NS_PER_MS) /* a thread may have to wait for a processor */

/* Returns whether a host block becomes free for a read by itself. */
static bool gets_host_block(const struct block_manager *manager) {
    const struct block_tiers *tiers = &manager->tiers;
    bool is_in_flight = manager->num_submitted > manager->num_collected;
    return tiers->num_filling + tiers->num_reads + tiers->num_writes > 0 ||
           (is_in_flight && block_pool_num_free(&manager->host) > 0);
}

enum arrival { IS_THERE, IS_COMING, HAS_TO_WAIT, IS_LOST };

/* Brings the content of an awaited block of the table, as far as that is possible now. */
static enum arrival bring(struct block_manager *manager, struct block_table *table, int32_t *block,
                          const struct block_content *content) {
    const struct kv_tier *store = manager->config.store;
    int32_t found = prefix_cache_find(&manager->cache, content);
    if (found >= 0) {
        block_pool_ref(&manager->pool, found);
        block_manager_drop_device(manager, *block, table->last_step);
        *block = found;
        return IS_THERE;
    }
    int32_t kept = prefix_cache_find(&manager->tiers.kept, content);
    if (kept >= 0 && manager->tiers.states[kept] == KEPT_READING)
        return IS_COMING;
    if (kept >= 0) {
        block_manager_promote(manager, table, kept, *block);
        return IS_THERE;
    }
    struct block *awaited = &manager->pool.blocks[*block];
    if (awaited->is_expected)
        store->expect(store->context, content);
    if (block_manager_begin_read(manager, content)) {
        awaited->is_expected = false; /* if it is not there, once is enough */
        return IS_COMING;
    }
    bool may_come = store->has(store->context, content) && gets_host_block(manager);
    return may_come ? HAS_TO_WAIT : IS_LOST;
}

/* Returns how it is with the worst of a place's blocks. */
static enum arrival bring_place(struct block_manager *manager, struct block_table *table,
                                int32_t place, struct block_content *content) {
    enum arrival worst = IS_THERE;
    int32_t num_groups = block_manager_groups_at(manager, table, place);
    for (content->group = 0; content->group < num_groups; content->group++) {
        int32_t *block = block_table_at(table, content->group, place);
        if (!manager->pool.blocks[*block].is_awaited)
            continue;
        enum arrival arrival = bring(manager, table, block, content);
        worst = arrival > worst ? arrival : worst;
    }
    return worst;
}

/* What a group with the window has dropped is not there for a shorter prefix. */
static enum block_load stop_loading(struct block_manager *manager, struct block_table *table) {
    int32_t num_blocks = table->num_dropped == 0 ? table->num_keyed : 0;
    table->num_expected = 0;
    if (num_blocks == 0) {
        block_manager_release(manager, table);
        return BLOCKS_LOST;
    }
    table->num_awaited = 0;
    block_manager_trim(manager, table, num_blocks * manager->config.limits->block_size);
    return BLOCKS_LOST;
}

enum block_load block_manager_load(struct block_manager *manager, struct block_table *table,
                                   const struct token_view *view, bool gives_up) {
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
    struct key_cursor cursor = {table->num_keyed, table->key};
    enum arrival worst = IS_THERE;
    CHECK(table->num_awaited > 0 && !table->on_host);
    while (cursor.index < table->num_awaited && worst < HAS_TO_WAIT) {
        int32_t place = cursor.index;
        struct block_content content =
            block_manager_next_content(manager, table, &cursor, view, tokens);
        enum arrival arrival = bring_place(manager, table, place, &content);
        worst = arrival > worst ? arrival : worst;
        if (worst == IS_THERE) {
            table->num_keyed = cursor.index;
            table->key = cursor.key;
        }
    }
    if (worst == IS_LOST || (gives_up && worst != IS_THERE))
        return stop_loading(manager, table);
    if (worst != IS_THERE)
        return BLOCKS_COMING;
    table->num_awaited = 0;
    return BLOCKS_THERE;
}

/* Returns whether all blocks of the next place that every prefix needs are above the store, or on
 * their way. */
static bool read_place(struct block_manager *manager, const struct block_table *table,
                       struct block_content *content, struct read_ahead *ahead) {
    const struct kv_tier *store = manager->config.store;
    int32_t num_groups = max_int32(manager->config.limits->num_full_groups, 1);
    for (content->group = 0; content->group < num_groups; content->group++) {
        if (prefix_cache_find(&manager->cache, content) >= 0 ||
            prefix_cache_find(&manager->tiers.kept, content) >= 0)
            continue;
        if (ahead->num_blocks < table->num_expected)
            store->expect(store->context, content);
        bool is_full = ahead->num_reads >= manager->host.num_blocks / 2;
        ahead->is_done = is_full || !store->has(store->context, content);
        if (ahead->is_done || !block_manager_begin_read(manager, content))
            return false;
        ahead->num_reads++;
    }
    return true;
}

void block_manager_read_ahead(struct block_manager *manager, const struct block_table *table,
                              const struct token_view *view, int32_t limit,
                              struct read_ahead *ahead) {
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
    int32_t most = min_int32(limit / manager->config.limits->block_size, table->max_blocks);
    struct key_cursor cursor = {ahead->num_blocks,
                                ahead->num_blocks > 0 ? ahead->key : table->root};
    CHECK(table->num_blocks == 0);
    if (manager->tiers.states == NULL || manager->config.store == NULL)
        ahead->is_done = true;
    while (!ahead->is_done && cursor.index < most) {
        struct block_content content =
            block_manager_next_content(manager, table, &cursor, view, tokens);
        if (!read_place(manager, table, &content, ahead))
            return;
        ahead->num_blocks = cursor.index;
        ahead->key = cursor.key;
    }
    ahead->is_done = true;
}

int64_t block_manager_reads_ns(const struct block_manager *manager, int32_t num_reads) {
    const struct kv_tier *store = manager->config.store;
    int64_t late_ns = max_int64(store->reading_ns(store->context) - PATIENCE_NS, 0);
    return late_ns + num_reads * manager->tiers.read_block_ns;
}

void block_manager_note_unread(struct block_manager *manager) {
    manager->tiers.read_block_ns -= manager->tiers.read_block_ns / READ_WEIGHT;
}

int32_t block_manager_num_awaited(const struct block_manager *manager,
                                  const struct block_table *table) {
    int32_t count = 0;
    for (int32_t place = table->num_keyed; place < table->num_awaited; place++)
        for (int32_t g = 0; g < block_manager_groups_at(manager, table, place); g++)
            count += manager->pool.blocks[*block_table_at(table, g, place)].is_awaited;
    return count;
}
