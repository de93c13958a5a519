/* Items of kept responses (response_store.h), which are shared with the responses that continue
 * them. They form a list of blocks. Each block has the items that one response added, and a
 * reference to the block before it, which lives at least as long. Not synchronized. */
#ifndef QUIRE_SERVER_API_RESPONSES_STORED_ITEMS_H
#define QUIRE_SERVER_API_RESPONSES_STORED_ITEMS_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"

#include <stddef.h>

struct stored_items;

/* Returns the most bytes that an allocation of this size takes, with what malloc adds. */
size_t stored_memory_bytes(size_t bytes);
/* Return what a block of items of this length takes; and what these items take, with those before.
 * NULL: none. */
size_t stored_items_memory_bytes(size_t length);
size_t stored_items_total_memory_bytes(const struct stored_items *items);

/* Copies the items into a block after `previous`, which is shared and may be NULL. The caller gets
 * a reference to the new block. Returns NULL when memory is short. */
struct stored_items *stored_items_create(struct stored_items *previous, struct text items);
struct stored_items *stored_items_share(struct stored_items *items); /* accepts NULL */
/* Gives a reference back, and returns the bytes of memory that this freed. Accepts NULL. */
size_t stored_items_release(struct stored_items *items);

/* Return the bytes of all items up to these; and of those that are shared. NULL: none. */
size_t stored_items_length(const struct stored_items *items);
size_t stored_items_shared_length(const struct stored_items *items);
/* Returns the items that were added last. */
struct text stored_items_added(const struct stored_items *items);
/* Appends all items, from the first one on. */
void stored_items_write(const struct stored_items *items, struct byte_buffer *out);

#endif
