/* A thread for each rank. No other thread touches a rank between its opening and its closing, but
 * for the choice of the numbers of blocks, while all of them wait for it.
 *
 * A device that never answers keeps its rank's thread in some call of its library for good. So the
 * engine's thread, whenever it waits for the ranks, looks at their watches, and gives up on one
 * that is late: then nobody waits for that thread any more, nor frees what it may still touch. */
#include "engine/executor.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "engine/executor/device_watch.h"
#include "engine/executor/rank.h"
#include "engine/executor/rank_setup.h"
#include "models/weights/weights_reader.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Between two looks at the watches, while nothing changes. */
#define LOOK_NS CLOCK_NS_PER_S

/* What the ranks' threads are to do, one after the other. */
enum phase {
    PHASE_OPEN,
    PHASE_ALLOCATE,
    PHASE_RUN,
    PHASE_QUIT,
};

struct submitted_step {
    const struct batch *batch;
    struct step_result *result;
    bool is_supplied;
};

struct rank_executor;

struct rank_thread {
    struct rank_executor *executor;
    int32_t index; /* of the rank */
    pthread_t thread;
    /* guarded by the executor's lock: parts of a step that the rank has come to */
    uint64_t num_begun, num_sampled, num_finished;
};

struct rank_executor {
    struct executor base;
    int32_t num_ranks;
    int32_t device_timeout_s;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    enum phase phase;
    int32_t num_ready;                               /* ranks that are done with it */
    struct submitted_step steps[EXECUTOR_MAX_STEPS]; /* step i is in place i % EXECUTOR_MAX_STEPS */
    uint64_t num_submitted, num_waited_for;          /* by the engine: calls that it made */
    uint64_t most_begun, most_sampled;               /* by any rank */
    struct error error;      /* the first, of starting or of a step; no rank goes on after it */
    uint64_t num_successful; /* steps before the first that some rank has not finished */
    bool has_hung;           /* a rank's device is late */

    struct rank_setup setup; /* while starting only */
    struct rank_thread threads[BACKEND_MAX_RANKS];
    struct device_watch watches[BACKEND_MAX_RANKS];
    struct rank ranks[BACKEND_MAX_RANKS]; /* each its thread's own */
};

static struct rank *rank_of(struct rank_thread *thread) {
    return &thread->executor->ranks[thread->index];
}

static void fail_locked(struct rank_executor *executor, const struct error *why) {
    if (executor->error.code == ERROR_NONE)
        executor->error = *why;
    pthread_cond_broadcast(&executor->changed);
}

static bool has_failed(const struct rank_executor *executor) {
    return executor->error.code != ERROR_NONE;
}

/* --- A rank's thread: starting ------------------------------------------------------------------ */

/* Notes that the rank is done with the phase, and returns whether `next` follows it. */
static bool await_phase(struct rank_executor *executor, const struct error *err, enum phase next) {
    pthread_mutex_lock(&executor->lock);
    if (err->code != ERROR_NONE)
        fail_locked(executor, err);
    executor->num_ready++;
    pthread_cond_broadcast(&executor->changed);
    while (executor->phase < next)
        pthread_cond_wait(&executor->changed, &executor->lock);
    bool follows = executor->phase == next;
    pthread_mutex_unlock(&executor->lock);
    return follows;
}

/* The threads of the rank's backend inherit where it may run. Others wait for this rank's part of
 * the weights: they learn that it does not come. */
static void open_rank(struct rank_thread *thread, struct error *err) {
    struct rank_setup *setup = &thread->executor->setup;
    const struct rank_place place = rank_setup_place(setup, thread->index);
    if (place.is_bound)
        sched_setaffinity(0, sizeof(place.cpus), &place.cpus); /* else it is only slower */
    if (rank_open(setup, thread->index, place.num_threads, rank_of(thread), err) != 0)
        weights_reader_abandon(setup->reader, err);
}

/* --- A rank's thread: steps --------------------------------------------------------------------- */

static struct submitted_step *step_at(struct rank_executor *executor, uint64_t index) {
    return &executor->steps[index % EXECUTOR_MAX_STEPS];
}

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Of the rank's next step to be finished. */
static void fail_step_locked(struct rank_thread *thread, const struct error *why) {
    struct rank_executor *executor = thread->executor;
    if (thread->num_finished < executor->num_successful)
        executor->num_successful = thread->num_finished;
    fail_locked(executor, why);
}

/* The following are called with the lock held, which is released while the rank works. */

static void begin_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    const struct submitted_step *step = step_at(executor, thread->num_begun++);
    executor->most_begun = most(executor->most_begun, thread->num_begun);
    pthread_mutex_unlock(&executor->lock);
    rank_begin(rank_of(thread), step->batch);
    pthread_mutex_lock(&executor->lock);
}

static void sample_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    const struct submitted_step *step = step_at(executor, thread->num_sampled++);
    executor->most_sampled = most(executor->most_sampled, thread->num_sampled);
    pthread_mutex_unlock(&executor->lock);
    rank_sample(rank_of(thread), step->batch, step->result);
    pthread_mutex_lock(&executor->lock);
}

static void finish_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    struct error err = {0};
    pthread_mutex_unlock(&executor->lock);
    int status = rank_wait(rank_of(thread), &err);
    pthread_mutex_lock(&executor->lock);
    if (status != 0)
        fail_step_locked(thread, &err);
    thread->num_finished++;
    pthread_cond_broadcast(&executor->changed);
}

/* Ends all steps after a failure, without another look at them. */
static void fail_steps(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    fail_step_locked(thread, &executor->error);
    thread->num_begun = thread->num_sampled = thread->num_finished = executor->num_submitted;
}

/* Returns whether to wait for the oldest step that was sampled. A device that works by itself is
 * given the next one first: the wait keeps the thread from doing that, so that it begins only when
 * the engine cannot submit another, or when that one's inputs depend on this one's results. */
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

/* Returns whether the rank may come to a part of a step of which it has done so many. After a
 * failure it only keeps up with the others, which wait for it in their collective ops. */
static bool may_go_on(const struct rank_executor *executor, uint64_t num_done,
                      uint64_t most_of_others) {
    return !has_failed(executor) || num_done < most_of_others;
}

/* Does what comes next; false when there is nothing to do. */
static bool work(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    bool is_begun = thread->num_begun > thread->num_sampled;
    if (is_begun && step_at(executor, thread->num_sampled)->is_supplied &&
        may_go_on(executor, thread->num_sampled, executor->most_sampled))
        sample_step(thread);
    else if (!has_failed(executor) && should_finish(thread))
        finish_step(thread);
    else if (!is_begun && executor->num_submitted > thread->num_begun &&
             may_go_on(executor, thread->num_begun, executor->most_begun))
        begin_step(thread);
    else if (has_failed(executor) && thread->num_finished < executor->num_submitted)
        fail_steps(thread);
    else
        return false;
    return true;
}

static void run_steps(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    pthread_mutex_lock(&executor->lock);
    while (executor->phase == PHASE_RUN)
        if (!work(thread))
            pthread_cond_wait(&executor->changed, &executor->lock);
    pthread_mutex_unlock(&executor->lock);
}

static void *run_thread(void *argument) {
    struct rank_thread *thread = argument;
    struct rank_executor *executor = thread->executor;
    struct error err = {0};
    open_rank(thread, &err);
    if (await_phase(executor, &err, PHASE_ALLOCATE)) {
        rank_allocate(rank_of(thread), &err);
        if (await_phase(executor, &err, PHASE_RUN))
            run_steps(thread);
    }
    rank_close(rank_of(thread));
    return NULL;
}

/* --- The engine's thread: devices that are late ------------------------------------------------- */

static void hang_locked(struct rank_executor *executor) {
    struct error why = {0};
    error_set(&why, ERROR_DEVICE,
              "the device has not finished what it was given within %d s (--device-timeout)",
              executor->device_timeout_s);
    executor->has_hung = true;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        fail_step_locked(&executor->threads[r], &why);
}

/* Waits for a change, or until the next look. Returns false when a device is late. */
static bool await_change_locked(struct rank_executor *executor) {
    int64_t now_ns = clock_now_ns(), until_ns = now_ns + LOOK_NS;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        until_ns = min_int64(until_ns, device_watch_deadline(&executor->watches[r]));
    if (until_ns <= now_ns)
        hang_locked(executor);
    if (executor->has_hung)
        return false;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / CLOCK_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % CLOCK_NS_PER_S)};
    int status = pthread_cond_timedwait(&executor->changed, &executor->lock, &until);
    CHECK(status == 0 || status == ETIMEDOUT);
    return true;
}

/* --- The engine's thread: steps ----------------------------------------------------------------- */

static void submit(struct executor *base, const struct batch *batch, struct step_result *result) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->num_submitted - executor->num_waited_for < EXECUTOR_MAX_STEPS);
    *step_at(executor, executor->num_submitted++) = (struct submitted_step){
        .batch = batch, .result = result, .is_supplied = !batch->has_late_inputs};
    pthread_cond_broadcast(&executor->changed);
    pthread_mutex_unlock(&executor->lock);
}

static void supply(struct executor *base) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    struct submitted_step *step = step_at(executor, executor->num_submitted - 1);
    CHECK(executor->num_submitted > executor->num_waited_for && !step->is_supplied);
    step->is_supplied = true;
    pthread_cond_broadcast(&executor->changed);
    pthread_mutex_unlock(&executor->lock);
}

static uint64_t num_finished(const struct rank_executor *executor) {
    uint64_t least = UINT64_MAX;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        if (executor->threads[r].num_finished < least)
            least = executor->threads[r].num_finished;
    return least;
}

static int wait(struct executor *base, struct error *err) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->num_waited_for < executor->num_submitted);
    uint64_t num_steps = ++executor->num_waited_for;
    pthread_cond_broadcast(&executor->changed);
    while (num_finished(executor) < num_steps && await_change_locked(executor))
        continue;
    bool is_successful = num_steps <= executor->num_successful;
    struct error failure = executor->error;
    pthread_mutex_unlock(&executor->lock);
    if (is_successful)
        return 0;
    return error_set(err, failure.code, "%s", failure.message);
}

/* --- The engine's thread: starting and ending --------------------------------------------------- */

static void enter(struct rank_executor *executor, enum phase phase) {
    pthread_mutex_lock(&executor->lock);
    executor->phase = phase;
    executor->num_ready = 0;
    pthread_cond_broadcast(&executor->changed);
    pthread_mutex_unlock(&executor->lock);
}

/* Waits until every rank is done with the phase. Returns -1 when one of them has failed. */
static int await_ranks(struct rank_executor *executor, struct error *err) {
    pthread_mutex_lock(&executor->lock);
    while (executor->num_ready < executor->num_ranks && await_change_locked(executor))
        continue;
    struct error failure = executor->error;
    pthread_mutex_unlock(&executor->lock);
    if (failure.code == ERROR_NONE)
        return 0;
    return error_set(err, failure.code, "%s", failure.message);
}

/* Ends the threads of the first num_started ranks. */
static void end_threads(struct rank_executor *executor, int32_t num_started) {
    enter(executor, PHASE_QUIT);
    for (int32_t r = 0; r < num_started; r++)
        CHECK(pthread_join(executor->threads[r].thread, NULL) == 0);
}

/* Those that were started wait for one another's part of the weights. */
static int start_threads(struct rank_executor *executor, struct error *err) {
    for (int32_t r = 0; r < executor->num_ranks; r++) {
        struct rank_thread *thread = &executor->threads[r];
        *thread = (struct rank_thread){.executor = executor, .index = r};
        int status = pthread_create(&thread->thread, NULL, run_thread, thread);
        if (status == 0)
            continue;
        struct error why = {0};
        error_set(&why, ERROR_IO, "cannot start the thread of rank %d: %s", r, strerror(status));
        weights_reader_abandon(executor->setup.reader, &why);
        end_threads(executor, r);
        return error_set(err, why.code, "%s", why.message);
    }
    return 0;
}

/* Through the phases, in each of which one rank's failure is all of them's. */
static int start_ranks(struct rank_executor *executor, struct executor_info *info,
                       struct error *err) {
    if (start_threads(executor, err) != 0)
        return -1;
    int status = await_ranks(executor, err);
    if (status == 0)
        status = rank_setup_choose_blocks(executor->ranks, executor->num_ranks, err);
    if (status == 0) {
        enter(executor, PHASE_ALLOCATE);
        status = await_ranks(executor, err);
    }
    if (status != 0) {
        if (!executor->has_hung)
            end_threads(executor, executor->num_ranks);
        return -1;
    }
    rank_setup_describe(executor->ranks, executor->num_ranks, info);
    enter(executor, PHASE_RUN);
    return 0;
}

static void free_executor(struct rank_executor *executor) {
    rank_setup_finish(&executor->setup);
    pthread_cond_destroy(&executor->changed);
    pthread_mutex_destroy(&executor->lock);
    free(executor);
}

static void destroy(struct executor *base) {
    struct rank_executor *executor = (struct rank_executor *)base;
    CHECK(executor->num_waited_for == executor->num_submitted && !executor->has_hung);
    end_threads(executor, executor->num_ranks);
    free_executor(executor);
}

static void init_sync(struct rank_executor *executor) {
    pthread_condattr_t attributes;
    CHECK(pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&executor->changed, &attributes) == 0);
    CHECK(pthread_mutex_init(&executor->lock, NULL) == 0);
    pthread_condattr_destroy(&attributes);
}

static const struct executor_ops rank_ops = {
    .submit = submit, .supply = supply, .wait = wait, .destroy = destroy};

bool executor_has_hung(struct executor *base) {
    struct rank_executor *executor = (struct rank_executor *)base;
    if (base->ops != &rank_ops)
        return false;
    pthread_mutex_lock(&executor->lock);
    bool has_hung = executor->has_hung;
    pthread_mutex_unlock(&executor->lock);
    return has_hung;
}

int executor_create(const struct model *model, const struct executor_config *config,
                    struct executor_info *info, struct executor **out, struct error *err) {
    struct rank_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the executor");
    executor->base.ops = &rank_ops;
    executor->num_successful = UINT64_MAX;
    executor->device_timeout_s = config->device_timeout_s;
    init_sync(executor);
    int status = rank_setup_init(&executor->setup, model, config, true, err);
    executor->num_ranks = executor->setup.num_ranks;
    executor->setup.watches = executor->watches;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        device_watch_init(&executor->watches[r], config->device_timeout_s * CLOCK_NS_PER_S);
    if (status == 0)
        status = start_ranks(executor, info, err);
    *out = executor->has_hung ? &executor->base : NULL;
    if (status != 0 && !executor->has_hung)
        free_executor(executor);
    if (status != 0)
        return -1;
    rank_setup_loaded(&executor->setup);
    *out = &executor->base;
    return 0;
}

int executor_plan(const struct model *model, const struct executor_config *config,
                  struct executor_info *info, struct error *err) {
    struct rank_setup setup;
    struct rank ranks[BACKEND_MAX_RANKS] = {0};
    if (rank_setup_init(&setup, model, config, false, err) != 0)
        return -1;
    int status = 0;
    for (int32_t r = 0; r < setup.num_ranks && status == 0; r++)
        status = rank_plan(&setup, r, rank_setup_place(&setup, r).num_threads, &ranks[r], err);
    if (status == 0)
        status = rank_setup_choose_blocks(ranks, setup.num_ranks, err);
    if (status == 0)
        rank_setup_describe(ranks, setup.num_ranks, info);
    for (int32_t r = 0; r < setup.num_ranks; r++)
        rank_close(&ranks[r]);
    rank_setup_finish(&setup);
    return status;
}
