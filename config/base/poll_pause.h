/* Pauses between two looks at what only looking shows: whether a device or another process is done.
 * At first they yield the processor and no more, since most waits are short; later they sleep, and
 * leave the core to others. A sleep is a 64th of what was waited so far, which is the most by which
 * it makes the wait longer, but 50 us at least. */
#ifndef QUIRE_CONFIG_BASE_POLL_PAUSE_H
#define QUIRE_CONFIG_BASE_POLL_PAUSE_H

#include <stdint.h>

struct poll_pace {
    int64_t spin_ns;        /* of waiting without sleep */
    int64_t longest_nap_ns; /* >= POLL_LEAST_NAP_NS, < 1 s */
};

#define POLL_LEAST_NAP_NS 50000

/* Returns how long to sleep after waiting so long; 0: not yet. Pure. */
int64_t poll_nap_ns(const struct poll_pace *pace, int64_t waited_ns);

/* Yields, or sleeps so long: from then on sleeps of this thread end within 1 us of their time where
 * the system can (its timer slack). A signal may end it sooner. */
void poll_pause(const struct poll_pace *pace, int64_t waited_ns);

#endif
