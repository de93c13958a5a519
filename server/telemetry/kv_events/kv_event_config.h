/* What --kv-events and --kv-events-config say. The second is in vLLM's shape, with its names and
 * defaults (vllm/config/kv_events.py):
 *
 *   {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://HOST:PORT",
 *    "replay_endpoint": "tcp://HOST:PORT", "topic": "...", "buffer_steps": N, "hwm": N,
 *    "max_queue_size": N, "bind": true}
 *
 * Two things differ: `bind`, which vLLM has not, says that `endpoint` is listened on; without it
 * that is so, as in vLLM, where the endpoint has a * or ::, or is ipc://, and it is connected to
 * otherwise. And hwm is 1000 by default, ZeroMQ's own, not 100 000: it is what a subscriber that
 * does not read costs in memory, and what it has missed is in the replay buffer. */
#ifndef QUIRE_SERVER_KV_EVENTS_KV_EVENT_CONFIG_H
#define QUIRE_SERVER_KV_EVENTS_KV_EVENT_CONFIG_H

#include "config/base/error.h"
#include "config/options.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_event_endpoint {
    char text[256]; /* as it was given; "": none */
    char host[224]; /* of tcp://HOST:PORT, without brackets; "*" is 0.0.0.0; "" of ipc:// */
    int32_t port;   /* 0: any, where it is listened on */
    char path[108]; /* of ipc://PATH */
};

struct kv_event_config {
    bool is_enabled;
    bool binds; /* listens on `endpoint`; false: connects to it */
    struct kv_event_endpoint endpoint;
    struct kv_event_endpoint replay; /* always listened on */
    char topic[256];
    int32_t buffer_steps;   /* batches kept for the replay */
    int32_t hwm;            /* batches that wait for one subscriber */
    int32_t max_queue_size; /* batches that wait for the publisher's thread */
};

/* Reads kv_events, an endpoint to listen on, or kv_events_config; neither: nothing is published.
 * Refuses both together, and either without prefix caching, where there are no events. -1 with
 * ERROR_CONFIG: one line with the option, the field, its value and what is allowed. */
int kv_event_config_read(const struct options *options, struct kv_event_config *out,
                         struct error *err);

#endif
