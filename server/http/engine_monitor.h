/* Observes the engine's counters a few times a second to answer three questions: whether the engine
 * makes progress (for /health and the service manager's watchdog), how long a request that finds
 * the queue full would have waited (for Retry-After), and whether a request can run before its
 * deadline. I/O thread only. */
#ifndef QUIRE_SERVER_HTTP_ENGINE_MONITOR_H
#define QUIRE_SERVER_HTTP_ENGINE_MONITOR_H

#include "engine/stats/engine_stats.h"

#include <stdbool.h>
#include <stdint.h>

#define ENGINE_STUCK_MS 5000
#define ENGINE_MIN_WAIT_MS 1000
#define ENGINE_MAX_WAIT_MS 120000

/* Zeroed: nothing is known yet. */
struct engine_monitor {
    int64_t now_ms;        /* of the last observation */
    uint64_t step;         /* then */
    uint64_t num_finished; /* then, sequences since the engine's start */
    int32_t num_waiting;   /* then */
    int32_t num_running;   /* then */
    /* When last a step ended, ranks were being restarted, or there was nothing to do except wait
     * for clients. */
    int64_t progress_ms;
    double busy_s; /* observed with work in the engine; idle time does not count */
    double rate;   /* finished sequences per second of busy time, with more weight on recent ones */
};

/* Times must increase. */
void engine_monitor_update(struct engine_monitor *monitor, const struct engine_stats *stats,
                           int64_t now_ms);

/* Returns how long there has been work but no finished step. */
static inline int64_t engine_monitor_stuck_ms(const struct engine_monitor *monitor,
                                              int64_t now_ms) {
    return now_ms - monitor->progress_ms;
}

/* Returns false when there has been work but no finished step for ENGINE_STUCK_MS. */
bool engine_monitor_is_alive(const struct engine_monitor *monitor, int64_t now_ms);

/* Returns how long num_sequences sequences take to finish at the recent rate, if no others finish
 * meanwhile; 0: not known. */
int64_t engine_monitor_time_ms(const struct engine_monitor *monitor, int64_t num_sequences);
/* Returns ENGINE_MIN_WAIT_MS to ENGINE_MAX_WAIT_MS: the time for the waiting sequences at the
 * recent rate of finished sequences. */
int64_t engine_monitor_wait_ms(const struct engine_monitor *monitor);

/* --- The pace of one client's queue --- */

/* Observes how fast the requests of one client end while others of it wait; with shares, that is
 * how fast its turn comes. It estimates how long a refused request would wait (for Retry-After).
 * I/O thread only. */

/* Zeroed: nothing is known yet. */
struct queue_pace {
    int64_t now_ms; /* of the last observation */
    bool has_queue; /* then */
    double ended;   /* requests that ended while others waited, with more weight on recent ones */
    double seconds; /* seconds of such time, weighted in the same way */
};

/* Notes that num_ended requests of the client have ended since the last observation, and that
 * num_waiting wait now. Times must not decrease. */
void queue_pace_update(struct queue_pace *pace, int64_t num_ended, int64_t num_waiting,
                       int64_t now_ms);

/* Returns how many ms a request that is refused now would wait if it is sent again and accepted;
 * -1: not known yet. It is accepted once one of the client's num_waiting has left the queue, so it
 * is the last of that many. */
int64_t queue_pace_wait_ms(const struct queue_pace *pace, int64_t num_waiting, int64_t now_ms);

#endif
