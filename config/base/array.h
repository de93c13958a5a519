/* Growing arrays: a pointer, the number of items there is room for, and the number in use, which
 * the caller keeps. A zeroed array is empty. The caller frees the pointer. */
#ifndef QUIRE_CONFIG_BASE_ARRAY_H
#define QUIRE_CONFIG_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* Doubles the room until count items of item_bytes fit; use array_reserve. */
bool array_grow(void *items, size_t *capacity, size_t count, size_t item_bytes);

/* Makes room for count items in all. items is the address of the array's pointer, of any type.
 * Returns false and changes nothing when memory is short or the number of bytes does not fit a
 * size_t. The first 256 bytes are allocated at once, room never shrinks, and new items are not
 * initialised. */
static inline bool array_reserve(void *items, size_t *capacity, size_t count, size_t item_bytes) {
    return count <= *capacity || array_grow(items, capacity, count, item_bytes);
}

#endif
