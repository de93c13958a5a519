/* An executor around another one that notes how long the engine waited for steps, and how long no
 * step was submitted: then the device had surely nothing to do. Called as any executor, by the
 * engine thread; the times may be read by any thread. */
#ifndef QUIRE_SCRIPTS_BENCH_WATCHED_EXECUTOR_H
#define QUIRE_SCRIPTS_BENCH_WATCHED_EXECUTOR_H

#include "engine/executor/executor.h"

#include <stdatomic.h>
#include <stdint.h>

struct watched_executor {
    struct executor base;
    struct executor *inner; /* outlives this one */
    int num_steps;          /* submitted and not waited for */
    int64_t empty_since_ns; /* when the last of them was waited for */
    atomic_llong
        from_ns; /* set by who reads the times: what was before it does not count as empty */
    atomic_llong wait_ns;
    atomic_llong empty_ns;
};

/* Watches `inner`, on the caller's memory; destroying base does nothing. */
void watched_executor_init(struct watched_executor *out, struct executor *inner);

#endif
