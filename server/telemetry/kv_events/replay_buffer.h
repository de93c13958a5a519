/* The last batches that were published, encoded, for whoever has missed some: as many as its bounds
 * allow, of which a new one drives the oldest out. No lock of its own. */
#ifndef QUIRE_SERVER_KV_EVENTS_REPLAY_BUFFER_H
#define QUIRE_SERVER_KV_EVENTS_REPLAY_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct replay_entry {
    uint64_t sequence;
    char *data;
    size_t length;
};

struct replay_buffer {
    struct replay_entry *entries; /* a ring of max_entries */
    int32_t max_entries, first, num_entries;
    size_t num_bytes, max_bytes; /* of the data */
};

/* max_entries >= 1. Returns -1 when memory is short. */
int replay_buffer_init(struct replay_buffer *buffer, int32_t max_entries, size_t max_bytes);
void replay_buffer_finish(struct replay_buffer *buffer); /* accepts a zeroed one */

/* Copies the data. sequence: higher than all before it. Without memory, or larger than all that may
 * be kept, it is not kept. */
void replay_buffer_keep(struct replay_buffer *buffer, uint64_t sequence, const void *data,
                        size_t length);
/* Returns the highest number that is kept; 0 where nothing is. */
uint64_t replay_buffer_last(const struct replay_buffer *buffer);
/* Returns the oldest entry of that number or a higher one, valid until the next one is kept; NULL:
 * there is none. */
const struct replay_entry *replay_buffer_find(const struct replay_buffer *buffer,
                                              uint64_t sequence);

#endif
