/* Receives every change to the set of blocks in the prefix cache, in order, so that the receiver
 * can maintain a copy of the set. A struct of functions, given in the configuration; it never
 * affects what the engine does.
 *
 * Called by the engine's thread, and after that has ended by whoever destroys the engine: the cache
 * reports at its end that it is cleared. The functions must not block. */
#ifndef QUIRE_ENGINE_KV_KV_EVENT_SINK_H
#define QUIRE_ENGINE_KV_KV_EVENT_SINK_H

#include "engine/kv/block_key.h"

/* A full block with the content of engine/kv/prefix_cache.h. Valid during a call. */
struct stored_block {
    struct block_key key;
    struct block_key previous; /* key of the block before it, or the root */
    bool is_first;             /* first of its history: `previous` is the root */
    bool is_private; /* not found by everybody's prompts: it belongs to one of several tenants, is
                        salted, or an adapter computed it */
    struct block_adapter adapter; /* that computed it */
    const int32_t *tokens;        /* [block_size] */
};

struct kv_event_sink {
    /* The block can be found from now on; none with its key could be before. */
    void (*stored)(void *context, const struct stored_block *block);
    /* The block with that key can no longer be found. */
    void (*removed)(void *context, const struct block_key *key);
    /* The host's memory has a block with that key too, so that it is found when the device has lost
     * it, or no longer has it. NULL: not told. */
    void (*kept)(void *context, const struct block_key *key);
    void (*dropped)(void *context, const struct block_key *key);
    /* No block can be found any more, but for what a store has. */
    void (*cleared)(void *context);
    /* The changes since the last call belong together: they are those of one step. Called before
     * anybody reads what the step has sampled. */
    void (*end_step)(void *context);
    void *context;
};

#endif
