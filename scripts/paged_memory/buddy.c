/* Every run lies at a multiple of its size, also the first ones: each bit of the pool's size is
 * smaller than those before it. So a run's buddy is found by one bit of its place, and the buddy of
 * a first run, which would reach beyond the pool, is never free. */
#include "scripts/paged_memory/buddy.h"

#include "config/base/check.h"

#include <stdbool.h>
#include <string.h>

int32_t buddy_round_up(int32_t count) {
    int32_t size = 1;
    while (size < count)
        size *= 2;
    return size;
}

static int order_of(int32_t count) {
    return __builtin_ctz((unsigned)buddy_round_up(count));
}

static void set_free(struct buddy *buddy, int order, int32_t first) {
    int32_t bit = first >> order;
    buddy->free[order][bit / 64] |= UINT64_C(1) << bit % 64;
}

/* Returns whether it was free. */
static bool take(struct buddy *buddy, int order, int32_t first) {
    int32_t bit = first >> order;
    uint64_t mask = UINT64_C(1) << bit % 64;
    bool was_free = (buddy->free[order][bit / 64] & mask) != 0;
    buddy->free[order][bit / 64] &= ~mask;
    return was_free;
}

/* The lowest free run of that order, or -1. */
static int32_t find(const struct buddy *buddy, int order) {
    for (int32_t word = 0; word < BUDDY_MAX_SLOTS / 64; word++)
        if (buddy->free[order][word] != 0)
            return (word * 64 + __builtin_ctzll(buddy->free[order][word])) << order;
    return -1;
}

void buddy_init(struct buddy *buddy, int32_t num_slots) {
    CHECK(num_slots >= 1 && num_slots < BUDDY_MAX_SLOTS);
    memset(buddy, 0, sizeof(*buddy));
    buddy->num_slots = num_slots;
    int32_t first = 0;
    for (int order = BUDDY_MAX_ORDER; order >= 0; order--) {
        if ((num_slots >> order & 1) == 0)
            continue;
        set_free(buddy, order, first);
        first += 1 << order;
    }
}

int32_t buddy_alloc(struct buddy *buddy, int32_t count) {
    CHECK(count >= 1 && count < BUDDY_MAX_SLOTS);
    int wanted = order_of(count), order = wanted;
    int32_t first = -1;
    while (order <= BUDDY_MAX_ORDER && (first = find(buddy, order)) < 0)
        order++;
    if (first < 0)
        return -1;
    take(buddy, order, first);
    while (order-- > wanted)
        set_free(buddy, order, first + (1 << order));
    return first;
}

void buddy_free(struct buddy *buddy, int32_t first, int32_t count) {
    int order = order_of(count);
    while (order < BUDDY_MAX_ORDER && take(buddy, order, first ^ 1 << order))
        first &= ~(1 << order++);
    set_free(buddy, order, first);
}
