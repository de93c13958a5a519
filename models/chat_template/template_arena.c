/* Chunks in a list, the newest first; what does not fit into the rest of the newest opens another.
 * A large piece gets a chunk of exactly its size, in a separate list, and a large text can be
 * resized there: realloc resizes without the copies that an arena would keep. */
#include "models/chat_template/template_value_private.h"

#include "config/base/checked.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MIN_CHUNK_BYTES ((size_t)16 << 10)
#define MAX_CHUNK_BYTES ((size_t)1 << 20)

/* From this size on a piece has its own chunk. */
#define LARGE_BYTES ((size_t)128 << 10)

struct chunk {
    struct chunk *next, *previous; /* the second in the list of the large ones only */
    size_t used, bytes;            /* of data */
    alignas(max_align_t) char data[];
};

struct template_arena {
    struct chunk *chunks, *large;
    size_t max_bytes, bytes; /* of all chunks */
    uint64_t seed;
    bool is_full, failed;
};

struct template_arena *template_arena_create(size_t max_bytes) {
    struct template_arena *arena = calloc(1, sizeof(*arena));
    if (arena == NULL)
        return NULL;
    arena->max_bytes = max_bytes;
    if (getrandom(&arena->seed, sizeof(arena->seed), GRND_NONBLOCK) != sizeof(arena->seed))
        arena->seed = (uint64_t)(uintptr_t)arena;
    return arena;
}

static void free_chunks(struct chunk *chunk) {
    while (chunk != NULL) {
        struct chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
}

void template_arena_destroy(struct template_arena *arena) {
    if (arena == NULL)
        return;
    free_chunks(arena->chunks);
    free_chunks(arena->large);
    free(arena);
}

bool template_arena_is_full(const struct template_arena *arena) {
    return arena->is_full;
}

bool template_arena_failed(const struct template_arena *arena) {
    return arena->failed;
}

size_t template_arena_max_bytes(const struct template_arena *arena) {
    return arena->max_bytes;
}

uint64_t template_arena_seed(const struct template_arena *arena) {
    return arena->seed;
}

/* Makes a new chunk, or gives `old` another size. NULL without memory; `old` stays as it is then.
 */
static struct chunk *resize_chunk(struct template_arena *arena, struct chunk *old, size_t bytes) {
    size_t had = old != NULL ? old->bytes : 0;
    if (bytes > arena->max_bytes - (arena->bytes - had)) {
        arena->is_full = arena->failed = true;
        return NULL;
    }
    struct chunk *chunk = realloc(old, sizeof(*chunk) + bytes);
    if (chunk == NULL) {
        arena->failed = true;
        return NULL;
    }
    arena->bytes += bytes - had;
    chunk->bytes = bytes;
    return chunk;
}

/* Links a chunk that is the first of the large ones, or may have moved among them. */
static void link_large(struct template_arena *arena, struct chunk *chunk) {
    if (chunk->previous != NULL)
        chunk->previous->next = chunk;
    else
        arena->large = chunk;
    if (chunk->next != NULL)
        chunk->next->previous = chunk;
}

static char *alloc_large(struct template_arena *arena, size_t bytes) {
    struct chunk *chunk = resize_chunk(arena, NULL, bytes);
    if (chunk == NULL)
        return NULL;
    chunk->next = arena->large;
    chunk->previous = NULL;
    link_large(arena, chunk);
    return chunk->data;
}

static struct chunk *add_chunk(struct template_arena *arena, size_t bytes) {
    struct chunk *newest = arena->chunks;
    size_t left = arena->max_bytes - arena->bytes;
    size_t usual = newest == NULL ? MIN_CHUNK_BYTES : newest->bytes * 2;
    if (usual > MAX_CHUNK_BYTES)
        usual = MAX_CHUNK_BYTES;
    if (usual > left)
        usual = left;
    struct chunk *chunk = resize_chunk(arena, NULL, bytes > usual ? bytes : usual);
    if (chunk == NULL)
        return NULL;
    chunk->used = 0;
    chunk->next = newest;
    arena->chunks = chunk;
    return chunk;
}

static void *alloc_aligned(struct template_arena *arena, size_t bytes, size_t alignment) {
    struct chunk *chunk = arena->chunks;
    if (arena->failed)
        return NULL;
    if (bytes > LARGE_BYTES)
        return alloc_large(arena, bytes);
    size_t skipped = chunk == NULL ? 0 : -chunk->used & (alignment - 1);
    if (chunk == NULL || skipped > chunk->bytes - chunk->used ||
        bytes > chunk->bytes - chunk->used - skipped) {
        chunk = add_chunk(arena, bytes);
        skipped = 0;
        if (chunk == NULL)
            return NULL;
    }
    void *data = chunk->data + chunk->used + skipped;
    chunk->used += skipped + bytes;
    return data;
}

void *template_arena_alloc(struct template_arena *arena, size_t bytes) {
    return alloc_aligned(arena, bytes, alignof(max_align_t));
}

void *template_arena_alloc_items(struct template_arena *arena, size_t num, size_t item_bytes) {
    size_t bytes;
    if (!checked_mul(num, item_bytes, &bytes)) {
        arena->is_full = arena->failed = true;
        return NULL;
    }
    return template_arena_alloc(arena, bytes);
}

char *template_arena_alloc_text(struct template_arena *arena, size_t bytes) {
    return alloc_aligned(arena, bytes, 1);
}

bool template_arena_extend_text(struct template_arena *arena, const char *end, size_t bytes) {
    struct chunk *chunk = arena->chunks;
    if (arena->failed || chunk == NULL || end != chunk->data + chunk->used ||
        bytes > chunk->bytes - chunk->used)
        return false;
    chunk->used += bytes;
    return true;
}

static char *resize_large(struct template_arena *arena, char *data, size_t bytes) {
    struct chunk *old = (struct chunk *)(data - offsetof(struct chunk, data));
    struct chunk *chunk = resize_chunk(arena, old, bytes);
    if (chunk == NULL)
        return NULL;
    link_large(arena, chunk);
    return chunk->data;
}

char *template_arena_resize_text(struct template_arena *arena, char *data, size_t had,
                                 size_t bytes) {
    struct chunk *newest = arena->chunks;
    if (arena->failed)
        return NULL;
    if (had > LARGE_BYTES)
        return resize_large(arena, data, bytes > LARGE_BYTES ? bytes : LARGE_BYTES + 1);
    bool is_last = had > 0 && newest != NULL && data + had == newest->data + newest->used;
    if (bytes <= had) {
        newest->used -= is_last ? had - bytes : 0;
        return data;
    }
    if (is_last && bytes <= LARGE_BYTES &&
        template_arena_extend_text(arena, data + had, bytes - had))
        return data;
    char *moved = template_arena_alloc_text(arena, bytes);
    if (moved != NULL && had > 0)
        memcpy(moved, data, had);
    return moved;
}
