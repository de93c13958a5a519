/* Arrays that grow: a pointer, how many items there is room for, and how many are in use, the
 * latter kept by the caller. A zeroed one is empty; the caller frees the pointer. */
#ifndef QUIRE_CONFIG_BASE_ARRAY_H
#define QUIRE_CONFIG_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Doubles the room until count items of item_bytes fit; use array_reserve. */
bool array_grow(void *items, size_t *capacity, size_t count, size_t item_bytes);

/* Makes room for count items in all. items is the address of the array's pointer, of whatever type.
 * Returns false, and nothing has changed, when memory is short or no size_t holds the bytes. The
 * first 256 bytes are allocated at once, room never shrinks, and new items are not initialised. */
static inline bool array_reserve(void *items, size_t *capacity, size_t count, size_t item_bytes) {
    return count <= *capacity || array_grow(items, capacity, count, item_bytes);
}

#endif
