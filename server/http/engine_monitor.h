/* Observes the engine's counters a few times a second, for three questions: whether the engine
 * makes progress, which is what /health and the service manager's watchdog report; how long a
 * request that finds the queue full would have waited, for Retry-After; and whether one can run
 * before its deadline. I/O thread only. */
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
    /* When a step ended, ranks were being restarted, or there was nothing to do but to wait for
     * clients. */
    int64_t progress_ms;
    double busy_s; /* observed with work in the engine; idle time does not count */
    double rate;   /* finished sequences per second of it, recent ones weighing more */
};

/* Times must rise. */
void engine_monitor_update(struct engine_monitor *monitor, const struct engine_stats *stats,
                           int64_t now_ms);

/* Returns for how long there has been work but no finished step. */
static inline int64_t engine_monitor_stuck_ms(const struct engine_monitor *monitor,
                                              int64_t now_ms) {
    return now_ms - monitor->progress_ms;
}

/* Returns false when there has been work but no finished step for ENGINE_STUCK_MS. */
bool engine_monitor_is_alive(const struct engine_monitor *monitor, int64_t now_ms);

/* Returns how long so many sequences take to finish at the rate of late, if nobody else's do
 * meanwhile; 0: nothing is known. */
int64_t engine_monitor_time_ms(const struct engine_monitor *monitor, int64_t num_sequences);
/* Returns ENGINE_MIN_WAIT_MS to ENGINE_MAX_WAIT_MS: the waiting sequences at the rate at which
 * sequences have finished lately. */
int64_t engine_monitor_wait_ms(const struct engine_monitor *monitor);

/* --- The pace of one client's queue --- */

/* Observes how fast the requests of one client end while some of it wait, which with shares is how
 * fast its turn comes: for Retry-After, how long one that is refused would wait. I/O
 * thread only. */

/* Zeroed: nothing is known yet. */
struct queue_pace {
    int64_t now_ms; /* of the last observation */
    bool has_queue; /* then */
    double ended;   /* requests that ended while others waited, recent ones weighing more */
    double seconds; /* of such time, likewise */
};

/* Notes that num_ended requests of the client have ended since the last observation, and that
 * num_waiting wait now. Times must not fall. */
void queue_pace_update(struct queue_pace *pace, int64_t num_ended, int64_t num_waiting,
                       int64_t now_ms);

/* Returns how long a request that is refused now would wait when it is sent again and taken, in ms;
 * -1: not known yet. It is taken when one of the client's num_waiting has left the queue, so it is
 * the last of as many. */
int64_t queue_pace_wait_ms(const struct queue_pace *pace, int64_t num_waiting, int64_t now_ms);

#endif
