/* The engine's thread gives its steps to the device itself, and asks whether one is done instead of
 * waiting in a call that may never return. A call that enqueues does return, unless the device
 * stands still and its queue is full: then nobody but another thread, which looks at the watch, can
 * end the process. */
#include "engine/executor/rank_executor.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/poll_pause.h"
#include "config/base/log.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define LOOK_S 1

/* A step that takes longer is asked for now and then only. */
static const struct poll_pace pace = {.spin_ns = CLOCK_NS_PER_MS,
                                      .longest_nap_ns = POLL_LEAST_NAP_NS};

static struct rank_executor *self(struct executor *base) {
    return (struct rank_executor *)base;
}

/* --- A call that does not return -------------------------------------------------------------- */

static void *run_watchdog(void *argument) {
    struct rank_executor *executor = argument;
    pthread_mutex_lock(&executor->lock);
    while (executor->phase != PHASE_QUIT) {
        struct timespec until;
        if (device_watch_deadline(&executor->watches[0]) <= clock_now_ns()) {
            log_error("the device has not taken what it was given within %d s (--device-timeout); "
                      "requests are cut off",
                      executor->device_timeout_s);
            fflush(NULL);
            _exit(EX_SOFTWARE);
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += LOOK_S;
        pthread_cond_timedwait(&executor->changed, &executor->lock, &until);
    }
    pthread_mutex_unlock(&executor->lock);
    return NULL;
}

int direct_steps_start(struct rank_executor *executor, struct error *err) {
    if (executor->device_timeout_s == 0)
        return 0;
    int status = pthread_create(&executor->watchdog, NULL, run_watchdog, executor);
    if (status != 0)
        return error_set(err, ERROR_IO, "cannot start the thread that watches the device: %s",
                         strerror(status));
    executor->has_watchdog = true;
    return 0;
}

void direct_steps_stop(struct rank_executor *executor) {
    pthread_mutex_lock(&executor->lock);
    executor->phase = PHASE_QUIT;
    pthread_cond_broadcast(&executor->changed);
    pthread_mutex_unlock(&executor->lock);
    if (executor->has_watchdog)
        CHECK(pthread_join(executor->watchdog, NULL) == 0);
}

/* --- Steps ------------------------------------------------------------------------------------ */

void direct_steps_submit(struct executor *base, const struct batch *batch,
                         struct step_result *result) {
    struct rank_executor *executor = self(base);
    CHECK(executor->num_submitted - executor->num_waited_for < EXECUTOR_MAX_STEPS);
    *rank_executor_step(executor, executor->num_submitted++) = (struct submitted_step){
        .batch = batch, .result = result, .is_supplied = !batch->has_late_inputs};
    if (rank_executor_has_failed(executor))
        return;
    rank_begin(&executor->ranks[0], batch);
    if (!batch->has_late_inputs)
        rank_sample(&executor->ranks[0], batch, result);
}

void direct_steps_supply(struct executor *base) {
    struct rank_executor *executor = self(base);
    struct submitted_step *step = rank_executor_step(executor, executor->num_submitted - 1);
    CHECK(executor->num_submitted > executor->num_waited_for && !step->is_supplied);
    step->is_supplied = true;
    if (!rank_executor_has_failed(executor))
        rank_sample(&executor->ranks[0], step->batch, step->result);
}

/* Returns whether the oldest step is done in time. */
static bool await_device(struct rank_executor *executor) {
    const struct rank *rank = &executor->ranks[0];
    int64_t began_ns = clock_now_ns(), waited_ns = 0;
    int64_t timeout_ns = executor->device_timeout_s * CLOCK_NS_PER_S;
    while (!rank_is_done(rank)) {
        waited_ns = clock_now_ns() - began_ns;
        if (timeout_ns > 0 && waited_ns > timeout_ns)
            return false;
        poll_pause(&pace, waited_ns);
    }
    return true;
}

int direct_steps_wait(struct executor *base, struct error *err) {
    struct rank_executor *executor = self(base);
    struct error why = {0};
    CHECK(executor->num_waited_for < executor->num_submitted);
    executor->num_waited_for++;
    if (!rank_executor_has_failed(executor)) {
        bool is_late = !await_device(executor);
        bool has_failed = !is_late && rank_wait(&executor->ranks[0], &why) != 0;
        pthread_mutex_lock(&executor->lock);
        if (is_late)
            rank_executor_hang(executor);
        else if (has_failed)
            rank_executor_fail(executor, &why);
        pthread_mutex_unlock(&executor->lock);
    }
    if (!rank_executor_has_failed(executor))
        return 0;
    return error_set(err, executor->error.code, "%s", executor->error.message);
}
