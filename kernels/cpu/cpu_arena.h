/* Weights side by side in large mappings. A matrix of a small model is smaller than a huge page, so
 * only together do they fill some; a step reads them all, and would else spend its time in TLB
 * misses. Memory is zeroed, aligned to 64 bytes, and given by the system page by page on first
 * touch. One thread at a time. */
#ifndef QUIRE_KERNELS_CPU_CPU_ARENA_H
#define QUIRE_KERNELS_CPU_CPU_ARENA_H

#include "config/base/error.h"

#include <stddef.h>

struct cpu_arena_chunk;

/* A zeroed one is empty. There is no finish: a chunk is unmapped with the last span in it. */
struct cpu_arena {
    struct cpu_arena_chunk *newest; /* the one that has room */
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
