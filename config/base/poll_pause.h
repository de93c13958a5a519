/* Pauses between two polls of a state that can only be polled: whether a device or another process
 * is done. At first a pause only yields the processor, since most waits are short. Later it sleeps
 * and leaves the core to others. A sleep lasts 1/64 of the time waited so far, so it lengthens the
 * wait by at most that much, but at least 50 us. */
#ifndef QUIRE_CONFIG_BASE_POLL_PAUSE_H
#define QUIRE_CONFIG_BASE_POLL_PAUSE_H

#include <stdint.h>

struct poll_pace {
    int64_t spin_ns;        /* how long to wait without sleeping */
    int64_t longest_nap_ns; /* >= POLL_LEAST_NAP_NS, < 1 s */
};

#define POLL_LEAST_NAP_NS 50000

/* Returns how long to sleep after waiting waited_ns; 0: do not sleep yet. Pure function. */
int64_t poll_nap_ns(const struct poll_pace *pace, int64_t waited_ns);

/* Yields, or sleeps for that time. The first sleep sets the thread's timer slack, so that its
 * sleeps end within 1 us of their time where the system supports it. A signal may end a sleep
 * early. */
void poll_pause(const struct poll_pace *pace, int64_t waited_ns);

#endif
