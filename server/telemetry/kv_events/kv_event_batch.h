/* The changes of one step, as they go from the engine's thread to the publisher's: an item of an
 * outbox (outbox.h), which holds a header and then the events one after the other. A byte_buffer
 * begins with kv_event_batch_begin and grows by kv_event_batch_add; an iterator reads it. */
#ifndef QUIRE_SERVER_KV_EVENTS_KV_EVENT_BATCH_H
#define QUIRE_SERVER_KV_EVENTS_KV_EVENT_BATCH_H

#include "config/base/byte_buffer.h"
#include "engine/kv/kv_event_sink.h"

#include <stdbool.h>
#include <stdint.h>

enum kv_event_kind { KV_EVENT_STORED, KV_EVENT_REMOVED, KV_EVENT_CLEARED };

struct kv_event {
    enum kv_event_kind kind;
    bool is_first, is_private; /* of a stored block, see struct stored_block */
    struct block_key key;      /* but for KV_EVENT_CLEARED */
    struct block_key previous; /* of a stored block: its predecessor's key, or the root */
};

struct kv_event_batch {
    uint64_t sequence; /* the number of the batch, from 0 */
    double time_s;     /* since 1970 */
    size_t num_bytes;  /* of the events that follow */
};

/* A value: where the next event lies. */
struct kv_event_iterator {
    const char *at, *end;
    int32_t block_size;
};

/* Empties the buffer and leaves room for the header. */
void kv_event_batch_begin(struct byte_buffer *buffer);
/* tokens: [block_size] of a stored block, else NULL. A buffer that fails stays so. */
void kv_event_batch_add(struct byte_buffer *buffer, const struct kv_event *event,
                        const int32_t *tokens, int32_t block_size);
/* Returns whether nothing was added; false where adding failed. */
bool kv_event_batch_is_empty(const struct byte_buffer *buffer);
/* Writes the header into a buffer that has not failed. */
void kv_event_batch_end(struct byte_buffer *buffer, uint64_t sequence, double time_s);

/* Reads the batch that begins at the front of *data, and moves *data behind it. */
struct kv_event_iterator kv_event_batch_read(const char **data, int32_t block_size,
                                             struct kv_event_batch *out);
/* Returns false at the end. *out_tokens: [block_size], in the batch; NULL of others than stored
 * blocks. */
bool kv_event_iterator_next(struct kv_event_iterator *iterator, struct kv_event *out,
                            const int32_t **out_tokens);

#endif
