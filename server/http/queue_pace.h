/* Observes how fast the requests of one client end while some of it wait, which with shares is how
 * fast its turn comes: for Retry-After, how long one that is refused would wait. I/O thread only. */
#ifndef QUIRE_SERVER_QUEUE_PACE_H
#define QUIRE_SERVER_QUEUE_PACE_H

#include <stdbool.h>
#include <stdint.h>

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
