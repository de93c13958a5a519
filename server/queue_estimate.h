/* Estimates how long a request that finds the queue full would have waited, for Retry-After: the
 * waiting sequences at the rate at which sequences have ended lately. One thread at a time. */
#ifndef QUIRE_SERVER_QUEUE_ESTIMATE_H
#define QUIRE_SERVER_QUEUE_ESTIMATE_H

#include "engine/engine_stats.h"

/* Zeroed: nothing is known yet. */
struct queue_estimate {
    int64_t now_ms;        /* of the last observation */
    uint64_t num_finished; /* then, since the engine's start */
    int32_t num_waiting;   /* then */
    double busy_s;         /* observed with work in the engine; idle time says nothing */
    double rate;           /* sequences per second of it, recent ones weighing more */
};

/* Observes the engine; to be called a few times a second, with rising times. */
void queue_estimate_update(struct queue_estimate *estimate, const struct engine_stats *stats,
                           int64_t now_ms);
/* Returns 1,000 to 120,000 ms. */
int64_t queue_estimate_wait_ms(const struct queue_estimate *estimate);

#endif
