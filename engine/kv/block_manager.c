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
 * source in turn: were it handed out again, it would be a destination twice. */
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
           block_manager_tiers_bytes(config) + (size_t)larger_pool(limits) * sizeof(int32_t) +
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
    return block_manager_init_tiers(manager);
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
    block_manager_finish_tiers(manager);
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
    block_manager_flush_tiers(manager);
    prefix_cache_clear(&manager->cache);
    block_pool_clear_all_cached(&manager->pool);
}

void block_manager_lose_contents(struct block_manager *manager) {
    block_manager_end_jobs(manager);
    block_manager_flush_cache(manager);
}

int32_t block_manager_take(struct block_manager *manager) {
    int32_t id = block_pool_alloc(&manager->pool);
    if (id < 0)
        return -1;
    block_manager_keep(manager, id);
    forget_content(manager, id);
    manager->pool.blocks[id].num_drafted = 0;
    manager->pool.blocks[id].is_awaited = false;
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

int64_t block_manager_num_held(const struct block_manager *manager,
                               const struct block_table *table) {
    int64_t num_windowed = table->num_groups - manager->config.limits->num_full_groups;
    return (int64_t)table->num_groups * table->num_blocks - num_windowed * table->num_dropped;
}

bool block_manager_grow(struct block_manager *manager, struct block_table *table) {
    CHECK(!table->on_host && table->num_blocks < table->max_blocks);
    if (block_pool_num_free(&manager->pool) < table->num_groups)
        return false;
    for (int32_t group = 0; group < table->num_groups; group++)
        *block_table_at(table, group, table->num_blocks) = block_manager_take(manager);
    table->num_blocks++;
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

int32_t block_manager_num_copies(const struct block_manager *manager,
                                 const struct block_table *table, int32_t position) {
    int32_t place = place_of(manager, table, position), count = 0;
    for (int32_t group = 0; place < table->num_blocks && group < table->num_groups; group++)
        count += manager->pool.blocks[*block_table_at(table, group, place)].references > 1;
    return count;
}

/* Copies a block that has another owner. One that is itself to be copied to in this step has its
 * content from there. */
static void copy_block(struct block_manager *manager, const struct block_table *table,
                       int32_t *block) {
    int32_t copy = block_manager_take(manager);
    CHECK(copy >= 0);
    int32_t source = move_list_source(&manager->copies, *block);
    if (source < 0)
        source = *block;
    move_list_add(&manager->copies, source, copy);
    manager->pool.blocks[copy].num_drafted = manager->pool.blocks[*block].num_drafted;
    block_pool_pin(&manager->pool, source);
    block_manager_drop_device(manager, *block, table->last_step);
    *block = copy;
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
    if (block_pool_num_free(&manager->pool) < block_manager_num_copies(manager, table, position))
        return false;
    for (int32_t group = 0; group < table->num_groups; group++) {
        int32_t *block = block_table_at(table, group, place);
        if (manager->pool.blocks[*block].references == 1)
            forget_content(manager, *block);
        else
            copy_block(manager, table, block);
    }
    block_table_cut_keys(table, place);
    cut_drafted(manager, table->blocks[place], position % manager->config.limits->block_size);
    return true;
}

void block_manager_fork(struct block_manager *manager, const struct block_table *from,
                        struct block_table *to, int32_t num_tokens) {
    int32_t block_size = manager->config.limits->block_size;
    int32_t num_blocks = blocks_for_tokens(num_tokens, block_size);
    CHECK(!from->on_host && num_blocks <= from->num_blocks);
    CHECK(to->num_blocks == 0 && num_blocks <= to->max_blocks &&
          to->num_groups == from->num_groups);
    CHECK(from->tenant == to->tenant && block_key_equal(&from->root, &to->root));
    for (int32_t group = 0; group < from->num_groups; group++)
        for (int32_t i = 0; i < num_blocks; i++) {
            int32_t block = *block_table_at(from, group, i);
            *block_table_at(to, group, i) = block;
            if (block >= 0)
                block_pool_ref(&manager->pool, block);
        }
    to->num_blocks = num_blocks;
    to->num_dropped = min_int32(from->num_dropped, num_blocks);
    to->num_keyed = from->num_keyed;
    to->keyed_ahead = from->keyed_ahead;
    to->key = from->key;
    block_table_cut_keys(to, num_tokens / block_size);
}

/* Of the groups from `first` to before `end`. */
static void drop_blocks(struct block_manager *manager, const struct block_table *table,
                        int32_t place, int32_t first, int32_t end) {
    for (int32_t group = first; group < end; group++) {
        int32_t *block = block_table_at(table, group, place);
        if (table->on_host)
            block_manager_drop_host(manager, *block);
        else
            block_manager_drop_device(manager, *block, table->last_step);
        *block = -1;
    }
}

static void drop_last(struct block_manager *manager, struct block_table *table) {
    int32_t place = --table->num_blocks;
    drop_blocks(manager, table, place, 0, block_manager_groups_at(manager, table, place));
}

void block_manager_drop_before(struct block_manager *manager, struct block_table *table,
                               int32_t position) {
    int32_t end = position / manager->config.limits->block_size;
    for (; table->num_dropped < end && table->num_dropped < table->num_blocks; table->num_dropped++)
        drop_blocks(manager, table, table->num_dropped, manager->config.limits->num_full_groups,
                    table->num_groups);
}

/* Gives back the last block first: of what stays in the cache a prefix outlives its continuations,
 * and of what does not the first blocks are the next to be reused. */
void block_manager_trim(struct block_manager *manager, struct block_table *table,
                        int32_t num_tokens) {
    int32_t num_blocks = blocks_for_tokens(num_tokens, manager->config.limits->block_size);
    CHECK(num_blocks >= table->num_dropped);
    int32_t num_full = num_tokens / manager->config.limits->block_size;
    CHECK(table->num_awaited == 0);
    while (table->num_blocks > num_blocks)
        drop_last(manager, table);
    block_table_cut_keys(table, num_full);
    if (num_full < num_blocks && block_manager_groups_at(manager, table, num_full) > 0)
        cut_drafted(manager, table->blocks[num_full],
                    num_tokens % manager->config.limits->block_size);
}

void block_manager_release(struct block_manager *manager, struct block_table *table) {
    while (table->num_blocks > 0)
        drop_last(manager, table);
    table->num_dropped = 0;
    table->num_awaited = 0;
    table->on_host = false;
    block_table_cut_keys(table, 0);
}

int32_t block_manager_num_drafted(const struct block_manager *manager,
                                  const struct block_table *table, int32_t most) {
    int32_t block_size = manager->config.limits->block_size;
    int32_t place = manager->config.limits->num_full_groups > 0 ? 0 : table->num_dropped;
    int32_t count = place * block_size;
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
    for (int32_t i = 0; i < manager->swap_out.count; i++)
        manager->host.blocks[manager->swap_out.to[i]].last_step = manager->num_submitted;
    for (int32_t i = 0; i < num_swap_in; i++)
        manager->host.blocks[manager->swap_in.from[i]].last_step = manager->num_submitted;
    move_list_clear(&manager->swap_out);
    move_list_clear(&manager->swap_in);
    move_list_clear(&manager->copies);
    for (int32_t i = 0; i < num_copies; i++)
        release_copied(manager, manager->copies.from[i]);
    for (int32_t i = 0; i < num_swap_in; i++)
        block_pool_unpin(&manager->host, manager->swap_in.from[i]);
    block_manager_submit_tiers(manager);
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
