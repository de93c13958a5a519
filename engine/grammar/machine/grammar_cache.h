/* Grammars that were compiled, by the text they were compiled from, so that the next request with
 * the same text pays nothing, and finds the parse states and masks that others have met. All
 * threads. */
#ifndef QUIRE_ENGINE_GRAMMAR_CACHE_H
#define QUIRE_ENGINE_GRAMMAR_CACHE_H

#include "engine/grammar/machine/grammar.h"

#define GRAMMAR_CACHE_MAX_BYTES ((size_t)64 << 20) /* of a server */

struct grammar_cache;

struct grammar_cache_stats {
    uint64_t hits, misses;
    size_t bytes; /* of the grammars, what their machines remember, and the keys */
    int32_t num_grammars;
};

/* Holds at most max_bytes: those that were not asked for longest go first, when a grammar is asked
 * for or the statistics are. A sequence that still uses one keeps it. NULL when memory is short. */
struct grammar_cache *grammar_cache_create(size_t max_bytes);
void grammar_cache_destroy(struct grammar_cache *cache); /* accepts NULL */

/* Returns the grammar, with a reference for the caller; NULL: it is not there, or one of its masks
 * was given up: that one is not shared any more, as what such masks have depends on those who came
 * before. */
struct grammar *grammar_cache_find(struct grammar_cache *cache, struct text key);
/* Takes a reference; keeps nothing where memory is short, or the key is there by now. */
void grammar_cache_add(struct grammar_cache *cache, struct text key, struct grammar *grammar);
void grammar_cache_stats(struct grammar_cache *cache, struct grammar_cache_stats *out);

#endif
