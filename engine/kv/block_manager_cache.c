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

/* Describes the table's first block without a key; `tokens` has room for its tokens. */
static struct block_content next_content(const struct block_manager *manager,
                                         const struct block_table *table,
                                         const struct token_view *view, int32_t *tokens) {
    int32_t block_size = manager->config.limits->block_size;
    token_view_copy(view, table->num_keyed * block_size, block_size, tokens);
    return (struct block_content){
        .key = block_key_next(&manager->config.secret, &table->key, tokens, block_size),
        .previous = table->key,
        .tenant = table->tenant,
        .is_first = table->num_keyed == 0,
        .is_private = manager->config.num_tenants > 1 ||
                      !block_key_equal(&table->root, &manager->public_root),
        .adapter = table->adapter,
        .tokens = tokens};
}

static void add_key(struct block_table *table, const struct block_key *key) {
    table->num_keyed++;
    table->key = *key;
}

static void add_missing_keys(const struct block_manager *manager, struct block_table *table,
                             const struct token_view *view, int32_t num_blocks) {
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
    while (table->num_keyed < num_blocks) {
        struct block_content content = next_content(manager, table, view, tokens);
        add_key(table, &content.key);
        table->keyed_ahead = true;
    }
}

/* Returns the first of a group's blocks that a token after num_blocks full ones sees, if it has the
 * window. */
static int32_t first_seen(const struct block_manager *manager, int32_t num_blocks) {
    const struct serving_limits *limits = manager->config.limits;
    int32_t num_unseen = num_blocks * limits->block_size - limits->window + 1;
    return limits->window > 0 ? max_int32(num_unseen, 0) / limits->block_size : 0;
}

/* Enters the cached blocks with that content after the table's own, without an owner. Returns false
 * when one is missing that every prefix needs. */
static bool find_blocks(const struct block_manager *manager, struct block_table *table,
                        int32_t index, struct block_content *content, bool *out_complete) {
    int32_t num_needed = max_int32(manager->config.limits->num_full_groups, 1);
    *out_complete = true;
    for (content->group = 0; content->group < table->num_groups; content->group++) {
        int32_t found = prefix_cache_find(&manager->cache, content);
        if (found < 0 && content->group < num_needed)
            return false;
        *block_table_at(table, content->group, index) = found;
        *out_complete &= found >= 0;
    }
    return true;
}

/* The table gets the blocks that were found, up to num_blocks. */
static void take_found(struct block_manager *manager, struct block_table *table,
                       int32_t num_blocks) {
    int32_t num_full = manager->config.limits->num_full_groups, first = table->num_blocks;
    int32_t num_unseen = num_full > 0 ? first_seen(manager, num_blocks) : 0;
    block_manager_drop_before(manager, table, num_unseen * manager->config.limits->block_size);
    for (int32_t i = first; i < num_blocks; i++)
        for (int32_t group = 0; group < table->num_groups; group++) {
            int32_t *block = block_table_at(table, group, i);
            if (group >= num_full && i < num_unseen)
                *block = -1;
            else
                block_pool_ref(&manager->pool, *block);
        }
    table->num_blocks = num_blocks;
    table->num_dropped = max_int32(table->num_dropped, num_unseen);
}

int32_t block_manager_match(struct block_manager *manager, struct block_table *table,
                            const struct token_view *view, int32_t limit) {
    if (!manager->config.caching)
        return 0;
    CHECK(!table->on_host && limit >= 0);
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
    int32_t block_size = manager->config.limits->block_size, num_before = table->num_blocks;
    int32_t most = min_int32(limit / block_size, table->max_blocks);
    if (num_before < most)
        add_missing_keys(manager, table, view, num_before);
    int32_t found = num_before, num_complete = num_before - table->num_dropped;
    struct block_key key = table->key;
    for (int32_t i = num_before; i < most; i++) {
        bool is_complete;
        struct block_content content = next_content(manager, table, view, tokens);
        if (!find_blocks(manager, table, i, &content, &is_complete))
            break;
        add_key(table, &content.key);
        num_complete = is_complete ? num_complete + 1 : 0;
        if (i + 1 - first_seen(manager, i + 1) > num_complete)
            continue;
        found = i + 1;
        key = content.key;
    }
    if (found == num_before && table->num_keyed <= num_before)
        return 0;
    table->num_keyed = found;
    table->key = key;
    take_found(manager, table, found);
    return (found - num_before) * block_size;
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
    while (table->num_keyed < num_full) {
        struct block_content content = next_content(manager, table, view, tokens);
        int32_t index = table->num_keyed,
                num_groups = block_manager_groups_at(manager, table, index);
        for (; content.group < num_groups; content.group++)
            publish_block(manager, table, block_table_at(table, content.group, index), &content);
        add_key(table, &content.key);
    }
}
