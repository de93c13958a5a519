/* Since when a device has owed its rank an answer. The rank's thread says when it calls for work
 * that the device does in bounded time, and when the call has returned; another thread looks
 * whether that was too long ago. A kernel that never ends keeps the call, whichever it is, for
 * ever: a wait, a launch into a full queue, the release of memory. Nothing can end it but the end
 * of the process. */
#ifndef QUIRE_ENGINE_EXECUTOR_DEVICE_WATCH_H
#define QUIRE_ENGINE_EXECUTOR_DEVICE_WATCH_H

#include <stdatomic.h>
#include <stdint.h>

struct device_watch {
    int64_t timeout_ns;          /* 0: none */
    _Atomic int64_t deadline_ns; /* INT64_MAX: nothing is owed */
};

void device_watch_init(struct device_watch *watch, int64_t timeout_ns);

/* Called by the rank's thread, in turns. Both accept NULL: nobody looks. */
void device_watch_begin(struct device_watch *watch);
void device_watch_end(struct device_watch *watch);

/* Returns when the device is late, INT64_MAX: not by what it owes now. Any thread. */
int64_t device_watch_deadline(const struct device_watch *watch);

#endif
