/* Resends batches that a subscriber has missed, by vLLM's protocol: a ROUTER socket, with its own
 * thread. A request is [empty frame, the first number wanted: 8 bytes, big-endian]. The answers are
 * a message [empty frame, number, batch] for each batch still kept from there on, and finally one
 * with the number -1 and no batch. A REQ socket sends the empty frame by itself, but accepts only
 * one answer; DEALER accepts all. Other messages are ignored.
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

/* The most recently published batches, encoded, for subscribers that missed some: as many as the
 * bounds allow; a new one evicts the oldest. It has no lock. */

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

/* Copies the data. sequence: higher than all before it. It is not kept when memory is short or it
 * exceeds the bound alone. */
void replay_buffer_keep(struct replay_buffer *buffer, uint64_t sequence, const void *data,
                        size_t length);
/* Returns the highest kept number; 0 if none is kept. */
uint64_t replay_buffer_last(const struct replay_buffer *buffer);
/* Returns the oldest entry with that number or a higher one, valid until the next one is kept;
 * NULL: none. */
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
/* Called after the context was shut down, which the thread waits for. Accepts NULL. */
void kv_event_replay_destroy(struct kv_event_replay *replay);

#endif
