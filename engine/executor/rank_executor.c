/* There are two ways to run steps. Either the ranks' threads run them, while the engine's thread
 * prepares the next one. The ranks of one executor need not be at the same step, except in the ops
 * in which they wait for one another. Or the engine's thread hands its steps to the device itself.
 * It then polls whether a step is done, instead of waiting in a call that may never return.
 *
 * A device that never answers blocks its rank's thread in some call of the device's library
 * forever. So the engine's thread checks the ranks' watches whenever it waits for the ranks, and
 * gives up on a device that is late: from then on nobody waits for that thread, or frees what it
 * may still touch. A call that enqueues does return, unless the device stands still and its queue
 * is full. If the engine's thread makes that call, only another thread, which checks the watch, can
 * end the process. */
#include "engine/executor/rank_executor.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "config/base/numbers.h"
#include "config/base/poll_pause.h"
#include "engine/executor/remote_ranks.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

/* Time between two checks of the watches, while nothing changes. */
#define LOOK_NS CLOCK_NS_PER_S

/* A step of a device that takes longer is polled only now and then. */
static const struct poll_pace pace = {.spin_ns = CLOCK_NS_PER_MS,
                                      .longest_nap_ns = POLL_LEAST_NAP_NS};

static struct rank_executor *self(struct executor *base) {
    return (struct rank_executor *)base;
}

static struct submitted_step *step_at(struct rank_executor *executor, uint64_t index) {
    return &executor->steps[index % EXECUTOR_MAX_STEPS];
}

static bool has_failed(const struct rank_executor *executor) {
    return executor->error.code != ERROR_NONE;
}

/* --- Failures --- */

static void fail(struct rank_executor *executor, const struct error *why) {
    if (executor->error.code == ERROR_NONE)
        executor->error = *why;
    pthread_cond_broadcast(&executor->changed);
}

/* Records a failure in the thread's next step to be finished. */
static void fail_step(struct rank_thread *thread, const struct error *why) {
    struct rank_executor *executor = thread->executor;
    if (thread->num_finished < executor->num_successful)
        executor->num_successful = thread->num_finished;
    fail(executor, why);
}

/* Records a failure in the next step of every thread. Nothing is waited for any more. */
static void hang(struct rank_executor *executor, const struct error *why) {
    atomic_store(&executor->base.has_hung, true);
    for (int32_t r = 0; r < executor->num_ranks; r++)
        fail_step(&executor->threads[r], why);
}

static void hang_as_late(struct rank_executor *executor) {
    struct error why = {0};
    error_set(&why, ERROR_DEVICE,
              "the device did not finish its work within %d s (--device-timeout)",
              executor->device_timeout_s);
    hang(executor, &why);
}

bool rank_executor_await_change(struct rank_executor *executor) {
    int64_t now_ns = clock_now_ns(), until_ns = now_ns + LOOK_NS;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        until_ns = min_int64(until_ns, rank_watch_deadline(&executor->watches[r]));
    if (until_ns <= now_ns)
        hang_as_late(executor);
    if (executor_has_hung(&executor->base))
        return false;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / CLOCK_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % CLOCK_NS_PER_S)};
    int status = pthread_cond_timedwait(&executor->changed, &executor->lock, &until);
    CHECK(status == 0 || status == ETIMEDOUT);
    return true;
}

/* Gives up because a rank in another process is lost or late. As with a device that hangs, nothing
 * is waited for any more. Reports the first failure. */
static int lose_ranks(struct rank_executor *executor, const struct error *why, struct error *err) {
    pthread_mutex_lock(&executor->lock);
    hang(executor, why);
    struct error failure = executor->error;
    pthread_mutex_unlock(&executor->lock);
    return error_set(err, failure.code, "%s", failure.message);
}

/* --- A call of the engine's thread that does not return --- */

static void *run_watchdog(void *argument) {
    struct rank_executor *executor = argument;
    pthread_mutex_lock(&executor->lock);
    while (executor->phase != PHASE_QUIT) {
        struct timespec until;
        if (rank_watch_deadline(&executor->watches[0]) <= clock_now_ns()) {
            log_error("the device did not accept work within %d s (--device-timeout); "
                      "requests are cut off",
                      executor->device_timeout_s);
            fflush(NULL);
            _exit(EX_SOFTWARE);
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += LOOK_NS / CLOCK_NS_PER_S;
        pthread_cond_timedwait(&executor->changed, &executor->lock, &until);
    }
    pthread_mutex_unlock(&executor->lock);
    return NULL;
}

int rank_executor_watch(struct rank_executor *executor, struct error *err) {
    if (executor->device_timeout_s == 0)
        return 0;
    int status = pthread_create(&executor->watchdog, NULL, run_watchdog, executor);
    if (status != 0)
        return error_set(err, ERROR_IO, "cannot start the thread that watches the device: %s",
                         strerror(status));
    executor->has_watchdog = true;
    return 0;
}

void rank_executor_unwatch(struct rank_executor *executor) {
    pthread_mutex_lock(&executor->lock);
    executor->phase = PHASE_QUIT;
    pthread_cond_broadcast(&executor->changed);
    pthread_mutex_unlock(&executor->lock);
    if (executor->has_watchdog)
        CHECK(pthread_join(executor->watchdog, NULL) == 0);
}

/* --- A rank's thread: steps --- */

static struct rank *rank_of(struct rank_thread *thread) {
    return &thread->executor->ranks[thread->index];
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* The following are called with the lock held, which is released while the rank works. */

static int64_t start_work(struct rank_thread *thread) {
    pthread_mutex_unlock(&thread->executor->lock);
    return clock_now_ns();
}

/* How much of the time was spent in the group is known only at the end. */
static void end_work(struct rank_thread *thread, int64_t start_ns) {
    struct rank_stats *stats = &thread->stats;
    int64_t elapsed_ns = clock_now_ns() - start_ns;
    struct backend_group_traffic traffic = rank_traffic(rank_of(thread));
    pthread_mutex_lock(&thread->executor->lock);
    stats->compute_ns += elapsed_ns - (traffic.wait_ns - stats->communication_ns);
    stats->communication_ns = traffic.wait_ns;
    stats->bytes_sent = traffic.bytes_sent;
}

static void begin_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    const struct submitted_step *step = step_at(executor, thread->num_begun++);
    executor->most_begun = most(executor->most_begun, thread->num_begun);
    int64_t start_ns = start_work(thread);
    rank_begin(rank_of(thread), step->batch, step->result);
    end_work(thread, start_ns);
}

static void sample_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    const struct submitted_step *step = step_at(executor, thread->num_sampled++);
    executor->most_sampled = most(executor->most_sampled, thread->num_sampled);
    int64_t start_ns = start_work(thread);
    rank_sample(rank_of(thread), step->batch, step->result);
    end_work(thread, start_ns);
}

static void finish_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    struct error err = {0};
    int64_t start_ns = start_work(thread);
    int status = rank_wait(rank_of(thread), &err);
    end_work(thread, start_ns);
    if (status != 0)
        fail_step(thread, &err);
    thread->num_finished++;
    rank_turn_give(executor);
    pthread_cond_broadcast(&executor->changed);
}

/* Ends all steps after a failure, without looking at them. */
static void fail_steps(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    fail_step(thread, &executor->error);
    thread->num_begun = thread->num_sampled = thread->num_finished = executor->num_submitted;
    rank_turn_give(executor);
}

/* Returns whether to wait for the oldest step that was sampled. A device that works asynchronously
 * is given the next step first, because the wait would keep the thread from doing that. So the wait
 * begins only when the engine cannot submit another step, or when the next step's inputs depend on
 * this one's results. */
static bool should_finish(struct rank_thread *thread) {
    const struct rank_executor *executor = thread->executor;
    uint64_t num_enqueued = thread->num_sampled - thread->num_finished;
    if (num_enqueued == 0)
        return false;
    bool is_next_late = thread->num_begun > thread->num_sampled;
    bool is_next_submitted = executor->num_submitted > thread->num_begun;
    bool is_awaited = executor->num_waited_for > thread->num_finished;
    return is_next_late || !rank_is_asynchronous(rank_of(thread)) ||
           num_enqueued == EXECUTOR_MAX_STEPS || (is_awaited && !is_next_submitted);
}

/* Returns whether the rank may begin a part of a step; num_done is how many steps it has begun this
 * part of. After a failure it only keeps up with the others, which wait for it in their collective
 * ops. */
static bool may_go_on(const struct rank_executor *executor, uint64_t num_done,
                      uint64_t most_of_others) {
    return !has_failed(executor) || num_done < most_of_others;
}

/* Does what comes next; returns false when there is nothing to do. */
static bool work(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    bool is_begun = thread->num_begun > thread->num_sampled;
    if (is_begun && step_at(executor, thread->num_sampled)->is_supplied &&
        may_go_on(executor, thread->num_sampled, executor->most_sampled))
        sample_step(thread);
    else if (!has_failed(executor) && should_finish(thread))
        finish_step(thread);
    else if (!is_begun && executor->num_submitted > thread->num_begun &&
             may_go_on(executor, thread->num_begun, executor->most_begun)) {
        if (!rank_turn_covers(thread))
            return rank_turn_take(thread);
        begin_step(thread);
    } else if (has_failed(executor) && thread->num_finished < executor->num_submitted)
        fail_steps(thread);
    else
        return false;
    return true;
}

/* --- A rank's thread: its phases --- */

/* Reports that the rank has finished the phase, and returns the next one. */
static enum phase await_phase_after(enum phase done, struct rank_executor *executor,
                                    const struct error *err) {
    pthread_mutex_lock(&executor->lock);
    if (err->code != ERROR_NONE)
        fail(executor, err);
    executor->num_ready++;
    pthread_cond_broadcast(&executor->changed);
    while (executor->phase == done)
        pthread_cond_wait(&executor->changed, &executor->lock);
    enum phase next = executor->phase;
    pthread_mutex_unlock(&executor->lock);
    return next;
}

/* The threads of the rank's backend inherit the CPU binding of this thread. */
static void open_rank(struct rank_thread *thread, struct error *err) {
    struct rank_setup *setup = &thread->executor->setup;
    const struct rank_place place = rank_setup_place(setup, thread->index);
    if (place.is_bound)
        sched_setaffinity(0, sizeof(place.cpus), &place.cpus); /* on failure it is only slower */
    struct rank *rank = &thread->executor->ranks[thread->index];
    if (rank_open(setup, thread->index, place.num_threads, rank, err) == 0)
        rank_setup_describe_place(setup, &place, rank->place);
}

/* If this rank fails, the others learn that its part of the weights, for which they wait, does not
 * come. */
static enum phase load(struct rank_thread *thread) {
    const struct rank_setup *setup = &thread->executor->setup;
    struct error err = {0};
    if (rank_load(&thread->executor->ranks[thread->index], setup->reader, setup->draft_reader,
                  &err) != 0)
        weights_reader_abandon(setup->reader, &err);
    return await_phase_after(PHASE_LOAD, thread->executor, &err);
}

static enum phase try(struct rank_thread *thread) {
    struct error err = {0};
    rank_try(&thread->executor->ranks[thread->index], &err);
    return await_phase_after(PHASE_TRY, thread->executor, &err);
}

/* Returns the phase that ended the running. */
static enum phase run_steps(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    pthread_mutex_lock(&executor->lock);
    while (executor->phase == PHASE_RUN)
        if (!work(thread))
            pthread_cond_wait(&executor->changed, &executor->lock);
    enum phase phase = executor->phase;
    pthread_mutex_unlock(&executor->lock);
    return phase;
}

static enum phase release(struct rank_thread *thread) {
    const struct error none = {0};
    rank_release(&thread->executor->ranks[thread->index]);
    return await_phase_after(PHASE_RELEASE, thread->executor, &none);
}

/* The pools are allocated first at start, and again when the executor is woken. */
static enum phase allocate_and_run(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    struct error err = {0};
    rank_allocate(&executor->ranks[thread->index], &err);
    enum phase phase = await_phase_after(PHASE_ALLOCATE, executor, &err);
    if (phase == PHASE_RUN)
        phase = run_steps(thread);
    return phase == PHASE_RELEASE ? release(thread) : phase;
}

void *rank_executor_run_thread(void *argument) {
    struct rank_thread *thread = argument;
    struct rank_executor *executor = thread->executor;
    struct error err = {0};
    open_rank(thread, &err);
    enum phase phase = await_phase_after(PHASE_OPEN, executor, &err);
    if (phase == PHASE_LOAD)
        phase = load(thread);
    if (phase == PHASE_TRY)
        phase = try(thread);
    while (phase == PHASE_ALLOCATE)
        phase = allocate_and_run(thread);
    if (phase != PHASE_HAND_OVER)
        rank_close(&executor->ranks[thread->index]);
    return NULL;
}

/* --- The engine's thread --- */

/* Wakes the ranks' threads, if they run the steps; the lock is held. */
static void tell_threads(struct rank_executor *executor) {
    if (!executor->is_direct)
        pthread_cond_broadcast(&executor->changed);
}

void rank_executor_submit(struct executor *base, const struct batch *batch,
                          struct step_result *result) {
    struct rank_executor *executor = self(base);
    struct error why;
    if (executor->remote != NULL && !executor_has_hung(base) &&
        remote_ranks_submit(executor->remote, batch, result, &why) != 0)
        lose_ranks(executor, &why, NULL);
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->num_submitted - executor->num_waited_for < EXECUTOR_MAX_STEPS);
    *step_at(executor, executor->num_submitted++) = (struct submitted_step){
        .batch = batch, .result = result, .is_supplied = !batch->has_late_inputs};
    tell_threads(executor);
    pthread_mutex_unlock(&executor->lock);
    if (!executor->is_direct || has_failed(executor))
        return;
    rank_begin(&executor->ranks[0], batch, result);
    if (!batch->has_late_inputs)
        rank_sample(&executor->ranks[0], batch, result);
}

void rank_executor_supply(struct executor *base) {
    struct rank_executor *executor = self(base);
    pthread_mutex_lock(&executor->lock);
    struct submitted_step *step = step_at(executor, executor->num_submitted - 1);
    CHECK(executor->num_submitted > executor->num_waited_for && !step->is_supplied);
    step->is_supplied = true;
    tell_threads(executor);
    pthread_mutex_unlock(&executor->lock);
    struct error why;
    if (executor->remote != NULL && !executor_has_hung(base) &&
        remote_ranks_supply(executor->remote, step->batch, &why) != 0)
        lose_ranks(executor, &why, NULL);
    if (executor->is_direct && !has_failed(executor))
        rank_sample(&executor->ranks[0], step->batch, step->result);
}

static uint64_t num_finished(const struct rank_executor *executor) {
    uint64_t least = UINT64_MAX;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        if (executor->threads[r].num_finished < least)
            least = executor->threads[r].num_finished;
    return least;
}

static int wait_for_threads(struct rank_executor *executor, struct error *err) {
    pthread_mutex_lock(&executor->lock);
    uint64_t num_steps = ++executor->num_waited_for;
    pthread_cond_broadcast(&executor->changed);
    while (num_finished(executor) < num_steps && rank_executor_await_change(executor))
        continue;
    bool is_successful = num_steps <= executor->num_successful;
    struct error failure = executor->error;
    pthread_mutex_unlock(&executor->lock);
    if (is_successful)
        return 0;
    return error_set(err, failure.code, "%s", failure.message);
}

/* Returns whether the oldest step finished in time. */
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

static int wait_for_device(struct rank_executor *executor, struct error *err) {
    struct error why = {0};
    executor->num_waited_for++;
    if (!has_failed(executor)) {
        bool is_late = !await_device(executor);
        bool has_failed = !is_late && rank_wait(&executor->ranks[0], &why) != 0;
        pthread_mutex_lock(&executor->lock);
        if (is_late)
            hang_as_late(executor);
        else if (has_failed)
            fail(executor, &why);
        pthread_mutex_unlock(&executor->lock);
    }
    if (!has_failed(executor))
        return 0;
    return error_set(err, executor->error.code, "%s", executor->error.message);
}

static int wait_for_processes(struct rank_executor *executor, struct error *err) {
    const struct batch *batch = step_at(executor, executor->num_waited_for)->batch;
    struct error why = {0};
    if (!executor_has_hung(&executor->base) &&
        remote_ranks_begin_wait(executor->remote, batch, &why) != 0)
        lose_ranks(executor, &why, NULL);
    if (wait_for_threads(executor, &why) == 0 && !executor_has_hung(&executor->base) &&
        remote_ranks_wait(executor->remote, batch, &why) == 0)
        return 0;
    return lose_ranks(executor, &why, err);
}

int rank_executor_wait(struct executor *base, struct error *err) {
    struct rank_executor *executor = self(base);
    CHECK(executor->num_waited_for < executor->num_submitted);
    if (executor->is_direct)
        return wait_for_device(executor, err);
    return executor->remote != NULL ? wait_for_processes(executor, err)
                                    : wait_for_threads(executor, err);
}

int rank_executor_step_memory(struct executor *base, const struct batch_capacity *capacity,
                              void **out) {
    struct rank_executor *executor = self(base);
    struct error why = {0};
    *out = NULL;
    if (executor->remote != NULL &&
        remote_ranks_step_memory(executor->remote, capacity, out, &why) != 0 &&
        why.code != ERROR_MEMORY)
        lose_ranks(executor, &why, NULL); /* the first step reports it */
    return why.code == ERROR_MEMORY ? -1 : 0;
}

int rank_executor_check(struct executor *base, struct error *err) {
    struct rank_executor *executor = self(base);
    struct error why = {0};
    if (executor->remote == NULL ||
        (!executor_has_hung(base) && remote_ranks_check(executor->remote, &why) == 0))
        return 0;
    return lose_ranks(executor, &why, err);
}
