#include "kernels/cpu/memory/cpu_arena.h"

#include "config/base/checked.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT ((size_t)64)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define CHUNK_BYTES ((size_t)32 << 20) /* or one larger span */

struct cpu_arena_chunk {
    char *mapping;
    size_t mapping_bytes;
    char *data; /* in the mapping, at the start of a huge page */
    size_t bytes, used_bytes;
    size_t num_spans;
};

static size_t align_up(size_t value, size_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

/* bytes is a multiple of ALIGNMENT. */
static struct cpu_arena_chunk *chunk_create(size_t bytes) {
    size_t mapping_bytes;
    struct cpu_arena_chunk *chunk = calloc(1, sizeof(*chunk));
    if (chunk == NULL ||
        !checked_add(bytes < CHUNK_BYTES ? CHUNK_BYTES : bytes, HUGE_PAGE_BYTES, &mapping_bytes)) {
        free(chunk);
        return NULL;
    }
    void *mapping =
        mmap(NULL, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        free(chunk);
        return NULL;
    }
    madvise(mapping, mapping_bytes, MADV_HUGEPAGE);
    chunk->mapping = mapping;
    chunk->mapping_bytes = mapping_bytes;
    size_t skipped = align_up((uintptr_t)mapping, HUGE_PAGE_BYTES) - (uintptr_t)mapping;
    chunk->data = chunk->mapping + skipped;
    chunk->bytes = mapping_bytes - skipped;
    return chunk;
}

int cpu_arena_alloc(struct cpu_arena *arena, size_t bytes, struct cpu_arena_span *out,
                    struct error *err) {
    struct cpu_arena_chunk *chunk = arena->newest;
    size_t padded;
    if (!checked_add(bytes, ALIGNMENT - 1, &padded))
        padded = SIZE_MAX;
    padded -= padded % ALIGNMENT;
    if (chunk == NULL || padded > chunk->bytes - chunk->used_bytes) {
        chunk = chunk_create(padded);
        if (chunk == NULL)
            return error_set(err, ERROR_MEMORY, "cannot allocate %zu bytes for weights", bytes);
        arena->newest = chunk;
    }
    *out = (struct cpu_arena_span){.data = chunk->data + chunk->used_bytes, .chunk = chunk};
    chunk->used_bytes += padded;
    chunk->num_spans++;
    return 0;
}

void cpu_arena_free(struct cpu_arena *arena, struct cpu_arena_span *span) {
    struct cpu_arena_chunk *chunk = span->chunk;
    *span = (struct cpu_arena_span){0};
    if (chunk == NULL || --chunk->num_spans > 0)
        return;
    if (arena->newest == chunk)
        arena->newest = NULL;
    munmap(chunk->mapping, chunk->mapping_bytes);
    free(chunk);
}
