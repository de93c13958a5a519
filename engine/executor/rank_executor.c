/* A device that never answers keeps its rank's thread in some call of its library for good. So the
 * engine's thread, whenever it waits for the ranks, looks at their watches, and gives up on one
 * that is late: then nobody waits for that thread any more, nor frees what it may still touch. */
#include "engine/executor/rank_executor.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/numbers.h"

#include <errno.h>

/* Between two looks at the watches, while nothing changes. */
#define LOOK_NS CLOCK_NS_PER_S

void rank_executor_fail(struct rank_executor *executor, const struct error *why) {
    if (executor->error.code == ERROR_NONE)
        executor->error = *why;
    pthread_cond_broadcast(&executor->changed);
}

void rank_executor_fail_step(struct rank_thread *thread, const struct error *why) {
    struct rank_executor *executor = thread->executor;
    if (thread->num_finished < executor->num_successful)
        executor->num_successful = thread->num_finished;
    rank_executor_fail(executor, why);
}

void rank_executor_hang(struct rank_executor *executor) {
    struct error why = {0};
    error_set(&why, ERROR_DEVICE,
              "the device has not finished what it was given within %d s (--device-timeout)",
              executor->device_timeout_s);
    executor->has_hung = true;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        rank_executor_fail_step(&executor->threads[r], &why);
}

bool rank_executor_await_change(struct rank_executor *executor) {
    int64_t now_ns = clock_now_ns(), until_ns = now_ns + LOOK_NS;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        until_ns = min_int64(until_ns, device_watch_deadline(&executor->watches[r]));
    if (until_ns <= now_ns)
        rank_executor_hang(executor);
    if (executor->has_hung)
        return false;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / CLOCK_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % CLOCK_NS_PER_S)};
    int status = pthread_cond_timedwait(&executor->changed, &executor->lock, &until);
    CHECK(status == 0 || status == ETIMEDOUT);
    return true;
}
