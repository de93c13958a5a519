/* The contents of --kv-events and --kv-events-config. The second has vLLM's format, names and
 * defaults (vllm/config/kv_events.py):
 *
 *   {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://HOST:PORT",
 *    "replay_endpoint": "tcp://HOST:PORT", "topic": "...", "buffer_steps": N, "hwm": N,
 *    "max_queue_size": N, "bind": true}
 *
 * Two things differ. `bind`, which vLLM does not have, makes the publisher listen on `endpoint`;
 * without it, it listens, as in vLLM, if the endpoint contains * or :: or is ipc://, and connects
 * otherwise. And hwm is 1000 by default (ZeroMQ's own default), not 100 000: it bounds the memory
 * that a subscriber that does not read costs, and what it has missed is in the replay buffer. */
#ifndef QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_CONFIG_H
#define QUIRE_SERVER_TELEMETRY_KV_EVENTS_KV_EVENT_CONFIG_H

#include "config/base/error.h"
#include "config/options.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_event_endpoint {
    char text[256]; /* as given; "": none */
    char host[224]; /* of tcp://HOST:PORT, without brackets; "*" is 0.0.0.0; "" of ipc:// */
    int32_t port;   /* 0: any, when listening */
    char path[108]; /* of ipc://PATH */
};

struct kv_event_config {
    bool is_enabled;
    bool binds; /* listens on `endpoint`; false: connects to it */
    struct kv_event_endpoint endpoint;
    struct kv_event_endpoint replay; /* always listening */
    char topic[256];
    int32_t buffer_steps;   /* batches kept for the replay */
    int32_t hwm;            /* batches waiting for one subscriber */
    int32_t max_queue_size; /* batches waiting for the publisher's thread */
};

/* Reads kv_events, an endpoint to listen on, or kv_events_config; with neither, nothing is
 * published. Refuses both together, and either without prefix caching, which has no events. Returns
 * -1 with ERROR_CONFIG: one line with the option, the field, its value and what is allowed. */
int kv_event_config_read(const struct options *options, struct kv_event_config *out,
                         struct error *err);

#endif
