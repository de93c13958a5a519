/* Prometheus text of GET /metrics: vLLM's metric names with our prefix. */
#ifndef QUIRE_SERVER_METRICS_H
#define QUIRE_SERVER_METRICS_H

#include "config/base/byte_buffer.h"
#include "engine/engine_stats.h"

/* Counters of the HTTP layer, and the memory of the process; I/O thread only. */
struct http_stats {
    uint64_t requests_by_class[6]; /* answered, by status / 100 */
    uint64_t rejected;             /* 429 and 503 at admission */
    int64_t connections;
    size_t held_bytes;     /* of the memory budget for bodies and answers */
    size_t resident_bytes; /* of the process, now */
    uint64_t log_lines_lost, access_log_lines_lost;
    size_t planned_bytes; /* what these may become, see memory_table.h */
};

/* prefix: for instance "quire:". */
void metrics_format(const char *prefix, const char *model_name, const struct engine_stats *engine,
                    const struct http_stats *http, struct byte_buffer *out);

#endif
