/* Prometheus text of GET /metrics: vLLM's metric names with our prefix. */
#ifndef QUIRE_SERVER_TELEMETRY_METRICS_METRICS_H
#define QUIRE_SERVER_TELEMETRY_METRICS_METRICS_H

#include "config/base/byte_buffer.h"
#include "engine/kv/kv_store.h"
#include "engine/executor/executor.h"
#include "engine/grammar/machine/grammar_cache.h"
#include "engine/stats/engine_stats.h"
#include "server/api/call/served_adapters.h"
#include "server/api/responses/response_store.h"
#include "server/keys/api_keys.h"
#include "server/process/process_stats.h"
#include "server/telemetry/kv_events/kv_event_publisher.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define METRICS_HTTP_MAX_CAUSES 64

/* Number of errors answered with this status and code. */
struct http_error_count {
    int status;
    const char *code; /* static; "": none */
    uint64_t count;
};

/* Counters of the HTTP layer, and the memory of the process; I/O thread only. */
struct http_stats {
    uint64_t requests_by_class[6]; /* answered, by status / 100 */
    struct http_error_count errors[METRICS_HTTP_MAX_CAUSES];
    int num_causes;
    uint64_t rejected; /* 429 and 503 at admission */
    int64_t connections;
    size_t held_bytes; /* of the memory budget for bodies and answers */
    uint64_t log_lines_lost, access_log_lines_lost, trace_spans_lost;
    struct response_store_stats responses;
    size_t planned_bytes; /* at most, see memory_table.h */
};

/* Counts an answer with an error. code: static, or NULL. Causes beyond METRICS_HTTP_MAX_CAUSES
 * count as code "other". */
void metrics_http_count_error(struct http_stats *http, int status, const char *code);

/* Facts that never change. Texts outlive all uses. */
struct metrics_facts {
    const char *device;
    const char *cache_dtype; /* of the KV cache */
    bool has_prefix_caching;
    int32_t num_ranks;
    bool are_waits_known;                      /* of ranks for one another: not on GPUs */
    const struct executor_memory *rank_memory; /* [num_ranks] */
    struct served_adapters *adapters;          /* NULL: there is no room for any */
    int32_t max_adapters;
};

/* A model of the server as it is now. */
struct metrics_model {
    const char *name;
    bool is_hidden; /* only its memory counts: whoever asks has a key that may not use it */
    /* One of several: */
    const char *status;   /* unloaded, loading, loaded or sleeping */
    size_t planned_bytes; /* host memory while it is loaded, at most; 0: not known yet */
    double load_seconds;  /* what its last start or wake took; 0: it had none */
    int64_t num_waiting;  /* requests that wait for it, not for its engine */
    uint64_t num_loads, num_sleeps, num_waits;
    /* Of a model that is loaded: */
    const struct metrics_facts *facts; /* NULL: it is not */
    struct engine_stats engine;
    bool has_rank_process;
    struct process_stats ranks; /* of the rank process */
    struct kv_event_stats kv_events;
    struct kv_store_counts kv_store; /* zeros: there is none */
    struct grammar_cache_stats grammars;
};

struct metrics_server {
    const char *prefix; /* for instance "quire:" */
    const struct metrics_model *models;
    int num_models; /* at least one */
    /* Models are loaded and put to sleep. Metrics of the whole server then have no model_name. */
    bool has_several;
    size_t memory_bytes, used_bytes; /* of several models: what they may take and take, at most */
    const struct http_stats *http;
    const struct process_stats *process;
    const struct api_keys *keys; /* NULL: without metrics of keys */
};

void metrics_format(const struct metrics_server *server, struct byte_buffer *out);

#endif
