/* Learns which blocks the prefix cache knows: told of every change of that set, in order, whoever
 * adds and takes away what he is told has the set itself. A value of functions, given in the
 * configuration; nothing that the engine does follows from it.
 *
 * Called by the engine's thread, and, once that has ended, by whoever destroys the engine: the cache
 * says at its end that it is cleared. No function may wait. */
#ifndef QUIRE_ENGINE_KV_KV_EVENT_SINK_H
#define QUIRE_ENGINE_KV_KV_EVENT_SINK_H

#include "engine/kv/block_key.h"

struct block_content;

struct kv_event_sink {
    /* A full block of that content is found from now on; none of its key was. Valid during the
     * call. */
    void (*stored)(void *context, const struct block_content *content);
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
