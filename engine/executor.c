/* One rank and its thread. No other thread touches the rank: it is loaded, run and unloaded here. */
#include "engine/executor.h"

#include "config/base/check.h"
#include "engine/executor/rank.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum thread_state {
    THREAD_STARTING,
    THREAD_IDLE,
    THREAD_RUNNING, /* a step was handed over */
    THREAD_FAILED,  /* to start */
    THREAD_QUITTING,
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
    const struct batch *batch;
    struct step_result *result;
    struct error error; /* of starting, then of the last step */

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
    enter_locked(executor, status == 0 ? THREAD_IDLE : THREAD_FAILED);
    pthread_mutex_unlock(&executor->lock);
}

static void *rank_thread(void *argument) {
    struct rank_executor *executor = argument;
    load(executor);
    pthread_mutex_lock(&executor->lock);
    for (;;) {
        while (executor->state == THREAD_IDLE)
            pthread_cond_wait(&executor->changed, &executor->lock);
        if (executor->state != THREAD_RUNNING)
            break;
        pthread_mutex_unlock(&executor->lock);
        struct error err = {0};
        rank_step(&executor->rank, executor->batch, executor->result, &err);
        pthread_mutex_lock(&executor->lock);
        executor->error = err;
        enter_locked(executor, THREAD_IDLE);
    }
    pthread_mutex_unlock(&executor->lock);
    rank_unload(&executor->rank);
    return NULL;
}

static int run(struct executor *base, const struct batch *batch, struct step_result *result,
               struct error *err) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->state == THREAD_IDLE);
    executor->batch = batch;
    executor->result = result;
    enter_locked(executor, THREAD_RUNNING);
    while (executor->state == THREAD_RUNNING)
        pthread_cond_wait(&executor->changed, &executor->lock);
    struct error step = executor->error;
    pthread_mutex_unlock(&executor->lock);
    if (step.code == ERROR_NONE)
        return 0;
    return error_set(err, step.code, "%s", step.message);
}

static void free_executor(struct rank_executor *executor) {
    pthread_cond_destroy(&executor->changed);
    pthread_mutex_destroy(&executor->lock);
    free(executor);
}

static void destroy(struct executor *base) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->state == THREAD_IDLE);
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
    static const struct executor_ops ops = {.run = run, .destroy = destroy};
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
