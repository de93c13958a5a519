/* Finds the block that holds a history: maps a block's key to its id, for blocks in use and for
 * free ones whose content is still there. A hit counts only when the tenant, the predecessor's key
 * and the tokens are equal.
 *
 * Owned by the block manager; engine thread only. All memory is allocated by prefix_cache_init. */
#ifndef QUIRE_ENGINE_KV_PREFIX_CACHE_H
#define QUIRE_ENGINE_KV_PREFIX_CACHE_H

#include "engine/kv/block_key.h"
#include "engine/kv/kv_event_sink.h"

struct cached_block;

/* Describes what a block's keys and values depend on. */
struct block_content {
    struct block_key key;      /* the same for all groups of layers */
    int32_t group;             /* whose layers the block holds; events are about those of group 0 */
    struct block_key previous; /* key of the block before it, or the root */
    int32_t tenant;
    bool is_first;   /* first of its history: `previous` is the root */
    bool is_private; /* not found by everybody's prompts: it belongs to one of several tenants, is
                        salted, or an adapter computed it */
    struct block_adapter adapter; /* for events: the key depends on it */
    const int32_t *tokens;        /* [block_size] */
};

struct prefix_cache {
    int32_t num_blocks;
    int32_t block_size;
    int32_t num_known;                  /* blocks now */
    const struct kv_event_sink *events; /* may be NULL */
    uint64_t num_inserted;              /* since start */
    int32_t num_buckets;                /* a power of two */
    int32_t *buckets;                   /* first block of each, -1: none */
    struct cached_block *blocks;        /* [num_blocks] */
    int32_t *tokens;                    /* [num_blocks][block_size] */
};

/* events outlives the cache; may be NULL. Returns -1 when memory is short. */
int prefix_cache_init(struct prefix_cache *cache, int32_t num_blocks, int32_t block_size,
                      const struct kv_event_sink *events);
size_t prefix_cache_bytes(int32_t num_blocks, int32_t block_size); /* what it allocates */
/* Reports to events that the cache is cleared. Accepts a zeroed one. */
void prefix_cache_finish(struct prefix_cache *cache);

/* Returns the block with that content, or -1. */
int32_t prefix_cache_find(const struct prefix_cache *cache, const struct block_content *content);
/* Adds a block that is not in the cache, under a key that no block with this content has. Copies
 * the tokens. Does nothing when a block with other content has the key. Returns whether the block
 * is in the cache now. */
bool prefix_cache_insert(struct prefix_cache *cache, int32_t block,
                         const struct block_content *content);
/* Returns the content under which a block is in the cache. Its tokens are the cache's, valid until
 * the block is removed. Does not tell is_first, is_private and adapter. */
struct block_content prefix_cache_content(const struct prefix_cache *cache, int32_t block);
/* Removes a block that is in the cache. */
void prefix_cache_remove(struct prefix_cache *cache, int32_t block);
/* Removes all. */
void prefix_cache_clear(struct prefix_cache *cache);
/* Returns a number unique to this content, which no other content of this or another block has had;
 * 0 when the block is not in the cache. */
uint64_t prefix_cache_serial(const struct prefix_cache *cache, int32_t block);

#endif
