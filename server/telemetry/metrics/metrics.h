/* Prometheus text of GET /metrics: vLLM's metric names with our prefix. */
#ifndef QUIRE_SERVER_TELEMETRY_METRICS_METRICS_H
#define QUIRE_SERVER_TELEMETRY_METRICS_METRICS_H

#include "config/base/byte_buffer.h"
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
    struct kv_event_stats kv_events;
    struct grammar_cache_stats grammars;
    struct response_store_stats responses;
    size_t planned_bytes; /* at most, see memory_table.h */
};

/* Counts an answer with an error. code: static, or NULL. Causes beyond METRICS_HTTP_MAX_CAUSES
 * count as code "other". */
void metrics_http_count_error(struct http_stats *http, int status, const char *code);

/* Facts that never change. Texts outlive all uses. */
struct metrics_facts {
    const char *prefix; /* for instance "quire:" */
    const char *model_name;
    const char *device;
    const char *cache_dtype; /* of the KV cache */
    bool has_prefix_caching;
    int32_t num_ranks;
    const struct executor_memory *rank_memory; /* [num_ranks] */
    struct served_adapters *adapters;          /* NULL: there is no room for any */
    int32_t max_adapters;
};

/* ranks: of the rank process; NULL: the ranks live in this one. */
void metrics_format(const struct metrics_facts *facts, const struct engine_stats *engine,
                    const struct http_stats *http, const struct process_stats *process,
                    const struct process_stats *ranks, struct byte_buffer *out);
/* The same for each listed key, with its name in the label `key`; nothing if no key is needed. */
void metrics_format_keys(const struct metrics_facts *facts, const struct api_keys *keys,
                         struct byte_buffer *out);

#endif
