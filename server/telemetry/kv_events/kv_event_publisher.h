/* Publishes over ZeroMQ which blocks the prefix cache contains, like vLLM, for routers that send a
 * request to the server with its prefix. It is a PUB socket with messages [topic, the batch's
 * number: 8 bytes, big-endian, the batch: kv_event_format.h]. A batch has the changes of one step;
 * steps without changes have none. Numbers count from 0 without gaps, except where batches were
 * lost.
 *
 *   engine's thread -> batch -> outbox -> publisher's thread -> PUB    -> subscribers
 *                                                            -> replay -> subscribers that ask
 *
 * Nobody waits for a subscriber: what one does not read is lost only for it (ZeroMQ's high-water
 * mark), and what the publisher's thread does not take is lost for all and counted. Both show as a
 * gap in the numbers; the replay can fill the first kind. */
#ifndef QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_PUBLISHER_H
#define QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_PUBLISHER_H

#include "engine/kv/kv_event_sink.h"
#include "server/telemetry/kv_events/kv_event_config.h"

#include <stddef.h>

/* Maximum bytes waiting, being written, and kept for the replay. It does not include what ZeroMQ
 * holds for subscribers that do not read: config.hwm batches. */
#define KV_EVENT_PUBLISHER_MAX_BYTES ((size_t)112 << 20)

struct kv_event_publisher;

struct kv_event_stats {
    uint64_t batches, lost_batches; /* created since the start; of these, lost for all */
};

/* *out is NULL if the configuration publishes nothing. Fails with ERROR_CONFIG when the program was
 * built without it, ZeroMQ is not installed, or an endpoint cannot be used. */
int kv_event_publisher_open(const struct kv_event_config *config, int32_t block_size,
                            struct kv_event_publisher **out, struct error *err);
/* These accept NULL. */
/* The publisher outlives the users of the sink; NULL for no publisher. */
const struct kv_event_sink *kv_event_publisher_sink(const struct kv_event_publisher *publisher);
/* Any thread. */
void kv_event_publisher_get_stats(struct kv_event_publisher *publisher, struct kv_event_stats *out);
/* Publishes what waits, as far as possible within a short time. */
void kv_event_publisher_close(struct kv_event_publisher *publisher);

#endif
