/* Responses that are kept to be fetched and continued (--response-store-bytes). Each belongs to the
 * API key that made it; with another key it does not exist. Everything that is kept, including the
 * table that finds it, has at most the given number of bytes; the least recently used responses are
 * dropped for a new one. Any thread.
 *
 * Items are lines of JSON without white space. Each is an object whose first member is its "id",
 * and ends with a line feed. First come the items that the response was made from, then its output.
 * A response that continues another one has all of its items; they are shared (stored_items.h) and
 * counted once, so no response depends on another one.
 *
 * What a client is sent of a response is read from where it is kept, in parts and without a copy,
 * by a reader. A deleted response stays until its readers are closed; a response that is dropped to
 * make room is lost to them. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSE_STORE_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSE_STORE_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RESPONSE_STORE_MIN_BYTES (64 * 1024)
#define RESPONSE_STORE_MAX_ITEM_BYTES                                                              \
    (4 << 20) /* of all items of a response; a longer one is not kept */

struct response_store;
struct stored_entry;
struct stored_items;

/* A position in a response. Zeroed, it reads nothing; otherwise it must not be moved in memory
 * until it is closed. */
struct response_reader {
    struct response_store *store;
    struct stored_entry *entry; /* in the store; NULL: the response is gone */
    struct response_reader *previous, *next;
    bool is_of_events;
    size_t at, length; /* reading begins at `at`, and covers `length` bytes */
};

/* A response that is put into the store; everything is copied. */
struct stored_response {
    const char *id;
    int32_t tenant;                /* of its key (auth.h), or -1 */
    struct text object;            /* the response as JSON */
    struct stored_items *previous; /* of the continued response, shared; or NULL */
    struct text items;             /* those that this response adds */
    struct text events;            /* of its stream, as they were sent; empty: none */
    size_t input_bytes;            /* of the items that it adds, those of its input */
    bool is_background;
};

struct response_store_stats {
    size_t bytes, num_entries;
    uint64_t num_evicted; /* to make room */
    uint64_t num_refused; /* not kept, because they were too large or memory was short */
};

/* max_bytes: at least RESPONSE_STORE_MIN_BYTES. Returns NULL when memory is short. */
struct response_store *response_store_create(size_t max_bytes);
void response_store_destroy(struct response_store *store); /* accepts NULL */

/* Keeps a response, and replaces one of the same tenant and id. Returns false when it is too large
 * or memory is short. */
bool response_store_put(struct response_store *store, const struct stored_response *response);
/* Counts a response that could not even be passed to response_store_put. */
void response_store_refuse(struct response_store *store);

/* Opens a reader of the object of a response, or of its events, of which there may be none. This
 * makes the response the most recently used one; so does each part that is read. Returns false if
 * it does not exist. out_is_background may be NULL. */
bool response_store_open(struct response_store *store, int32_t tenant, struct text id,
                         bool is_of_events, struct response_reader *out, bool *out_is_background);
/* Reads a part that begins `offset` bytes after the position. Returns its length, 0 at the end; -1:
 * the response is gone. */
ssize_t response_reader_read(struct response_reader *reader, size_t offset, char *out,
                             size_t capacity);
/* Returns where the wanted events begin, -1: nowhere. Must be fast. */
typedef ssize_t response_seek(struct text events, void *context);
/* Moves the position to what `seek` returns, and returns that; also -1 if the response is gone. */
ssize_t response_reader_seek(struct response_reader *reader, response_seek *seek, void *context);
void response_reader_close(struct response_reader *reader); /* zeroes it; accepts a zeroed one */

/* Appends the items of a response, and makes it the most recently used one. Returns false if it
 * does not exist. out_input_bytes: of all items except its output. */
bool response_store_read_items(struct response_store *store, int32_t tenant, struct text id,
                               struct byte_buffer *out, size_t *out_input_bytes);
/* Appends the items of a response, makes it the most recently used one, and returns its items, to
 * be continued and given back. Until then their bytes are counted, whatever happens to the
 * response. Returns NULL if it does not exist. */
struct stored_items *response_store_hold_items(struct response_store *store, int32_t tenant,
                                               struct text id, struct byte_buffer *out);
/* Appends the items that a response added and one of which has this id. If several responses match,
 * takes the most recently used one. Returns false if there is none. */
bool response_store_find_item(struct response_store *store, int32_t tenant, struct text id,
                              struct byte_buffer *out);
void response_store_release_items(struct response_store *store,
                                  struct stored_items *items); /* accepts NULL */
/* Deletes a response; returns false if it does not exist. */
bool response_store_delete(struct response_store *store, int32_t tenant, struct text id);

/* store may be NULL: nothing is kept. */
struct response_store_stats response_store_stats(struct response_store *store);

#endif
