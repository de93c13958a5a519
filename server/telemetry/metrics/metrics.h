/* Prometheus text of GET /metrics: vLLM's metric names with our prefix. */
#ifndef QUIRE_SERVER_METRICS_METRICS_H
#define QUIRE_SERVER_METRICS_METRICS_H

#include "config/base/byte_buffer.h"
#include "engine/stats/engine_stats.h"
#include "engine/executor/executor.h"
#include "server/keys/api_keys.h"
#include "server/telemetry/metrics/metrics_http.h"
#include "server/process/process_stats.h"

#include <stdbool.h>

/* What never changes. Texts outlive all uses. */
struct metrics_facts {
    const char *prefix; /* for instance "quire:" */
    const char *model_name;
    const char *device;
    const char *cache_dtype; /* of the KV cache */
    bool has_prefix_caching;
    int32_t num_ranks;
    const struct executor_memory *rank_memory; /* [num_ranks] */
};

/* ranks: of the rank process; NULL: the ranks live in this one. */
void metrics_format(const struct metrics_facts *facts, const struct engine_stats *engine,
                    const struct http_stats *http, const struct process_stats *process,
                    const struct process_stats *ranks, struct byte_buffer *out);
/* The same for each key that is listed, by its name in the label `key`; nothing where no key is
 * needed. */
void metrics_format_keys(const struct metrics_facts *facts, const struct api_keys *keys,
                         struct byte_buffer *out);

#endif
