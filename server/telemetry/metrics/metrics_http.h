/* What the HTTP layer counts, of all requests and of each API key, and the memory of what lives in
 * front of the engine. */
#ifndef QUIRE_SERVER_METRICS_METRICS_HTTP_H
#define QUIRE_SERVER_METRICS_METRICS_HTTP_H

#include "engine/grammar/machine/grammar_cache.h"
#include "server/api/responses/response_store.h"
#include "server/keys/api_keys.h"
#include "server/telemetry/kv_events/kv_event_publisher.h"

#include <stddef.h>
#include <stdint.h>

#define METRICS_HTTP_MAX_CAUSES 64

struct metrics_text;

/* Errors that were answered with this status and code. */
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

/* Counts an answer with an error. code: static, or NULL. One of more than METRICS_HTTP_MAX_CAUSES
 * causes counts as code "other". */
void metrics_http_count_error(struct http_stats *http, int status, const char *code);

void metrics_http_write(const struct metrics_text *w, const struct http_stats *http);
/* The samples of each key that is listed have its name in the label `key`. */
void metrics_http_write_keys(const struct metrics_text *w, const struct api_keys *keys);

#endif
