/* Responses that are kept to be fetched and continued (--response-store-bytes), each for the API
 * key that made it: another one's is as if it were not there. All that is kept, with the table
 * that finds it, has at most the bytes given; for a new one, those that were used longest ago go.
 * Any thread.
 *
 * Items are lines of JSON without white space, each an object whose first member is its "id" and
 * each with a line feed at its end: those that the response was made from, then its output. What
 * continues a response has all of its items, shared with it (stored_items.h) and counted once, so
 * that no response needs another one.
 *
 * What a client is sent of a response is read from where it is kept, in pieces and without a
 * copy, by a reader: a response that is deleted stays until its readers have gone, one that has
 * to make room is lost to them. */
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
    (4 << 20) /* of all items of a response: longer are not kept */

struct response_store;
struct stored_entry;
struct stored_items;

/* A place in a response. Zeroed, it reads nothing; else it does not move until it is closed. */
struct response_reader {
    struct response_store *store;
    struct stored_entry *entry; /* the store's; NULL: the response is gone */
    struct response_reader *previous, *next;
    bool is_of_events;
    size_t at, length; /* what is read begins there, and has so many bytes */
};

/* A response as it is put in; all of it is copied. */
struct stored_response {
    const char *id;
    int32_t tenant;                /* of its key (auth.h), or -1 */
    struct text object;            /* the response as JSON */
    struct stored_items *previous; /* those of the response that it continues, which are shared; or
                                      NULL */
    struct text items;             /* those that it adds */
    struct text events;            /* of its stream, as they were sent; empty: it has none */
    size_t input_bytes;            /* of the items that it adds: what its input has */
    bool is_background;
};

struct response_store_stats {
    size_t bytes, num_entries;
    uint64_t num_evicted; /* to make room */
    uint64_t num_refused; /* never kept, as they were too large or memory was short */
};

/* max_bytes: at least RESPONSE_STORE_MIN_BYTES. NULL when memory is short. */
struct response_store *response_store_create(size_t max_bytes);
void response_store_destroy(struct response_store *store); /* accepts NULL */

/* Keeps a response, in the place of one of the same tenant and id; false when it is too large or
 * memory is short. */
bool response_store_put(struct response_store *store, const struct stored_response *response);
/* Counts a response that could not even be put in. */
void response_store_refuse(struct response_store *store);

/* Opens a reader of the object of a response, or of its events, of which it may have none. The
 * response is then the one used last, and again with each piece that is read. False: it is not
 * there. out_is_background: may be NULL. */
bool response_store_open(struct response_store *store, int32_t tenant, struct text id,
                         bool is_of_events, struct response_reader *out, bool *out_is_background);
/* Reads a piece, which begins so many bytes after the place. Returns its length, 0 at the end;
 * -1: the response is gone. */
ssize_t response_reader_read(struct response_reader *reader, size_t offset, char *out,
                             size_t capacity);
/* Returns where events begin, -1: nowhere; must be quick. */
typedef ssize_t response_seek(struct text events, void *context);
/* Moves the place to where `seek` says. Returns what that returned; -1 also where the response is
 * gone. */
ssize_t response_reader_seek(struct response_reader *reader, response_seek *seek, void *context);
void response_reader_close(struct response_reader *reader); /* zeroes it; accepts a zeroed one */

/* Appends the items of a response, which is then the one used last. False: it is not there.
 * out_input_bytes: of all items, without its output. */
bool response_store_read_items(struct response_store *store, int32_t tenant, struct text id,
                               struct byte_buffer *out, size_t *out_input_bytes);
/* Appends the items of a response, which is then the one used last, and returns them, to be
 * continued and given back: so long their bytes are counted, whatever becomes of the response.
 * NULL: it is not there. */
struct stored_items *response_store_hold_items(struct response_store *store, int32_t tenant,
                                               struct text id, struct byte_buffer *out);
/* Appends the items that a response added and one of which has this id: of those responses the one
 * used last. False: there is none. */
bool response_store_find_item(struct response_store *store, int32_t tenant, struct text id,
                              struct byte_buffer *out);
void response_store_release_items(struct response_store *store,
                                  struct stored_items *items); /* accepts NULL */
/* Forgets a response; false: it is not there. */
bool response_store_delete(struct response_store *store, int32_t tenant, struct text id);

/* store may be NULL: nothing is kept. */
struct response_store_stats response_store_stats(struct response_store *store);

#endif
