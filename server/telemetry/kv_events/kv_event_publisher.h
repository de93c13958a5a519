/* Publishes which blocks the prefix cache knows over ZeroMQ, as vLLM does, for routers that send a
 * request to where its prefix is: a PUB socket, whose messages are [topic, the batch's number: 8
 * bytes, the highest first, the batch: kv_event_format.h]. A batch has the changes of one step;
 * steps without changes have none. Numbers count from 0 without a gap, but where batches were lost.
 *
 *   engine's thread -> batch -> outbox -> publisher's thread -> PUB    -> subscribers
 *                                                            -> replay -> subscribers that ask
 *
 * Nobody waits for a subscriber: what one does not read is lost for it alone (ZeroMQ's high-water
 * mark), and what the publisher's thread does not take is lost for all and counted. Either shows as
 * a gap in the numbers; the first the replay fills. */
#ifndef QUIRE_SERVER_KV_EVENTS_KV_EVENT_PUBLISHER_H
#define QUIRE_SERVER_KV_EVENTS_KV_EVENT_PUBLISHER_H

#include "engine/kv/kv_event_sink.h"
#include "server/telemetry/kv_events/kv_event_config.h"

#include <stddef.h>

/* What waits, what is being written, and what is kept for the replay, at most. What ZeroMQ holds
 * for subscribers that do not read is not in it: config.hwm batches. */
#define KV_EVENT_PUBLISHER_MAX_BYTES ((size_t)112 << 20)

struct kv_event_publisher;

struct kv_event_stats {
    uint64_t batches, lost_batches; /* made since the start; of them lost for all */
};

/* *out is NULL where the configuration says that nothing is published. ERROR_CONFIG: the program
 * was built without, ZeroMQ is not installed, or an endpoint cannot be used. */
int kv_event_publisher_open(const struct kv_event_config *config, int32_t block_size,
                            struct kv_event_publisher **out, struct error *err);
/* These accept NULL. */
/* The publisher outlives whoever uses it; NULL of none. */
const struct kv_event_sink *kv_event_publisher_sink(const struct kv_event_publisher *publisher);
/* Any thread. */
void kv_event_publisher_get_stats(struct kv_event_publisher *publisher, struct kv_event_stats *out);
/* Publishes what waits, as far as that is possible soon. */
void kv_event_publisher_close(struct kv_event_publisher *publisher);

#endif
