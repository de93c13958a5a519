/* A move of the step being planned pins its source, so that nobody writes to it before the move is
 * made: a copy a block of the device, a swap in a block of the host. A swap-out needs no pin,
 * because it is made before anything else. Once submitted, steps run in order, so that a source is
 * written to only later.
 *
 *     swap_out  device --> host             frees the device's block at once
 *     swap_in              host --> device  pins the host's block
 *     copies    device --> device           pins the source
 *
 * A block that becomes free before that takes its move back, which may free the move's
 * source in turn: were it handed out again, it would be a destination twice.
 *
 * A table's chain of keys is continued when a block boundary is crossed; only then is anything
 * hashed. */
#include "engine/kv/block_manager.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/kv/block_manager_private.h"

#include <stdlib.h>
#include <string.h>

static int32_t larger_pool(const struct serving_limits *limits) {
    return limits->num_host_blocks > limits->num_blocks ? limits->num_host_blocks
                                                        : limits->num_blocks;
}

size_t block_manager_bytes(const struct block_manager_config *config) {
    const struct serving_limits *limits = config->limits;
    size_t cache = config->caching ? prefix_cache_bytes(limits->num_blocks, limits->block_size) : 0;
    return block_pool_bytes(limits->num_blocks, config->num_tenants) +
           block_pool_bytes(limits->num_host_blocks, 1) + move_list_bytes(limits->num_host_blocks) +
           2 * move_list_bytes(limits->num_blocks) + cache +
           ((size_t)limits->num_host_blocks + 1) * sizeof(struct swap_origin) +
           (size_t)larger_pool(limits) * sizeof(int32_t) +
           (size_t)limits->num_blocks * sizeof(int32_t);
}

static int init_parts(struct block_manager *manager) {
    const struct block_manager_config *config = &manager->config;
    const struct serving_limits *limits = config->limits;
    if (block_pool_init(&manager->pool, limits->num_blocks, config->num_tenants) < 0 ||
        block_pool_init(&manager->host, limits->num_host_blocks, 1) < 0 ||
        move_list_init(&manager->swap_out, limits->num_host_blocks) < 0 ||
        move_list_init(&manager->swap_in, limits->num_blocks) < 0 ||
        move_list_init(&manager->copies, limits->num_blocks) < 0)
        return -1;
    if (config->caching && prefix_cache_init(&manager->cache, limits->num_blocks,
                                             limits->block_size, config->events) < 0)
        return -1;
    int32_t larger = larger_pool(limits);
    manager->origins = calloc((size_t)limits->num_host_blocks + 1, sizeof(*manager->origins));
    manager->moved_to = malloc((size_t)larger * sizeof(*manager->moved_to));
    manager->deferred = malloc((size_t)limits->num_blocks * sizeof(*manager->deferred));
    if (manager->origins == NULL || manager->moved_to == NULL || manager->deferred == NULL)
        return -1;
    for (int32_t i = 0; i < larger; i++)
        manager->moved_to[i] = -1;
    return 0;
}

int block_manager_init(struct block_manager *manager, const struct block_manager_config *config) {
    CHECK(config->limits->num_blocks >= 1 && config->limits->num_host_blocks >= 0);
    CHECK(config->limits->block_size >= 1 && config->limits->block_size <= BLOCK_KEY_MAX_TOKENS);
    struct block_manager made = {.config = *config,
                                 .public_root = block_key_root(&config->secret, 0, NULL, 0)};
    if (init_parts(&made) < 0) {
        block_manager_finish(&made);
        return -1;
    }
    *manager = made;
    return 0;
}

void block_manager_finish(struct block_manager *manager) {
    CHECK(manager->pool.num_used == 0 && manager->host.num_used == 0);
    block_pool_finish(&manager->pool);
    block_pool_finish(&manager->host);
    prefix_cache_finish(&manager->cache);
    move_list_finish(&manager->swap_out);
    move_list_finish(&manager->swap_in);
    move_list_finish(&manager->copies);
    free(manager->origins);
    free(manager->moved_to);
    free(manager->deferred);
    memset(manager, 0, sizeof(*manager));
}

/* Makes the cache forget a block in use. */
static void forget_content(struct block_manager *manager, int32_t id) {
    if (!manager->pool.blocks[id].cached)
        return;
    prefix_cache_remove(&manager->cache, id);
    block_pool_clear_cached(&manager->pool, id);
}

void block_manager_flush_cache(struct block_manager *manager) {
    if (!manager->config.caching)
        return;
    prefix_cache_clear(&manager->cache);
    for (int32_t id = 0; id < manager->pool.num_blocks; id++) {
        if (!manager->pool.blocks[id].cached)
            continue;
        block_pool_ref(&manager->pool, id); /* a free one moves to those without content */
        block_pool_clear_cached(&manager->pool, id);
        block_pool_unref(&manager->pool, id);
    }
}

int32_t block_manager_take(struct block_manager *manager) {
    int32_t id = block_pool_alloc(&manager->pool);
    if (id < 0)
        return -1;
    forget_content(manager, id);
    manager->pool.blocks[id].num_drafted = 0;
    return id;
}

/* Takes back the move into a host block that is about to be free. */
static void cancel_host_move(struct block_manager *manager, int32_t id) {
    if (move_list_source(&manager->swap_out, id) >= 0)
        move_list_remove(&manager->swap_out, id);
}

void block_manager_drop_host(struct block_manager *manager, int32_t id) {
    const struct block *block = &manager->host.blocks[id];
    if (block->references == 1 && block->pins == 0)
        cancel_host_move(manager, id);
    block_pool_unref(&manager->host, id);
}

static void unpin_host(struct block_manager *manager, int32_t id) {
    const struct block *block = &manager->host.blocks[id];
    if (block->references == 0 && block->pins == 1)
        cancel_host_move(manager, id);
    block_pool_unpin(&manager->host, id);
}

static void unpin_device(struct block_manager *manager, int32_t id);

/* Takes back the move into a block that is about to be free: what it was to bring will not be
 * there. */
static void cancel_device_move(struct block_manager *manager, int32_t id) {
    int32_t copied = move_list_source(&manager->copies, id);
    int32_t swapped = move_list_source(&manager->swap_in, id);
    if (copied < 0 && swapped < 0)
        return;
    forget_content(manager, id);
    if (copied >= 0) {
        move_list_remove(&manager->copies, id);
        unpin_device(manager, copied);
    } else {
        move_list_remove(&manager->swap_in, id);
        unpin_host(manager, swapped);
    }
}

/* Keeps a block that is about to lose its last owner or pin from becoming free while a step in
 * flight may use it. */
static void defer(struct block_manager *manager, int32_t id) {
    struct block *block = &manager->pool.blocks[id];
    if (block->is_deferred || block->last_step <= manager->num_collected)
        return;
    block->is_deferred = true;
    block_pool_pin(&manager->pool, id);
    manager->deferred[manager->num_deferred++] = id;
}

void block_manager_drop_device(struct block_manager *manager, int32_t id, uint64_t last_step) {
    struct block *block = &manager->pool.blocks[id];
    if (last_step > block->last_step)
        block->last_step = last_step;
    if (block->references == 1)
        defer(manager, id);
    if (block->references == 1 && block->pins == 0)
        cancel_device_move(manager, id);
    block_pool_unref(&manager->pool, id);
}

static void unpin_device(struct block_manager *manager, int32_t id) {
    const struct block *block = &manager->pool.blocks[id];
    if (block->references == 0 && block->pins == 1)
        cancel_device_move(manager, id);
    block_pool_unpin(&manager->pool, id);
}

bool block_manager_grow(struct block_manager *manager, struct block_table *table) {
    CHECK(!table->on_host && table->num_blocks < table->max_blocks);
    int32_t id = block_manager_take(manager);
    if (id < 0)
        return false;
    table->blocks[table->num_blocks++] = id;
    return true;
}

/* Returns the index of the position's block in the table, which must not have been dropped;
 * num_blocks or more beyond the table. */
static int32_t place_of(const struct block_manager *manager, const struct block_table *table,
                        int32_t position) {
    CHECK(!table->on_host && position >= 0);
    int32_t place = position / manager->config.limits->block_size;
    CHECK(place >= table->num_dropped);
    return place;
}

bool block_manager_needs_copy(const struct block_manager *manager, const struct block_table *table,
                              int32_t position) {
    int32_t place = place_of(manager, table, position);
    return place < table->num_blocks && manager->pool.blocks[table->blocks[place]].references > 1;
}

/* Copies a block that has another owner. One that is itself to be copied to in this step has its
 * content from there. */
static bool copy_block(struct block_manager *manager, const struct block_table *table,
                       int32_t *block) {
    int32_t copy = block_manager_take(manager);
    if (copy < 0)
        return false;
    int32_t source = move_list_source(&manager->copies, *block);
    if (source < 0)
        source = *block;
    move_list_add(&manager->copies, source, copy);
    manager->pool.blocks[copy].num_drafted = manager->pool.blocks[*block].num_drafted;
    block_pool_pin(&manager->pool, source);
    block_manager_drop_device(manager, *block, table->last_step);
    *block = copy;
    return true;
}

/* Forgets what is drafted of the tokens after the first num_tokens of a block. */
static void cut_drafted(struct block_manager *manager, int32_t id, int32_t num_tokens) {
    int32_t *num_drafted = &manager->pool.blocks[id].num_drafted;
    int32_t num_places = manager->config.drafts_ahead ? num_tokens - 1 : num_tokens;
    *num_drafted = min_int32(*num_drafted, max_int32(num_places, 0));
}

bool block_manager_make_writable(struct block_manager *manager, struct block_table *table,
                                 int32_t position) {
    int32_t place = place_of(manager, table, position);
    CHECK(place < table->num_blocks);
    int32_t *block = &table->blocks[place];
    if (manager->pool.blocks[*block].references == 1)
        forget_content(manager, *block);
    else if (!copy_block(manager, table, block))
        return false;
    block_table_cut_keys(table, place);
    cut_drafted(manager, *block, position % manager->config.limits->block_size);
    return true;
}

void block_manager_fork(struct block_manager *manager, const struct block_table *from,
                        struct block_table *to, int32_t num_tokens) {
    int32_t block_size = manager->config.limits->block_size;
    int32_t num_blocks = block_table_blocks_for(num_tokens, block_size);
    CHECK(!from->on_host && num_blocks <= from->num_blocks);
    CHECK(to->num_blocks == 0 && num_blocks <= to->max_blocks);
    CHECK(from->tenant == to->tenant && block_key_equal(&from->root, &to->root));
    for (int32_t i = 0; i < num_blocks; i++) {
        to->blocks[i] = from->blocks[i];
        if (to->blocks[i] >= 0)
            block_pool_ref(&manager->pool, to->blocks[i]);
    }
    to->num_blocks = num_blocks;
    to->num_dropped = min_int32(from->num_dropped, num_blocks);
    to->num_keyed = from->num_keyed;
    to->keyed_ahead = from->keyed_ahead;
    to->key = from->key;
    block_table_cut_keys(to, num_tokens / block_size);
}

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

int32_t block_manager_match(struct block_manager *manager, struct block_table *table,
                            const struct token_view *view, int32_t limit) {
    if (!manager->config.caching)
        return 0;
    CHECK(!table->on_host && limit >= 0);
    int32_t tokens[BLOCK_KEY_MAX_TOKENS];
    int32_t block_size = manager->config.limits->block_size, num_before = table->num_blocks;
    int32_t most = limit / block_size < table->max_blocks ? limit / block_size : table->max_blocks;
    if (num_before < most)
        add_missing_keys(manager, table, view, num_before);
    while (table->num_blocks < most) {
        struct block_content content = next_content(manager, table, view, tokens);
        int32_t found = prefix_cache_find(&manager->cache, &content);
        if (found < 0)
            break;
        block_pool_ref(&manager->pool, found);
        table->blocks[table->num_blocks++] = found;
        add_key(table, &content.key);
    }
    return (table->num_blocks - num_before) * block_size;
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
        if (table->num_keyed >= table->num_dropped)
            publish_block(manager, table, &table->blocks[table->num_keyed], &content);
        add_key(table, &content.key);
    }
}

static void drop_block(struct block_manager *manager, const struct block_table *table,
                       int32_t place) {
    if (table->on_host)
        block_manager_drop_host(manager, table->blocks[place]);
    else
        block_manager_drop_device(manager, table->blocks[place], table->last_step);
}

void block_manager_drop_before(struct block_manager *manager, struct block_table *table,
                               int32_t position) {
    int32_t end = position / manager->config.limits->block_size;
    for (; table->num_dropped < end && table->num_dropped < table->num_blocks;
         table->num_dropped++) {
        drop_block(manager, table, table->num_dropped);
        table->blocks[table->num_dropped] = -1;
    }
}

/* Gives back the last block first: of what stays in the cache a prefix outlives its continuations,
 * and of what does not the first blocks are the next to be reused. */
void block_manager_trim(struct block_manager *manager, struct block_table *table,
                        int32_t num_tokens) {
    int32_t num_blocks = block_table_blocks_for(num_tokens, manager->config.limits->block_size);
    CHECK(num_blocks >= table->num_dropped);
    int32_t num_full = num_tokens / manager->config.limits->block_size;
    while (table->num_blocks > num_blocks)
        drop_block(manager, table, --table->num_blocks);
    block_table_cut_keys(table, num_full);
    if (num_full < num_blocks && num_full >= table->num_dropped)
        cut_drafted(manager, table->blocks[num_full],
                    num_tokens % manager->config.limits->block_size);
}

void block_manager_release(struct block_manager *manager, struct block_table *table) {
    while (table->num_blocks > table->num_dropped)
        drop_block(manager, table, --table->num_blocks);
    table->num_blocks = table->num_dropped = 0;
    table->on_host = false;
    block_table_cut_keys(table, 0);
}

int32_t block_manager_num_drafted(const struct block_manager *manager,
                                  const struct block_table *table, int32_t most) {
    int32_t block_size = manager->config.limits->block_size;
    int32_t place = table->num_dropped, count = place * block_size;
    CHECK(!table->on_host);
    for (bool is_full = true; is_full && place < table->num_blocks && count < most; place++) {
        int32_t num_drafted = manager->pool.blocks[table->blocks[place]].num_drafted;
        count += num_drafted;
        is_full = num_drafted == block_size;
    }
    return min_int32(count, most);
}

void block_manager_add_drafted(struct block_manager *manager, const struct block_table *table,
                               int32_t begin, int32_t end) {
    int32_t block_size = manager->config.limits->block_size;
    CHECK(begin < end && end <= table->num_blocks * block_size);
    for (int32_t place = begin / block_size; place * block_size < end; place++)
        manager->pool.blocks[table->blocks[place]].num_drafted =
            min_int32(end - place * block_size, block_size);
}

/* A copy's source may have no owner any more, and is in use all the same. */
static void release_copied(struct block_manager *manager, int32_t id) {
    struct block *block = &manager->pool.blocks[id];
    block->last_step = manager->num_submitted;
    if (block->references == 0)
        defer(manager, id);
    block_pool_unpin(&manager->pool, id);
}

void block_manager_submit(struct block_manager *manager, struct block_table *const *tables,
                          int32_t num_tables) {
    manager->num_submitted++;
    for (int32_t i = 0; i < num_tables; i++)
        tables[i]->last_step = manager->num_submitted;
    manager->num_swapped_out_blocks += (uint64_t)manager->swap_out.count;
    manager->num_swapped_in_blocks += (uint64_t)manager->swap_in.count;
    manager->num_copied_blocks += (uint64_t)manager->copies.count;
    /* a move that was submitted is not taken back: the lists are emptied before the sources are
     * free */
    int32_t num_copies = manager->copies.count, num_swap_in = manager->swap_in.count;
    move_list_clear(&manager->swap_out);
    move_list_clear(&manager->swap_in);
    move_list_clear(&manager->copies);
    for (int32_t i = 0; i < num_copies; i++)
        release_copied(manager, manager->copies.from[i]);
    for (int32_t i = 0; i < num_swap_in; i++)
        block_pool_unpin(&manager->host, manager->swap_in.from[i]);
}

void block_manager_collect(struct block_manager *manager) {
    CHECK(manager->num_collected < manager->num_submitted);
    manager->num_collected++;
    int32_t num_deferred = manager->num_deferred;
    manager->num_deferred = 0;
    for (int32_t i = 0; i < num_deferred; i++) {
        struct block *block = &manager->pool.blocks[manager->deferred[i]];
        if (block->last_step > manager->num_collected) {
            manager->deferred[manager->num_deferred++] = manager->deferred[i];
            continue;
        }
        block->is_deferred = false;
        block_pool_unpin(&manager->pool, manager->deferred[i]);
    }
}

bool block_manager_has_moves(const struct block_manager *manager) {
    return manager->swap_out.count > 0 || manager->swap_in.count > 0 || manager->copies.count > 0;
}
