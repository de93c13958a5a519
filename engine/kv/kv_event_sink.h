/* Learns which blocks the prefix cache knows: told of every change of that set, in order, whoever
 * adds and takes away what he is told has the set itself. A value of functions, given in the
 * configuration; nothing that the engine does follows from it.
 *
 * Called by the engine's thread, and, once that has ended, by whoever destroys the engine: the
 * cache says at its end that it is cleared. No function may wait. */
#ifndef QUIRE_ENGINE_KV_EVENT_SINK_H
#define QUIRE_ENGINE_KV_EVENT_SINK_H

#include "engine/kv/block_key.h"

/* A full block, as engine/kv/prefix_cache.h has its content. Valid during a call. */
struct stored_block {
    struct block_key key;
    struct block_key previous; /* key of the block before it, or the root */
    bool is_first;             /* of its history: `previous` is the root */
    bool is_private; /* not everybody's prompts find it: of one of several tenants, or salted */
    const int32_t *tokens; /* [block_size] */
};

struct kv_event_sink {
    /* That block is found from now on; none of its key was. */
    void (*stored)(void *context, const struct stored_block *block);
    /* The block of that key is not found any more. */
    void (*removed)(void *context, const struct block_key *key);
    /* No block is found any more. */
    void (*cleared)(void *context);
    /* What was told since the last call belongs together: a step's changes. Comes before anybody
     * reads what the step has sampled. */
    void (*end_step)(void *context);
    void *context;
};

#endif
