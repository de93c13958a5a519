/* Gives back batches that a subscriber has missed, by vLLM's protocol: a ROUTER socket, with a
 * thread of its own. A request is [empty frame, the first number wanted: 8 bytes, the highest
 * first]; its answers are a message [empty frame, number, batch] for each batch that is still kept
 * from there on, and at last one with the number -1 and no batch. A REQ socket sends the empty
 * frame by itself, but takes one answer only; DEALER takes all. Anything else that comes is
 * ignored.
 *
 * Requests are answered one after the other. A subscriber that does not read what it asked for is
 * given up soon. */
#ifndef QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_REPLAY_H
#define QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_REPLAY_H

#include "server/telemetry/kv_events/kv_event_config.h"
#include "server/telemetry/kv_events/kv_event_socket.h"

#include <stddef.h>
#include <stdint.h>

/* --- What is kept --- */

/* The last batches that were published, encoded, for whoever has missed some: as many as its bounds
 * allow, of which a new one drives the oldest out. No lock of its own. */

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

/* --- The replay --- */

#define KV_EVENT_REPLAY_MAX_BYTES ((size_t)64 << 20) /* of the batches that are kept */

struct kv_event_replay;

/* Starts the thread. zmq and its context outlive the replay. ERROR_CONFIG: config->replay cannot be
 * listened on. */
int kv_event_replay_create(const struct kv_event_config *config, const struct zmq_library *zmq,
                           void *context, struct kv_event_replay **out, struct error *err);
/* One thread. Copies the batch. */
void kv_event_replay_keep(struct kv_event_replay *replay, uint64_t sequence, const void *data,
                          size_t length);
/* Comes after the context was shut down, which the thread waits for. Accepts NULL. */
void kv_event_replay_destroy(struct kv_event_replay *replay);

#endif
