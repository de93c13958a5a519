/* What tiers below the device add to the block manager. A block goes down as a swap-out, which is
 * made before anything else in a step, so that its device block can be handed out at once; and it
 * comes up as a swap-in. With a store, every new full block is copied to the host soon, and written
 * from there: so the store has it even if the process is killed. A host block that a tier does not
 * need at the moment is free, and has its content until it is handed out for something else. */
#include "engine/kv/block_manager_private.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <stdlib.h>

/* Running jobs of the store, for which host blocks are pinned: of each kind. Half of the host's
 * blocks at most. */
#define MAX_JOBS 256

static bool has_tiers(const struct block_manager_config *config) {
    return config->caching && config->limits->num_host_blocks > 0 &&
           (config->keeps_evicted || config->store != NULL);
}

static int32_t max_jobs(const struct block_manager *manager) {
    return max_int32(min_int32(manager->host.num_blocks / 2, MAX_JOBS), 1);
}

size_t block_manager_tiers_bytes(const struct block_manager_config *config) {
    const struct serving_limits *limits = config->limits;
    size_t num_host = (size_t)limits->num_host_blocks;
    if (!has_tiers(config))
        return 0;
    return prefix_cache_bytes(limits->num_host_blocks, limits->block_size) +
           num_host * (sizeof(enum kept_state) + sizeof(uint64_t) + sizeof(int32_t)) +
           (size_t)limits->num_blocks * sizeof(struct unsaved_block);
}

int block_manager_init_tiers(struct block_manager *manager) {
    const struct serving_limits *limits = manager->config.limits;
    struct block_tiers *tiers = &manager->tiers;
    size_t num_host = (size_t)limits->num_host_blocks;
    if (!has_tiers(&manager->config))
        return 0;
    if (prefix_cache_init(&tiers->kept, limits->num_host_blocks, limits->block_size, NULL) != 0)
        return -1;
    tiers->states = calloc(num_host, sizeof(*tiers->states));
    tiers->filling_steps = calloc(num_host, sizeof(*tiers->filling_steps));
    tiers->filling = calloc(num_host, sizeof(*tiers->filling));
    tiers->unsaved = calloc((size_t)limits->num_blocks, sizeof(*tiers->unsaved));
    bool is_complete = tiers->states != NULL && tiers->filling_steps != NULL &&
                       tiers->filling != NULL && tiers->unsaved != NULL;
    return is_complete ? 0 : -1;
}

void block_manager_end_jobs(struct block_manager *manager) {
    if (manager->tiers.states == NULL)
        return;
    block_manager_flush_tiers(manager);
    if (manager->config.store != NULL)
        manager->config.store->drain(manager->config.store->context);
    block_manager_poll(manager);
    CHECK(manager->tiers.num_reads + manager->tiers.num_writes == 0);
}

void block_manager_finish_tiers(struct block_manager *manager) {
    struct block_tiers *tiers = &manager->tiers;
    block_manager_end_jobs(manager);
    prefix_cache_finish(&tiers->kept);
    free(tiers->states);
    free(tiers->filling_steps);
    free(tiers->filling);
    free(tiers->unsaved);
    *tiers = (struct block_tiers){0};
}

/* --- Host blocks --- */

/* Tells that the host has a block now that others may find, or no longer. */
static void tell(const struct block_manager *manager, int32_t host, bool is_kept) {
    const struct kv_event_sink *events = manager->config.events;
    const struct block_content content = prefix_cache_content(&manager->tiers.kept, host);
    if (events == NULL || events->kept == NULL || content.group != 0)
        return;
    (is_kept ? events->kept : events->dropped)(events->context, &content.key);
}

/* It is pinned, or about to be handed out. */
static void forget_kept(struct block_manager *manager, int32_t host) {
    if (manager->host.blocks[host].cached) {
        tell(manager, host, false);
        block_pool_clear_cached(&manager->host, host);
    }
    prefix_cache_remove(&manager->tiers.kept, host);
}

int32_t block_manager_take_host(struct block_manager *manager) {
    int32_t host = block_pool_alloc(&manager->host);
    if (host >= 0 && manager->host.blocks[host].cached) {
        forget_kept(manager, host);
        manager->tiers.states[host] = KEPT_NONE;
        manager->tiers.num_evicted++;
    }
    return host;
}

/* Takes a host block for that content, pinned; -1: there is none. */
static int32_t take_kept(struct block_manager *manager, const struct block_content *content,
                         enum kept_state state) {
    int32_t host = block_manager_take_host(manager);
    if (host < 0)
        return -1;
    if (!prefix_cache_insert(&manager->tiers.kept, host, content)) {
        block_pool_unref(&manager->host, host);
        return -1;
    }
    block_pool_pin(&manager->host, host);
    block_pool_unref(&manager->host, host);
    manager->tiers.states[host] = state;
    return host;
}

/* Unpins a host block whose content is there; it is free then, but for swap-ins. */
static void make_ready(struct block_manager *manager, int32_t host) {
    manager->tiers.states[host] = KEPT_READY;
    if (!manager->host.blocks[host].cached) {
        block_pool_set_cached(&manager->host, host, 0);
        tell(manager, host, true);
    }
    block_pool_unpin(&manager->host, host);
}

/* Unpins one that nobody can find any more. */
static void drop_kept(struct block_manager *manager, int32_t host) {
    manager->tiers.states[host] = KEPT_NONE;
    block_pool_unpin(&manager->host, host);
}

static bool is_known(const struct block_manager *manager, int32_t host) {
    return prefix_cache_serial(&manager->tiers.kept, host) != 0;
}

void block_manager_flush_tiers(struct block_manager *manager) {
    struct block_tiers *tiers = &manager->tiers;
    if (tiers->states == NULL)
        return;
    prefix_cache_clear(&tiers->kept);
    block_pool_clear_all_cached(&manager->host);
    for (int32_t host = 0; host < manager->host.num_blocks; host++)
        if (tiers->states[host] == KEPT_READY)
            tiers->states[host] = KEPT_NONE;
    while (tiers->num_filling > 0)
        drop_kept(manager, tiers->filling[--tiers->num_filling]);
    tiers->num_unsaved = 0;
}

/* --- Down --- */

static bool store_wants(const struct block_manager *manager, const struct block_content *content) {
    const struct kv_tier *store = manager->config.store;
    return store != NULL && store->takes_writes(store->context) &&
           !store->has(store->context, content);
}

void block_manager_keep(struct block_manager *manager, int32_t id) {
    struct block_tiers *tiers = &manager->tiers;
    if (tiers->states == NULL || !manager->pool.blocks[id].cached ||
        move_list_source(&manager->swap_in, id) >= 0)
        return;
    const struct block_content content = prefix_cache_content(&manager->cache, id);
    if (prefix_cache_find(&tiers->kept, &content) >= 0 ||
        (!manager->config.keeps_evicted && !store_wants(manager, &content)))
        return;
    int32_t host = take_kept(manager, &content, KEPT_FILLING);
    if (host < 0)
        return;
    move_list_add(&manager->swap_out, id, host);
    manager->host.blocks[host].num_drafted = manager->pool.blocks[id].num_drafted;
    tiers->filling_steps[host] = manager->num_submitted + 1;
    tiers->filling[tiers->num_filling++] = host;
    tiers->num_kept++;
}

void block_manager_note_cached(struct block_manager *manager, int32_t id) {
    struct block_tiers *tiers = &manager->tiers;
    const struct kv_tier *store = manager->config.store;
    if (tiers->states == NULL || store == NULL || !store->takes_writes(store->context))
        return;
    int32_t room = manager->pool.num_blocks;
    if (tiers->num_unsaved == room) {
        tiers->first_unsaved = (tiers->first_unsaved + 1) % room;
        tiers->num_unsaved--;
    }
    tiers->unsaved[(tiers->first_unsaved + tiers->num_unsaved++) % room] =
        (struct unsaved_block){.block = id, .serial = prefix_cache_serial(&manager->cache, id)};
}

void block_manager_offer(struct block_manager *manager, const struct block_table *table) {
    for (int32_t place = 0; place < table->num_keyed && !table->on_host; place++)
        for (int32_t group = 0; group < table->num_groups; group++) {
            int32_t block = *block_table_at(table, group, place);
            if (block >= 0 && manager->pool.blocks[block].cached)
                block_manager_note_cached(manager, block);
        }
}

static bool is_stored(const struct block_manager *manager, int32_t block) {
    const struct kv_tier *store = manager->config.store;
    if (!manager->pool.blocks[block].cached)
        return false;
    const struct block_content content = prefix_cache_content(&manager->cache, block);
    return store->has(store->context, &content);
}

int32_t block_manager_num_stored(const struct block_manager *manager,
                                 const struct block_table *table, int32_t known,
                                 int32_t num_blocks) {
    CHECK(manager->config.store != NULL && num_blocks <= table->num_blocks && !table->on_host);
    for (int32_t place = known; place < num_blocks; place++)
        for (int32_t group = 0; group < table->num_groups; group++) {
            int32_t block = *block_table_at(table, group, place);
            if (block >= 0 && !is_stored(manager, block))
                return place;
        }
    return max_int32(known, num_blocks);
}

/* A ready block of the host goes to the store from where it is. */
static void save_block(struct block_manager *manager, int32_t id) {
    struct block_tiers *tiers = &manager->tiers;
    const struct block_content content = prefix_cache_content(&manager->cache, id);
    int32_t host = prefix_cache_find(&tiers->kept, &content);
    if (!store_wants(manager, &content))
        return;
    if (host < 0) {
        block_manager_keep(manager, id);
    } else if (tiers->states[host] == KEPT_READY) {
        block_pool_ref(&manager->host, host);
        block_pool_pin(&manager->host, host);
        block_pool_unref(&manager->host, host);
        tiers->states[host] = KEPT_FILLING;
        tiers->filling_steps[host] = manager->num_collected;
        tiers->filling[tiers->num_filling++] = host;
    }
}

void block_manager_save(struct block_manager *manager) {
    struct block_tiers *tiers = &manager->tiers;
    while (tiers->num_unsaved > 0 && block_pool_num_free(&manager->host) > 0 &&
           tiers->num_filling + tiers->num_writes < max_jobs(manager)) {
        const struct unsaved_block unsaved = tiers->unsaved[tiers->first_unsaved];
        tiers->first_unsaved = (tiers->first_unsaved + 1) % manager->pool.num_blocks;
        tiers->num_unsaved--;
        if (prefix_cache_serial(&manager->cache, unsaved.block) == unsaved.serial)
            save_block(manager, unsaved.block);
    }
}

/* Those that the store does not want are there as soon as later steps are: steps run in order. */
void block_manager_submit_tiers(struct block_manager *manager) {
    struct block_tiers *tiers = &manager->tiers;
    int32_t num_filling = tiers->num_filling;
    tiers->num_filling = 0;
    for (int32_t i = 0; i < num_filling; i++) {
        int32_t host = tiers->filling[i];
        const struct block_content content = prefix_cache_content(&tiers->kept, host);
        if (store_wants(manager, &content))
            tiers->filling[tiers->num_filling++] = host;
        else
            make_ready(manager, host);
    }
}

/* Gives the store what steps have brought to the host. */
static void write_filled(struct block_manager *manager) {
    struct block_tiers *tiers = &manager->tiers;
    const struct kv_tier *store = manager->config.store;
    int32_t num_filling = tiers->num_filling;
    tiers->num_filling = 0;
    for (int32_t i = 0; i < num_filling; i++) {
        int32_t host = tiers->filling[i];
        const struct block_content content = prefix_cache_content(&tiers->kept, host);
        if (tiers->filling_steps[host] > manager->num_collected) {
            tiers->filling[tiers->num_filling++] = host;
        } else if (store_wants(manager, &content) &&
                   store->write(store->context, &content, manager->host.blocks[host].num_drafted,
                                host)) {
            tiers->states[host] = KEPT_WRITING;
            tiers->num_writes++;
        } else {
            make_ready(manager, host);
        }
    }
}

/* --- Up --- */

static void note_read(struct block_manager *manager, const struct kv_tier_done *done) {
    struct block_tiers *tiers = &manager->tiers;
    tiers->num_reads--;
    *(done->is_ok ? &tiers->num_read : &tiers->num_failed_reads) += 1;
    if (done->is_ok)
        tiers->read_block_ns += tiers->read_block_ns == 0
                                    ? max_int64(done->ns, 1)
                                    : (done->ns - tiers->read_block_ns) / READ_WEIGHT;
    manager->host.blocks[done->host_block].num_drafted = done->num_drafted;
    if (!done->is_ok && is_known(manager, done->host_block))
        forget_kept(manager, done->host_block);
}

void block_manager_poll(struct block_manager *manager) {
    const struct kv_tier *store = manager->config.store;
    struct kv_tier_done done;
    if (manager->tiers.states == NULL || store == NULL)
        return;
    while (store->next_done(store->context, &done)) {
        if (done.is_read)
            note_read(manager, &done);
        else
            manager->tiers.num_writes--;
        if (is_known(manager, done.host_block))
            make_ready(manager, done.host_block);
        else
            drop_kept(manager, done.host_block);
    }
    write_filled(manager);
}

bool block_manager_has_writes(const struct block_manager *manager) {
    const struct block_tiers *tiers = &manager->tiers;
    return tiers->num_filling + tiers->num_writes > 0 ||
           (tiers->num_unsaved > 0 && block_pool_num_free(&manager->host) > 0);
}

int32_t block_manager_find_kept(const struct block_manager *manager,
                                const struct block_content *content) {
    const struct block_tiers *tiers = &manager->tiers;
    int32_t host = tiers->states != NULL ? prefix_cache_find(&tiers->kept, content) : -1;
    return host >= 0 && tiers->states[host] != KEPT_READING ? host : -1;
}

void block_manager_promote(struct block_manager *manager, const struct block_table *table,
                           int32_t host, int32_t id) {
    struct block_content content = prefix_cache_content(&manager->tiers.kept, host);
    content.is_first = block_key_equal(&content.previous, &table->root);
    content.is_private = block_manager_is_private(manager, table);
    content.adapter = table->adapter;
    move_list_add(&manager->swap_in, host, id);
    block_pool_ref(&manager->host, host);
    block_pool_pin(&manager->host, host);
    block_pool_unref(&manager->host, host);
    manager->pool.blocks[id].num_drafted = manager->host.blocks[host].num_drafted;
    manager->pool.blocks[id].is_awaited = false;
    manager->tiers.num_promoted++;
    if (prefix_cache_insert(&manager->cache, id, &content))
        block_pool_set_cached(&manager->pool, id, table->tenant);
}

/* The store does not wait for steps: it gets no host block that one in flight moves from or to. */
bool block_manager_begin_read(struct block_manager *manager, const struct block_content *content) {
    struct block_tiers *tiers = &manager->tiers;
    const struct kv_tier *store = manager->config.store;
    if (tiers->num_reads >= max_jobs(manager) || !store->has(store->context, content))
        return false;
    int32_t host = take_kept(manager, content, KEPT_READING);
    if (host < 0)
        return false;
    bool is_in_flight = manager->host.blocks[host].last_step > manager->num_collected;
    if (!is_in_flight && store->read(store->context, content, host)) {
        tiers->num_reads++;
        return true;
    }
    forget_kept(manager, host);
    drop_kept(manager, host);
    return false;
}
