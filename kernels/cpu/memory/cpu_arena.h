/* Places weights next to each other in large mappings. A matrix of a small model is smaller than a
 * huge page, so they only fill huge pages together; a step reads all of them, and would otherwise
 * spend its time in TLB misses. Memory is zeroed, aligned to 64 bytes, and provided by the system
 * page by page on first touch. One thread at a time. */
#ifndef QUIRE_KERNELS_CPU_MEMORY_CPU_ARENA_H
#define QUIRE_KERNELS_CPU_MEMORY_CPU_ARENA_H

#include "config/base/error.h"

#include <stddef.h>

struct cpu_arena_chunk;

/* A zeroed arena is empty. There is no finish function: a chunk is unmapped together with its last
 * span. */
struct cpu_arena {
    struct cpu_arena_chunk *newest; /* the one with free room */
};

struct cpu_arena_span {
    void *data;
    struct cpu_arena_chunk *chunk;
};

int cpu_arena_alloc(struct cpu_arena *arena, size_t bytes, struct cpu_arena_span *out,
                    struct error *err);
/* Accepts a zeroed span; zeroes it. */
void cpu_arena_free(struct cpu_arena *arena, struct cpu_arena_span *span);

#endif
