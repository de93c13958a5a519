/* Chunks in a list, the newest first; what does not fit into the rest of the newest opens another.
 * A large piece gets a chunk of its own size, behind the newest, whose rest stays in use. */
#include "models/chat_template/template_arena.h"

#include "config/checked.h"

#include <stdalign.h>
#include <stdlib.h>
#include <sys/random.h>

#define MIN_CHUNK_BYTES ((size_t)16 << 10)
#define MAX_CHUNK_BYTES ((size_t)1 << 20)

struct chunk {
    struct chunk *next;
    size_t used, bytes; /* of data */
    alignas(max_align_t) char data[];
};

struct template_arena {
    struct chunk *chunks;
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

void template_arena_destroy(struct template_arena *arena) {
    if (arena == NULL)
        return;
    for (struct chunk *chunk = arena->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
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

static struct chunk *make_chunk(struct template_arena *arena, size_t bytes) {
    size_t left = arena->max_bytes - arena->bytes;
    if (bytes > left) {
        arena->is_full = true;
        return NULL;
    }
    struct chunk *chunk = malloc(sizeof(*chunk) + bytes);
    if (chunk == NULL)
        return NULL;
    arena->bytes += bytes;
    chunk->used = 0;
    chunk->bytes = bytes;
    return chunk;
}

static struct chunk *add_chunk(struct template_arena *arena, size_t bytes) {
    struct chunk *newest = arena->chunks;
    if (newest != NULL && bytes > MAX_CHUNK_BYTES / 4) {
        struct chunk *chunk = make_chunk(arena, bytes);
        if (chunk == NULL)
            return NULL;
        chunk->next = newest->next;
        newest->next = chunk;
        return chunk;
    }
    size_t usual = newest == NULL ? MIN_CHUNK_BYTES : newest->bytes * 2;
    if (usual > MAX_CHUNK_BYTES)
        usual = MAX_CHUNK_BYTES;
    if (usual > arena->max_bytes - arena->bytes)
        usual = arena->max_bytes - arena->bytes;
    struct chunk *chunk = make_chunk(arena, bytes > usual ? bytes : usual);
    if (chunk == NULL)
        return NULL;
    chunk->next = newest;
    arena->chunks = chunk;
    return chunk;
}

static void *alloc_aligned(struct template_arena *arena, size_t bytes, size_t alignment) {
    struct chunk *chunk = arena->chunks;
    if (arena->failed)
        return NULL;
    size_t skipped = chunk == NULL ? 0 : -chunk->used & (alignment - 1);
    if (chunk == NULL || skipped > chunk->bytes - chunk->used ||
        bytes > chunk->bytes - chunk->used - skipped) {
        chunk = add_chunk(arena, bytes);
        skipped = 0;
        arena->failed = chunk == NULL;
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

void template_arena_shrink_text(struct template_arena *arena, const char *end, size_t bytes) {
    struct chunk *chunk = arena->chunks;
    if (chunk != NULL && end == chunk->data + chunk->used)
        chunk->used -= bytes;
}
