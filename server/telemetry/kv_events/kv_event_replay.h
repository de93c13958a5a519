/* Gives back batches that a subscriber has missed, by vLLM's protocol: a ROUTER socket, with a thread
 * of its own. A request is [empty frame, the first number wanted: 8 bytes, the highest first]; its
 * answers are a message [empty frame, number, batch] for each batch that is still kept from there on,
 * and at last one with the number -1 and no batch. A REQ socket sends the empty frame by itself, but
 * takes one answer only; DEALER takes all. Anything else that comes is ignored.
 *
 * Requests are answered one after the other. A subscriber that does not read what it asked for is
 * given up soon. */
#ifndef QUIRE_SERVER_KV_EVENTS_KV_EVENT_REPLAY_H
#define QUIRE_SERVER_KV_EVENTS_KV_EVENT_REPLAY_H

#include "server/telemetry/kv_events/kv_event_config.h"
#include "server/telemetry/kv_events/zmq_library.h"

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
