/* What prefix caching adds to the block manager: blocks are found again by content. A table's chain
 * of keys is continued when a block boundary is crossed; only then is anything hashed.
 *
 * A key is that of all groups' blocks of the same tokens, which are cached and evicted one by one.
 * A prefix is found if the cache has all its blocks of the groups that see everything, and of the
 * others those that the next token sees. Of one group alone all are asked for, as if it saw them:
 * a search ends with the first that is missing. */
#include "engine/kv/block_manager_private.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <string.h>

struct block_content block_manager_next_content(const struct block_manager *manager,
                                                const struct block_table *table,
                                                struct key_cursor *cursor,
                                                const struct token_view *view, int32_t *tokens) {
    int32_t block_size = manager->config.limits->block_size;
    token_view_copy(view, cursor->index * block_size, block_size, tokens);
    struct block_content content = {
        .key = block_key_next(&manager->config.secret, &cursor->key, tokens, block_size),
        .previous = cursor->key,
        .tenant = table->tenant,
        .is_first = cursor->index == 0,
        .is_private = block_manager_is_private(manager, table),
        .adapter = table->adapter,
        .tokens = tokens};
    cursor->index++;
    cursor->key = content.key;
    return content;
}

static struct key_cursor cursor_of(const struct block_table *table) {
    return (struct key_cursor){table->num_keyed, table->key};
}

static void set_keyed(struct block_table *table, const struct key_cursor *cursor) {
    table->num_keyed = cursor->index;
    table->key = cursor->key;
}

static void add_missing_keys(const struct block_manager *manager, struct block_table *table,
                             const struct token_view *view, int32_t num_blocks) {
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
    struct key_cursor cursor = cursor_of(table);
    if (cursor.index >= num_blocks)
        return;
    while (cursor.index < num_blocks)
        block_manager_next_content(manager, table, &cursor, view, tokens);
    set_keyed(table, &cursor);
    table->keyed_ahead = true;
}

/* Returns the first of a group's blocks that a token after num_blocks full ones sees, if it has the
 * window. */
static int32_t first_seen(const struct block_manager *manager, int32_t num_blocks) {
    const struct serving_limits *limits = manager->config.limits;
    int32_t num_unseen = num_blocks * limits->block_size - limits->window + 1;
    return limits->window > 0 ? max_int32(num_unseen, 0) / limits->block_size : 0;
}

/* The tiers in which a prefix is looked for: one, and those before it. */
enum lowest_tier { TIER_DEVICE, TIER_HOST, TIER_STORE };

/* An entry of a table for a block that the host, or only the store, has. Its own inverse. */
static int32_t mark_host(int32_t host) {
    return -2 - host;
}

#define IN_STORE INT32_MIN

struct prefix_search {
    enum lowest_tier lowest;
    struct key_cursor end; /* of the prefix that was found */
    int32_t num_reads;     /* blocks that only the store has */
};

/* Returns the entry for a block with that content; -1: no tier that is searched has it, and it is
 * not expected to be in the store. */
static int32_t find_block(const struct block_manager *manager, enum lowest_tier lowest,
                          const struct block_content *content, bool is_expected) {
    int32_t found = prefix_cache_find(&manager->cache, content);
    if (found >= 0 || lowest == TIER_DEVICE)
        return found;
    int32_t host = block_manager_find_kept(manager, content);
    if (host >= 0)
        return mark_host(host);
    const struct kv_tier *store = manager->config.store;
    bool is_stored = lowest == TIER_STORE && (is_expected || store->has(store->context, content));
    return is_stored ? IN_STORE : -1;
}

/* Enters what has that content after the table's own blocks, without an owner. Returns false when
 * one is missing that every prefix needs. */
static bool find_blocks(const struct block_manager *manager, struct block_table *table,
                        int32_t index, enum lowest_tier lowest, struct block_content *content,
                        bool *out_complete) {
    int32_t num_needed = max_int32(manager->config.limits->num_full_groups, 1);
    *out_complete = true;
    for (content->group = 0; content->group < table->num_groups; content->group++) {
        int32_t found = find_block(manager, lowest, content, index < table->num_expected);
        if (found == -1 && content->group < num_needed)
            return false;
        *block_table_at(table, content->group, index) = found;
        *out_complete &= found != -1;
    }
    return true;
}

static bool is_unused(const struct block_pool *pool, int32_t id) {
    return pool->blocks[id].references == 0 && pool->blocks[id].pins == 0;
}

/* Counts what is to be read of the prefix that was found, and returns whether there are enough free
 * blocks for what is not on the device. */
static bool has_room(const struct block_manager *manager, const struct block_table *table,
                     struct prefix_search *search) {
    int32_t num_full = manager->config.limits->num_full_groups;
    int32_t unseen = first_seen(manager, search->end.index), num_taken = 0, num_new = 0;
    search->num_reads = 0;
    for (int32_t i = table->num_blocks; i < search->end.index; i++)
        for (int32_t g = 0; g < (i < unseen ? num_full : table->num_groups); g++) {
            int32_t entry = *block_table_at(table, g, i);
            num_taken += entry >= 0 && is_unused(&manager->pool, entry);
            num_new += entry < 0;
            search->num_reads += entry == IN_STORE;
        }
    return num_new == 0 || num_taken + num_new <= block_pool_num_free(&manager->pool);
}

/* Finds the longest prefix, and enters its blocks after the table's own. Returns whether there is
 * any, and room for it. */
static bool search_prefix(const struct block_manager *manager, struct block_table *table,
                          const struct token_view *view, int32_t limit,
                          struct prefix_search *search) {
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
    int32_t num_before = table->num_blocks;
    int32_t most = min_int32(limit / manager->config.limits->block_size, table->max_blocks);
    int32_t num_complete = num_before - table->num_dropped;
    struct key_cursor cursor = cursor_of(table);
    search->end = cursor;
    while (cursor.index < most) {
        bool is_complete;
        int32_t index = cursor.index;
        struct block_content content =
            block_manager_next_content(manager, table, &cursor, view, tokens);
        if (!find_blocks(manager, table, index, search->lowest, &content, &is_complete))
            break;
        num_complete = is_complete ? num_complete + 1 : 0;
        if (index + 1 - first_seen(manager, index + 1) <= num_complete)
            search->end = cursor;
    }
    return search->end.index > num_before && has_room(manager, table, search);
}

/* Gives the table an owner's share of each block that was found, and drops those it no longer
 * sees: before any block is taken, since a found one may be free and the next in turn. */
static void hold_found(struct block_manager *manager, struct block_table *table, int32_t num_blocks,
                       int32_t unseen) {
    int32_t num_full = manager->config.limits->num_full_groups;
    block_manager_drop_before(manager, table, unseen * manager->config.limits->block_size);
    for (int32_t i = table->num_blocks; i < num_blocks; i++)
        for (int32_t group = 0; group < table->num_groups; group++) {
            int32_t *block = block_table_at(table, group, i);
            if (group >= num_full && i < unseen)
                *block = -1;
            else if (*block >= 0)
                block_pool_ref(&manager->pool, *block);
            else if (*block != IN_STORE)
                block_pool_ref(&manager->host, mark_host(*block));
        }
}

/* Takes device blocks for what was found elsewhere. */
static void take_blocks(struct block_manager *manager, struct block_table *table,
                        int32_t num_blocks) {
    for (int32_t i = table->num_blocks; i < num_blocks; i++)
        for (int32_t group = 0; group < table->num_groups; group++) {
            int32_t *block = block_table_at(table, group, i), entry = *block;
            if (entry >= -1)
                continue;
            *block = block_manager_take(manager);
            CHECK(*block >= 0);
            if (entry == IN_STORE) {
                manager->pool.blocks[*block].is_awaited = true;
                manager->pool.blocks[*block].is_expected = i < table->num_expected;
            } else {
                block_manager_promote(manager, table, mark_host(entry), *block);
                block_pool_unref(&manager->host, mark_host(entry));
            }
        }
}

/* The table gets the blocks that were found. */
static void take_found(struct block_manager *manager, struct block_table *table,
                       const struct prefix_search *search) {
    int32_t num_blocks = search->end.index, unseen = first_seen(manager, num_blocks);
    hold_found(manager, table, num_blocks, unseen);
    take_blocks(manager, table, num_blocks);
    table->num_blocks = num_blocks;
    table->num_dropped = max_int32(table->num_dropped, unseen);
}

int32_t block_manager_match(struct block_manager *manager, struct block_table *table,
                            const struct token_view *view, int32_t limit) {
    struct prefix_search search = {.lowest = TIER_HOST};
    if (!manager->config.caching)
        return 0;
    CHECK(!table->on_host && table->num_awaited == 0 && limit >= 0);
    int32_t block_size = manager->config.limits->block_size, num_before = table->num_blocks;
    if (num_before < min_int32(limit / block_size, table->max_blocks))
        add_missing_keys(manager, table, view, num_before);
    if (table->num_keyed != num_before)
        return 0;
    if (!search_prefix(manager, table, view, limit, &search)) {
        search.lowest = TIER_DEVICE;
        if (!search_prefix(manager, table, view, limit, &search))
            return 0;
    }
    set_keyed(table, &search.end);
    take_found(manager, table, &search);
    return (search.end.index - num_before) * block_size;
}

int32_t block_manager_find_stored(struct block_manager *manager, struct block_table *table,
                                  const struct token_view *view, int32_t limit,
                                  int32_t *out_num_reads) {
    struct prefix_search search = {.lowest = TIER_STORE};
    *out_num_reads = 0;
    if (manager->tiers.states == NULL || manager->config.store == NULL ||
        table->num_keyed != table->num_blocks ||
        !search_prefix(manager, table, view, limit, &search) || search.num_reads == 0)
        return 0;
    *out_num_reads = search.num_reads;
    return (search.end.index - table->num_blocks) * manager->config.limits->block_size;
}

void block_manager_await(struct block_manager *manager, struct block_table *table,
                         const struct token_view *view, int32_t limit) {
    struct prefix_search search = {.lowest = TIER_STORE};
    CHECK(search_prefix(manager, table, view, limit, &search) && search.num_reads > 0);
    take_found(manager, table, &search);
    table->num_awaited = table->num_blocks;
}

bool block_manager_same_next(const struct block_manager *manager, struct block_table *a,
                             const struct token_view *a_view, struct block_table *b,
                             const struct token_view *b_view, int32_t num_blocks) {
    int32_t a_tokens[BLOCK_KEY_MAX_TOKENS], b_tokens[BLOCK_KEY_MAX_TOKENS];
    int32_t block_size = manager->config.limits->block_size;
    CHECK(num_blocks <= a->num_blocks && num_blocks <= b->num_blocks);
    if (!manager->config.caching || a->tenant != b->tenant || !block_key_equal(&a->root, &b->root))
        return false;
    token_view_copy(a_view, num_blocks * block_size, block_size, a_tokens);
    token_view_copy(b_view, num_blocks * block_size, block_size, b_tokens);
    if (memcmp(a_tokens, b_tokens, (size_t)block_size * sizeof(*a_tokens)) != 0)
        return false;
    add_missing_keys(manager, a, a_view, num_blocks);
    add_missing_keys(manager, b, b_view, num_blocks);
    CHECK(a->num_keyed == num_blocks && b->num_keyed == num_blocks);
    return block_key_equal(&a->key, &b->key);
}

static void publish_block(struct block_manager *manager, const struct block_table *table,
                          int32_t *block, const struct block_content *content) {
    int32_t known = prefix_cache_find(&manager->cache, content);
    if (known == *block)
        return;
    if (known >= 0) {
        block_pool_ref(&manager->pool, known);
        block_manager_drop_device(manager, *block, table->last_step);
        *block = known;
    } else if (prefix_cache_insert(&manager->cache, *block, content)) {
        block_pool_set_cached(&manager->pool, *block, table->tenant);
        block_manager_note_cached(manager, *block);
    }
}

void block_manager_publish(struct block_manager *manager, struct block_table *table,
                           const struct token_view *view, int32_t num_computed) {
    int32_t num_full = num_computed / manager->config.limits->block_size;
    if (table->keyed_ahead)
        block_table_cut_keys(table, 0);
    if (!manager->config.caching || num_full <= table->num_keyed)
        return;
    CHECK(!table->on_host && num_full <= table->num_blocks);
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
    struct key_cursor cursor = cursor_of(table);
    while (cursor.index < num_full) {
        int32_t index = cursor.index, num_groups = block_manager_groups_at(manager, table, index);
        struct block_content content =
            block_manager_next_content(manager, table, &cursor, view, tokens);
        for (; content.group < num_groups; content.group++)
            publish_block(manager, table, block_table_at(table, content.group, index), &content);
    }
    set_keyed(table, &cursor);
}
