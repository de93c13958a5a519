/* One rank and its thread. No other thread touches the rank: it is loaded, run and unloaded here. */
#include "engine/executor.h"

#include "config/base/check.h"
#include "engine/executor/rank.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum thread_state {
    THREAD_STARTING,
    THREAD_STARTED,
    THREAD_FAILED, /* to start */
    THREAD_QUITTING,
};

struct submitted_step {
    const struct batch *batch;
    struct step_result *result;
    bool is_supplied;
};

struct rank_executor {
    struct executor base;
    const struct model *model;
    const struct executor_config *config; /* read while starting only */
    struct executor_info *info;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    enum thread_state state;
    struct submitted_step steps[EXECUTOR_MAX_STEPS]; /* step i is in place i % EXECUTOR_MAX_STEPS */
    uint64_t num_submitted, num_waited_for;          /* by the engine: calls that it made */
    uint64_t num_begun, num_sampled, num_finished;   /* by the rank: parts of a step */
    struct error error; /* of starting, then of the first failed step */

    struct rank rank; /* the thread's own */
};

static void enter_locked(struct rank_executor *executor, enum thread_state state) {
    executor->state = state;
    pthread_cond_broadcast(&executor->changed);
}

static void load(struct rank_executor *executor) {
    struct error err = {0};
    int status =
        rank_load(executor->model, executor->config, executor->info, &executor->rank, &err);
    pthread_mutex_lock(&executor->lock);
    executor->error = err;
    enter_locked(executor, status == 0 ? THREAD_STARTED : THREAD_FAILED);
    pthread_mutex_unlock(&executor->lock);
}

static struct submitted_step *step_at(struct rank_executor *executor, uint64_t index) {
    return &executor->steps[index % EXECUTOR_MAX_STEPS];
}

/* --- What the thread does next: with the lock held, which is released while the rank works ------ */

static void begin_step(struct rank_executor *executor) {
    const struct submitted_step *step = step_at(executor, executor->num_begun++);
    pthread_mutex_unlock(&executor->lock);
    rank_begin(&executor->rank, step->batch);
    pthread_mutex_lock(&executor->lock);
}

static void sample_step(struct rank_executor *executor) {
    const struct submitted_step *step = step_at(executor, executor->num_sampled++);
    pthread_mutex_unlock(&executor->lock);
    rank_sample(&executor->rank, step->batch, step->result);
    pthread_mutex_lock(&executor->lock);
}

static void finish_step(struct rank_executor *executor) {
    struct error err = {0};
    pthread_mutex_unlock(&executor->lock);
    rank_wait(&executor->rank, &err);
    pthread_mutex_lock(&executor->lock);
    executor->error = err;
    executor->num_finished++;
    pthread_cond_broadcast(&executor->changed);
}

/* Ends all steps after a failure, without another look at them. */
static void fail_steps(struct rank_executor *executor) {
    executor->num_begun = executor->num_sampled = executor->num_finished = executor->num_submitted;
    pthread_cond_broadcast(&executor->changed);
}

/* Returns whether to wait for the oldest step that was sampled. A device that works by itself is
 * given the next one first: the wait keeps the thread from doing that, so that it begins only when
 * the engine cannot submit another, or when that one's inputs depend on this one's results. */
static bool should_finish(const struct rank_executor *executor) {
    uint64_t num_enqueued = executor->num_sampled - executor->num_finished;
    if (num_enqueued == 0)
        return false;
    bool is_next_late = executor->num_begun > executor->num_sampled;
    bool is_next_submitted = executor->num_submitted > executor->num_begun;
    bool is_awaited = executor->num_waited_for > executor->num_finished;
    return is_next_late || !rank_is_asynchronous(&executor->rank) ||
           num_enqueued == EXECUTOR_MAX_STEPS || (is_awaited && !is_next_submitted);
}

/* Does what comes next; false when there is nothing to do. */
static bool work(struct rank_executor *executor) {
    bool is_begun = executor->num_begun > executor->num_sampled;
    if (executor->error.code != ERROR_NONE && executor->num_finished < executor->num_submitted)
        fail_steps(executor);
    else if (is_begun && step_at(executor, executor->num_sampled)->is_supplied)
        sample_step(executor);
    else if (should_finish(executor))
        finish_step(executor);
    else if (!is_begun && executor->num_submitted > executor->num_begun)
        begin_step(executor);
    else
        return false;
    return true;
}

static void *rank_thread(void *argument) {
    struct rank_executor *executor = argument;
    load(executor);
    pthread_mutex_lock(&executor->lock);
    while (executor->state == THREAD_STARTED)
        if (!work(executor))
            pthread_cond_wait(&executor->changed, &executor->lock);
    pthread_mutex_unlock(&executor->lock);
    rank_unload(&executor->rank);
    return NULL;
}

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

static int wait(struct executor *base, struct error *err) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->num_waited_for < executor->num_submitted);
    executor->num_waited_for++;
    pthread_cond_broadcast(&executor->changed);
    while (executor->num_finished < executor->num_waited_for)
        pthread_cond_wait(&executor->changed, &executor->lock);
    struct error failure = executor->error;
    pthread_mutex_unlock(&executor->lock);
    if (failure.code == ERROR_NONE)
        return 0;
    return error_set(err, failure.code, "%s", failure.message);
}

static void free_executor(struct rank_executor *executor) {
    pthread_cond_destroy(&executor->changed);
    pthread_mutex_destroy(&executor->lock);
    free(executor);
}

static void destroy(struct executor *base) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->num_waited_for == executor->num_submitted);
    enter_locked(executor, THREAD_QUITTING);
    pthread_mutex_unlock(&executor->lock);
    CHECK(pthread_join(executor->thread, NULL) == 0);
    free_executor(executor);
}

static int start_thread(struct rank_executor *executor, struct error *err) {
    int status = pthread_create(&executor->thread, NULL, rank_thread, executor);
    if (status != 0)
        return error_set(err, ERROR_IO, "cannot start a worker thread: %s", strerror(status));
    pthread_mutex_lock(&executor->lock);
    while (executor->state == THREAD_STARTING)
        pthread_cond_wait(&executor->changed, &executor->lock);
    bool failed = executor->state == THREAD_FAILED;
    pthread_mutex_unlock(&executor->lock);
    if (!failed)
        return 0;
    CHECK(pthread_join(executor->thread, NULL) == 0);
    return error_set(err, executor->error.code, "%s", executor->error.message);
}

int executor_create(const struct model *model, const struct executor_config *config,
                    struct executor_info *info, struct executor **out, struct error *err) {
    static const struct executor_ops ops = {
        .submit = submit, .supply = supply, .wait = wait, .destroy = destroy};
    struct rank_executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the executor");
    executor->base.ops = &ops;
    executor->model = model;
    executor->config = config;
    executor->info = info;
    CHECK(pthread_mutex_init(&executor->lock, NULL) == 0);
    CHECK(pthread_cond_init(&executor->changed, NULL) == 0);
    if (start_thread(executor, err) != 0) {
        free_executor(executor);
        return -1;
    }
    *out = &executor->base;
    return 0;
}

int executor_plan(const struct model *model, const struct executor_config *config,
                  struct executor_info *info, struct error *err) {
    return rank_plan(model, config, info, err);
}
