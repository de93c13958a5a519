/* What the log says about the traffic: a line every 10 s while there is any, and a line for each
 * refused request, of which only some are logged if there are many. All functions return whether
 * there is a line to log, in out. Used by one thread. */
#ifndef QUIRE_SERVER_TELEMETRY_TRAFFIC_LOG_H
#define QUIRE_SERVER_TELEMETRY_TRAFFIC_LOG_H

#include "config/json/api_error.h"
#include "engine/stats/engine_stats.h"
#include "server/telemetry/access_log.h"

#include <stdbool.h>
#include <stdint.h>

#define TRAFFIC_LOG_INTERVAL_MS 10000
#define TRAFFIC_LOG_MAX_CAUSES 32 /* further ones share the last */
#define TRAFFIC_LOG_MAX_LINES 5   /* of a cause in an interval */
#define TRAFFIC_LOG_LINE_BYTES 640

/* A status with its code. */
struct traffic_cause {
    int status;
    const char *code;
    int64_t since_ms;
    int num_lines;         /* since then */
    uint64_t num_withheld; /* refusals without a line, not reported yet */
};

/* Zeroed: nothing has been seen yet. */
struct traffic_log {
    int64_t since_ms; /* when these counters were read; 0: not yet */
    uint64_t prompt_tokens, generation_tokens, prefix_queries, prefix_hits;
    struct traffic_cause causes[TRAFFIC_LOG_MAX_CAUSES];
    int num_causes;
};

/* Describes the interval that has just ended: rates of tokens, running and waiting sequences, use
 * of the KV cache, and the share of prompt tokens that the prefix cache had. False if the interval
 * has not ended, or nothing was computed in it and nothing is running or waiting. */
bool traffic_log_update(struct traffic_log *log, const struct engine_stats *stats, int64_t now_ms,
                        char out[TRAFFIC_LOG_LINE_BYTES]);

/* Describes a refused request. Of its method, route, key, client and request_id NULL ones are left
 * out; values that the client sent, except for the name of a model, are shown as "...". False if
 * the cause has had its lines in this interval; it is then counted. */
bool traffic_log_refused(struct traffic_log *log, const struct access_record *record,
                         const struct api_error *error, int64_t now_ms,
                         char out[TRAFFIC_LOG_LINE_BYTES]);

/* Reports the withheld refusals of one cause whose interval has ended. Called until it returns
 * false. */
bool traffic_log_withheld(struct traffic_log *log, int64_t now_ms,
                          char out[TRAFFIC_LOG_LINE_BYTES]);

#endif
