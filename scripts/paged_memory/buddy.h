/* Allocates contiguous runs of slots by the buddy system (Knowlton, "A fast storage allocator",
 * CACM 8, 1965): sizes are powers of two, a free run is halved as often as needed, and two free
 * halves become one again. The pool need not be a power of two: it starts as one run for each bit
 * of its size. The lowest fitting run is taken. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_BUDDY_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_BUDDY_H

#include <stdint.h>

#define BUDDY_MAX_ORDER 14
#define BUDDY_MAX_SLOTS (2 << BUDDY_MAX_ORDER) /* exclusive */

struct buddy {
    int32_t num_slots;
    /* Bit i of free[o]: the run of 1 << o slots at i << o is free, and no part of a larger one. */
    uint64_t free[BUDDY_MAX_ORDER + 1][BUDDY_MAX_SLOTS / 64];
};

/* 1 <= num_slots < BUDDY_MAX_SLOTS. */
void buddy_init(struct buddy *buddy, int32_t num_slots);
/* Returns the first slot of a run of `count` slots, rounded up to a power of two; -1 when there is
 * none. */
int32_t buddy_alloc(struct buddy *buddy, int32_t count);
/* Takes a run from buddy_alloc, with the same count. */
void buddy_free(struct buddy *buddy, int32_t first, int32_t count);

/* Returns the smallest power of two >= count >= 1. */
int32_t buddy_round_up(int32_t count);

#endif
