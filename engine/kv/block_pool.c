/* Free blocks without content are a stack: the block freed last is handed out first, and blocks
 * that were never used come last, lowest id first. A lightly loaded server without a cache thus
 * writes to the same few blocks again and again, and the rest of the pool stays untouched zero
 * pages. Free blocks with content are queues, one for each tenant. */
#include "engine/kv/block_pool.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

static const struct free_list no_blocks = {.first = -1, .last = -1};

static void append(struct block_pool *pool, struct free_list *list, int32_t id) {
    struct block *block = &pool->blocks[id];
    block->previous = list->last;
    block->next = -1;
    if (list->last >= 0)
        pool->blocks[list->last].next = id;
    else
        list->first = id;
    list->last = id;
    list->count++;
}

static void prepend(struct block_pool *pool, struct free_list *list, int32_t id) {
    struct block *block = &pool->blocks[id];
    block->previous = -1;
    block->next = list->first;
    if (list->first >= 0)
        pool->blocks[list->first].previous = id;
    else
        list->last = id;
    list->first = id;
    list->count++;
}

static void unlink_block(struct block_pool *pool, struct free_list *list, int32_t id) {
    struct block *block = &pool->blocks[id];
    if (block->previous >= 0)
        pool->blocks[block->previous].next = block->next;
    else
        list->first = block->next;
    if (block->next >= 0)
        pool->blocks[block->next].previous = block->previous;
    else
        list->last = block->previous;
    block->previous = block->next = -1;
    list->count--;
}

size_t block_pool_bytes(int32_t num_blocks, int32_t num_tenants) {
    return ((size_t)num_blocks + 1) * sizeof(struct block) +
           (size_t)num_tenants * sizeof(struct free_list);
}

int block_pool_init(struct block_pool *pool, int32_t num_blocks, int32_t num_tenants) {
    CHECK(num_blocks >= 0 && num_tenants >= 1);
    struct block_pool made = {
        .num_blocks = num_blocks, .num_tenants = num_tenants, .bare = no_blocks};
    /* an empty array may be NULL */
    made.blocks = calloc((size_t)num_blocks + 1, sizeof(*made.blocks));
    made.cached = calloc((size_t)num_tenants, sizeof(*made.cached));
    if (made.blocks == NULL || made.cached == NULL) {
        block_pool_finish(&made);
        return -1;
    }
    for (int32_t i = 0; i < num_blocks; i++)
        append(&made, &made.bare, i);
    for (int32_t i = 0; i < num_tenants; i++)
        made.cached[i] = no_blocks;
    *pool = made;
    return 0;
}

void block_pool_finish(struct block_pool *pool) {
    free(pool->blocks);
    free(pool->cached);
    memset(pool, 0, sizeof(*pool));
}

static struct block *known_block(struct block_pool *pool, int32_t id) {
    CHECK(id >= 0 && id < pool->num_blocks);
    return &pool->blocks[id];
}

static bool is_used(const struct block *block) {
    return block->references > 0 || block->pins > 0;
}

static struct block *used_block(struct block_pool *pool, int32_t id) {
    struct block *block = known_block(pool, id);
    CHECK(is_used(block));
    return block;
}

static struct free_list *fullest_cache(struct block_pool *pool) {
    struct free_list *fullest = &pool->cached[0];
    for (int32_t i = 1; i < pool->num_tenants; i++)
        if (pool->cached[i].count > fullest->count)
            fullest = &pool->cached[i];
    return fullest;
}

int32_t block_pool_alloc(struct block_pool *pool) {
    if (pool->num_used == pool->num_blocks)
        return -1;
    struct free_list *list = pool->bare.count > 0 ? &pool->bare : fullest_cache(pool);
    int32_t id = list->first;
    struct block *block = known_block(pool, id);
    CHECK(!is_used(block));
    unlink_block(pool, list, id);
    block->references = 1;
    pool->num_used++;
    return id;
}

void block_pool_ref(struct block_pool *pool, int32_t id) {
    struct block *block = known_block(pool, id);
    CHECK(block->references < INT32_MAX && (block->cached || is_used(block)));
    if (!is_used(block)) {
        unlink_block(pool, &pool->cached[block->queue], id);
        pool->num_used++;
    }
    block->references++;
}

static void free_if_unused(struct block_pool *pool, int32_t id) {
    struct block *block = &pool->blocks[id];
    if (is_used(block))
        return;
    if (block->cached)
        append(pool, &pool->cached[block->queue], id);
    else
        prepend(pool, &pool->bare, id);
    pool->num_used--;
}

void block_pool_unref(struct block_pool *pool, int32_t id) {
    struct block *block = known_block(pool, id);
    CHECK(block->references > 0);
    block->references--;
    free_if_unused(pool, id);
}

void block_pool_pin(struct block_pool *pool, int32_t id) {
    struct block *block = used_block(pool, id);
    CHECK(block->pins < INT32_MAX);
    block->pins++;
}

void block_pool_unpin(struct block_pool *pool, int32_t id) {
    struct block *block = known_block(pool, id);
    CHECK(block->pins > 0);
    block->pins--;
    free_if_unused(pool, id);
}

void block_pool_set_cached(struct block_pool *pool, int32_t id, int32_t tenant) {
    struct block *block = used_block(pool, id);
    CHECK(!block->cached && tenant >= 0);
    block->cached = true;
    block->queue = tenant % pool->num_tenants;
}

void block_pool_clear_cached(struct block_pool *pool, int32_t id) {
    used_block(pool, id)->cached = false;
}

void block_pool_clear_all_cached(struct block_pool *pool) {
    for (int32_t id = 0; id < pool->num_blocks; id++) {
        if (!pool->blocks[id].cached)
            continue;
        block_pool_ref(pool, id); /* a free one moves to those without content */
        block_pool_clear_cached(pool, id);
        block_pool_unref(pool, id);
    }
}

int32_t block_pool_num_free(const struct block_pool *pool) {
    return pool->num_blocks - pool->num_used;
}

int32_t block_pool_num_cached(const struct block_pool *pool) {
    int32_t count = 0;
    for (int32_t t = 0; t < pool->num_tenants; t++)
        count += pool->cached[t].count;
    return count;
}
