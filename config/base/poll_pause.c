#include "config/base/poll_pause.h"

#include "config/base/numbers.h"

#include <sched.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <time.h>

#define NAPS_PER_WAIT 64
#define SLACK_NS 1000

int64_t poll_nap_ns(const struct poll_pace *pace, int64_t waited_ns) {
    if (waited_ns < pace->spin_ns)
        return 0;
    return min_int64(max_int64(waited_ns / NAPS_PER_WAIT, POLL_LEAST_NAP_NS), pace->longest_nap_ns);
}

/* Linux ends a thread's sleeps 50 us late, unless the thread asks for less: as long again as the
 * least nap. */
static void sleep_for(int64_t nap_ns) {
    static _Thread_local bool is_punctual;
    if (!is_punctual)
        is_punctual = prctl(PR_SET_TIMERSLACK, SLACK_NS) == 0;
    nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
}

void poll_pause(const struct poll_pace *pace, int64_t waited_ns) {
    int64_t nap_ns = poll_nap_ns(pace, waited_ns);
    if (nap_ns == 0)
        sched_yield();
    else
        sleep_for(nap_ns);
}
