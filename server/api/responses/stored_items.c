#include "server/api/responses/stored_items.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The most that malloc adds: a header and rounding, or whole pages for large blocks. */
#define SMALL_BYTES ((size_t)64 * 1024)
#define SMALL_OVERHEAD 32
#define LARGE_OVERHEAD ((size_t)2 * 4096)

struct stored_items {
    struct stored_items *previous;
    int64_t num_users;
    size_t length, total_length, total_memory_bytes; /* total: with those before */
    char data[];
};

size_t stored_memory_bytes(size_t bytes) {
    return bytes + (bytes < SMALL_BYTES ? SMALL_OVERHEAD : LARGE_OVERHEAD);
}

size_t stored_items_memory_bytes(size_t length) {
    return stored_memory_bytes(sizeof(struct stored_items) + length);
}

size_t stored_items_total_memory_bytes(const struct stored_items *items) {
    return items != NULL ? items->total_memory_bytes : 0;
}

struct stored_items *stored_items_create(struct stored_items *previous, struct text text) {
    struct stored_items *items = malloc(sizeof(*items) + text.length);
    if (items == NULL)
        return NULL;
    items->previous = stored_items_share(previous);
    items->num_users = 1;
    items->length = text.length;
    items->total_memory_bytes =
        stored_items_total_memory_bytes(previous) + stored_items_memory_bytes(text.length);
    items->total_length = stored_items_length(previous) + text.length;
    if (text.length > 0)
        memcpy(items->data, text.data, text.length);
    return items;
}

struct stored_items *stored_items_share(struct stored_items *items) {
    if (items != NULL)
        items->num_users++;
    return items;
}

size_t stored_items_release(struct stored_items *items) {
    size_t bytes = 0;
    while (items != NULL && --items->num_users == 0) {
        struct stored_items *previous = items->previous;
        bytes += stored_items_memory_bytes(items->length);
        free(items);
        items = previous;
    }
    return bytes;
}

size_t stored_items_length(const struct stored_items *items) {
    return items != NULL ? items->total_length : 0;
}

size_t stored_items_shared_length(const struct stored_items *items) {
    return items != NULL ? items->total_length - items->length : 0;
}

struct text stored_items_added(const struct stored_items *items) {
    return (struct text){items->data, items->length};
}

/* The list begins with the last items, so the bytes are filled in from the end. */
void stored_items_write(const struct stored_items *items, struct byte_buffer *out) {
    size_t end = out->length + stored_items_length(items);
    byte_buffer_reserve(out, end);
    if (out->failed || items == NULL)
        return;
    out->length = end;
    for (; items != NULL; items = items->previous) {
        end -= items->length;
        memcpy(out->data + end, items->data, items->length);
    }
}
