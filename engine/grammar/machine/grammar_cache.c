#include "engine/grammar/machine/grammar_cache.h"

#include "engine/grammar/machine/grammar_program.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ENTRIES 512

struct entry {
    struct text key;
    uint64_t hash;
    struct grammar *grammar; /* NULL: it is not shared */
    uint64_t last_use;
};

struct grammar_cache {
    size_t max_bytes;
    pthread_mutex_t mutex; /* of the rest */
    struct entry entries[MAX_ENTRIES];
    int num_entries;
    uint64_t num_uses, hits, misses;
};

struct grammar_cache *grammar_cache_create(size_t max_bytes) {
    struct grammar_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL)
        return NULL;
    cache->max_bytes = max_bytes;
    pthread_mutex_init(&cache->mutex, NULL);
    return cache;
}

static void drop(struct grammar_cache *cache, struct entry *entry) {
    grammar_unref(entry->grammar);
    free((char *)entry->key.data);
    *entry = cache->entries[--cache->num_entries];
}

void grammar_cache_destroy(struct grammar_cache *cache) {
    if (cache == NULL)
        return;
    while (cache->num_entries > 0)
        drop(cache, &cache->entries[0]);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

/* FNV-1a, 64 bits: Fowler, Noll, Vo, RFC 9923. */
static uint64_t hash_key(struct text key) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < key.length; i++)
        hash = (hash ^ (uint8_t)key.data[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static struct entry *find(struct grammar_cache *cache, struct text key, uint64_t hash) {
    for (int i = 0; i < cache->num_entries; i++) {
        struct entry *entry = &cache->entries[i];
        if (entry->hash == hash && entry->key.length == key.length &&
            memcmp(entry->key.data, key.data, key.length) == 0)
            return entry;
    }
    return NULL;
}

static size_t entry_bytes(const struct entry *entry) {
    return entry->key.length + (entry->grammar != NULL ? grammar_bytes(entry->grammar) : 0);
}

static size_t count_bytes(const struct grammar_cache *cache) {
    size_t bytes = 0;
    for (int i = 0; i < cache->num_entries; i++)
        bytes += entry_bytes(&cache->entries[i]);
    return bytes;
}

static void drop_oldest(struct grammar_cache *cache) {
    struct entry *oldest = &cache->entries[0];
    for (int i = 1; i < cache->num_entries; i++)
        if (cache->entries[i].last_use < oldest->last_use)
            oldest = &cache->entries[i];
    drop(cache, oldest);
}

/* Machines grow while they are used. */
static void trim(struct grammar_cache *cache, size_t more_bytes) {
    while (cache->num_entries > 0 && count_bytes(cache) + more_bytes > cache->max_bytes)
        drop_oldest(cache);
}

/* The tokens that a given-up mask lacks depend on what the machine knew before. A request then gets
 * its own grammar, so that its text does not depend on earlier requests. */
static void stop_sharing(struct entry *entry) {
    if (entry->grammar == NULL || !atomic_load(&entry->grammar->has_given_up))
        return;
    grammar_unref(entry->grammar);
    entry->grammar = NULL;
}

struct grammar *grammar_cache_find(struct grammar_cache *cache, struct text key) {
    uint64_t hash = hash_key(key);
    pthread_mutex_lock(&cache->mutex);
    struct entry *entry = find(cache, key, hash);
    struct grammar *found = NULL;
    if (entry != NULL) {
        stop_sharing(entry);
        found = entry->grammar != NULL ? grammar_ref(entry->grammar) : NULL;
        entry->last_use = ++cache->num_uses;
    }
    cache->hits += found != NULL;
    cache->misses += found == NULL;
    trim(cache, 0);
    pthread_mutex_unlock(&cache->mutex);
    return found;
}

static void add(struct grammar_cache *cache, const struct entry *entry) {
    size_t bytes = entry_bytes(entry);
    if (bytes > cache->max_bytes || find(cache, entry->key, entry->hash) != NULL)
        return;
    struct entry kept = *entry;
    char *copy = malloc(entry->key.length + 1);
    if (copy == NULL)
        return;
    trim(cache, bytes);
    if (cache->num_entries == MAX_ENTRIES)
        drop_oldest(cache);
    kept.key = text_copy(entry->key, &(char *){copy});
    kept.last_use = ++cache->num_uses;
    grammar_ref(kept.grammar);
    cache->entries[cache->num_entries++] = kept;
}

void grammar_cache_add(struct grammar_cache *cache, struct text key, struct grammar *grammar) {
    struct entry entry = {.key = key, .hash = hash_key(key), .grammar = grammar};
    pthread_mutex_lock(&cache->mutex);
    add(cache, &entry);
    pthread_mutex_unlock(&cache->mutex);
}

void grammar_cache_stats(struct grammar_cache *cache, struct grammar_cache_stats *out) {
    pthread_mutex_lock(&cache->mutex);
    trim(cache, 0);
    *out = (struct grammar_cache_stats){cache->hits, cache->misses, count_bytes(cache),
                                        cache->num_entries};
    pthread_mutex_unlock(&cache->mutex);
}
