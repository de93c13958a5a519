/* A hash table with a chain for each bucket; the links and the contents are arrays over the blocks,
 * since a block has one content at most. */
#include "engine/kv/prefix_cache.h"

#include "config/base/check.h"
#include "config/base/checked.h"

#include <stdlib.h>
#include <string.h>

struct cached_block {
    struct block_key key;
    struct block_key previous;
    uint64_t serial; /* 0: not known */
    int32_t tenant;
    int32_t group;
    int32_t next; /* of the bucket, -1 at the end */
};

static int32_t buckets_for(int32_t num_blocks) {
    int32_t buckets = 1;
    while (buckets < num_blocks && buckets <= INT32_MAX / 2)
        buckets *= 2;
    return buckets;
}

size_t prefix_cache_bytes(int32_t num_blocks, int32_t block_size) {
    size_t of_block = sizeof(struct cached_block) + (size_t)block_size * sizeof(int32_t);
    return (size_t)buckets_for(num_blocks) * sizeof(int32_t) + (size_t)num_blocks * of_block;
}

static void forget_all(struct prefix_cache *cache) {
    for (int32_t i = 0; i < cache->num_buckets; i++)
        cache->buckets[i] = -1;
    for (int32_t i = 0; i < cache->num_blocks; i++)
        cache->blocks[i].serial = 0;
    cache->num_known = 0;
}

int prefix_cache_init(struct prefix_cache *cache, int32_t num_blocks, int32_t block_size,
                      const struct kv_event_sink *events) {
    CHECK(num_blocks >= 1 && block_size >= 1);
    size_t token_bytes;
    if (!checked_mul((size_t)num_blocks * sizeof(int32_t), (size_t)block_size, &token_bytes))
        return -1;
    struct prefix_cache made = {
        .num_blocks = num_blocks, .block_size = block_size, .num_buckets = buckets_for(num_blocks)};
    made.buckets = malloc((size_t)made.num_buckets * sizeof(*made.buckets));
    made.blocks = calloc((size_t)num_blocks, sizeof(*made.blocks));
    made.tokens = malloc(token_bytes);
    if (made.buckets == NULL || made.blocks == NULL || made.tokens == NULL) {
        prefix_cache_finish(&made);
        return -1;
    }
    forget_all(&made);
    made.events = events;
    *cache = made;
    return 0;
}

void prefix_cache_clear(struct prefix_cache *cache) {
    forget_all(cache);
    if (cache->events != NULL)
        cache->events->cleared(cache->events->context);
}

void prefix_cache_finish(struct prefix_cache *cache) {
    if (cache->events != NULL)
        cache->events->cleared(cache->events->context);
    free(cache->buckets);
    free(cache->blocks);
    free(cache->tokens);
    memset(cache, 0, sizeof(*cache));
}

static int32_t *bucket_of(const struct prefix_cache *cache, const struct block_key *key,
                          int32_t group) {
    return &cache->buckets[(key->low + (uint64_t)group) & (uint64_t)(cache->num_buckets - 1)];
}

static int32_t *tokens_of(const struct prefix_cache *cache, int32_t block) {
    return cache->tokens + (size_t)block * (size_t)cache->block_size;
}

static int32_t find_key(const struct prefix_cache *cache, const struct block_key *key,
                        int32_t group) {
    int32_t block = *bucket_of(cache, key, group);
    while (block >= 0 && (cache->blocks[block].group != group ||
                          !block_key_equal(&cache->blocks[block].key, key)))
        block = cache->blocks[block].next;
    return block;
}

int32_t prefix_cache_find(const struct prefix_cache *cache, const struct block_content *content) {
    int32_t block = find_key(cache, &content->key, content->group);
    if (block < 0)
        return -1;
    const struct cached_block *known = &cache->blocks[block];
    bool same = known->tenant == content->tenant &&
                block_key_equal(&known->previous, &content->previous) &&
                memcmp(tokens_of(cache, block), content->tokens,
                       (size_t)cache->block_size * sizeof(*content->tokens)) == 0;
    return same ? block : -1;
}

static void tell_stored(const struct prefix_cache *cache, const struct block_content *content) {
    const struct stored_block block = {.key = content->key,
                                       .previous = content->previous,
                                       .is_first = content->is_first,
                                       .is_private = content->is_private,
                                       .adapter = content->adapter,
                                       .tokens = content->tokens};
    if (cache->events != NULL && content->group == 0)
        cache->events->stored(cache->events->context, &block);
}

bool prefix_cache_insert(struct prefix_cache *cache, int32_t block,
                         const struct block_content *content) {
    CHECK(block >= 0 && block < cache->num_blocks && cache->blocks[block].serial == 0);
    if (find_key(cache, &content->key, content->group) >= 0)
        return false;
    int32_t *bucket = bucket_of(cache, &content->key, content->group);
    cache->blocks[block] = (struct cached_block){.key = content->key,
                                                 .previous = content->previous,
                                                 .serial = ++cache->num_inserted,
                                                 .tenant = content->tenant,
                                                 .group = content->group,
                                                 .next = *bucket};
    memcpy(tokens_of(cache, block), content->tokens,
           (size_t)cache->block_size * sizeof(*content->tokens));
    *bucket = block;
    cache->num_known++;
    tell_stored(cache, content);
    return true;
}

struct block_content prefix_cache_content(const struct prefix_cache *cache, int32_t block) {
    CHECK(block >= 0 && block < cache->num_blocks && cache->blocks[block].serial != 0);
    const struct cached_block *known = &cache->blocks[block];
    return (struct block_content){.key = known->key,
                                  .group = known->group,
                                  .previous = known->previous,
                                  .tenant = known->tenant,
                                  .tokens = tokens_of(cache, block)};
}

void prefix_cache_remove(struct prefix_cache *cache, int32_t block) {
    CHECK(block >= 0 && block < cache->num_blocks && cache->blocks[block].serial != 0);
    int32_t *link = bucket_of(cache, &cache->blocks[block].key, cache->blocks[block].group);
    while (*link != block)
        link = &cache->blocks[*link].next;
    *link = cache->blocks[block].next;
    cache->blocks[block].serial = 0;
    cache->num_known--;
    if (cache->events != NULL && cache->blocks[block].group == 0)
        cache->events->removed(cache->events->context, &cache->blocks[block].key);
}

uint64_t prefix_cache_serial(const struct prefix_cache *cache, int32_t block) {
    CHECK(block >= 0 && block < cache->num_blocks);
    return cache->blocks[block].serial;
}
