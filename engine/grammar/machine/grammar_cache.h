/* Compiled grammars by their source text, so that the next request with the same text costs nothing
 * and reuses the parse states and masks found by others. All threads. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_CACHE_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_CACHE_H

#include "engine/grammar/machine/grammar.h"

#define GRAMMAR_CACHE_MAX_BYTES ((size_t)64 << 20) /* of a server */

struct grammar_cache;

struct grammar_cache_stats {
    uint64_t hits, misses;
    size_t bytes; /* of the grammars, their machines' memory, and the keys */
    int32_t num_grammars;
};

/* Creates a cache of at most max_bytes. The least recently used grammars are evicted, when a
 * grammar or the statistics are asked for. A sequence that still uses an evicted one keeps it.
 * Returns NULL when memory is short. */
struct grammar_cache *grammar_cache_create(size_t max_bytes);
void grammar_cache_destroy(struct grammar_cache *cache); /* accepts NULL */

/* Returns the grammar, with a reference for the caller. NULL: it is not in the cache, or one of its
 * masks was given up. Such a grammar is no longer shared, because the contents of these masks
 * depend on earlier requests. */
struct grammar *grammar_cache_find(struct grammar_cache *cache, struct text key);
/* Takes a reference. Keeps nothing when memory is short or the key already exists. */
void grammar_cache_add(struct grammar_cache *cache, struct text key, struct grammar *grammar);
void grammar_cache_stats(struct grammar_cache *cache, struct grammar_cache_stats *out);

#endif
