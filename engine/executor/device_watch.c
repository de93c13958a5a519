#include "engine/executor/device_watch.h"

#include "config/base/clock.h"

#include <stddef.h>

void device_watch_init(struct device_watch *watch, int64_t timeout_ns) {
    watch->timeout_ns = timeout_ns;
    atomic_init(&watch->deadline_ns, INT64_MAX);
}

void device_watch_begin(struct device_watch *watch) {
    if (watch != NULL && watch->timeout_ns > 0)
        atomic_store(&watch->deadline_ns, clock_now_ns() + watch->timeout_ns);
}

void device_watch_end(struct device_watch *watch) {
    if (watch != NULL)
        atomic_store(&watch->deadline_ns, INT64_MAX);
}

int64_t device_watch_deadline(const struct device_watch *watch) {
    return atomic_load(&watch->deadline_ns);
}
