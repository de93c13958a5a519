/* The clock that every duration and deadline is measured by: it never jumps and has no relation to
 * the time of day. Also the processor time of a thread. */
#ifndef QUIRE_CONFIG_BASE_CLOCK_H
#define QUIRE_CONFIG_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_S INT64_C(1000000000)
#define CLOCK_NS_PER_MS INT64_C(1000000)

/* Returns the nanoseconds since some moment before the program began. Any thread. */
static inline int64_t clock_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec;
}

static inline int64_t clock_now_ms(void) {
    return clock_now_ns() / CLOCK_NS_PER_MS;
}

/* Returns the processor time of the calling thread. */
static inline int64_t clock_thread_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec;
}

#endif
