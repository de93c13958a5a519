#include "config/base/poll_pause.h"

#include "config/base/numbers.h"

#include <sched.h>
#include <time.h>

#define NAPS_PER_WAIT 64

int64_t poll_nap_ns(const struct poll_pace *pace, int64_t waited_ns) {
    if (waited_ns < pace->spin_ns)
        return 0;
    return min_int64(max_int64(waited_ns / NAPS_PER_WAIT, POLL_LEAST_NAP_NS), pace->longest_nap_ns);
}

void poll_pause(const struct poll_pace *pace, int64_t waited_ns) {
    int64_t nap_ns = poll_nap_ns(pace, waited_ns);
    if (nap_ns == 0)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
}
