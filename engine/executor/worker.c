#include "engine/executor/worker.h"

#include "config/base/check.h"
#include "engine/executor/rank.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum worker_state {
    WORKER_STARTING,
    WORKER_IDLE,
    WORKER_RUNNING, /* a step was handed over */
    WORKER_FAILED,  /* to start */
    WORKER_QUITTING,
};

struct worker {
    const struct model *model;
    struct worker_config config;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    enum worker_state state;
    const struct batch *batch;
    struct step_result *result;
    struct error error; /* of starting, then of the last step */

    struct rank rank; /* the thread's own; its `info` is read once it is IDLE */
};

static void enter_locked(struct worker *worker, enum worker_state state) {
    worker->state = state;
    pthread_cond_broadcast(&worker->changed);
}

static void start_up(struct worker *worker) {
    struct error err = {0};
    int status = rank_load(worker->model, &worker->config, &worker->rank, &err);
    pthread_mutex_lock(&worker->lock);
    worker->error = err;
    enter_locked(worker, status == 0 ? WORKER_IDLE : WORKER_FAILED);
    pthread_mutex_unlock(&worker->lock);
}

static void *worker_thread(void *argument) {
    struct worker *worker = argument;
    start_up(worker);
    pthread_mutex_lock(&worker->lock);
    for (;;) {
        while (worker->state == WORKER_IDLE)
            pthread_cond_wait(&worker->changed, &worker->lock);
        if (worker->state != WORKER_RUNNING)
            break;
        pthread_mutex_unlock(&worker->lock);
        struct error err = {0};
        rank_step(&worker->rank, worker->batch, worker->result, &err);
        pthread_mutex_lock(&worker->lock);
        worker->error = err;
        enter_locked(worker, WORKER_IDLE);
    }
    pthread_mutex_unlock(&worker->lock);
    rank_unload(&worker->rank);
    return NULL;
}

static void free_worker(struct worker *worker) {
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
}

static int start_thread(struct worker *worker, struct error *err) {
    int status = pthread_create(&worker->thread, NULL, worker_thread, worker);
    if (status != 0)
        return error_set(err, ERROR_IO, "cannot start a worker thread: %s", strerror(status));
    pthread_mutex_lock(&worker->lock);
    while (worker->state == WORKER_STARTING)
        pthread_cond_wait(&worker->changed, &worker->lock);
    bool failed = worker->state == WORKER_FAILED;
    pthread_mutex_unlock(&worker->lock);
    if (!failed)
        return 0;
    CHECK(pthread_join(worker->thread, NULL) == 0);
    return error_set(err, worker->error.code, "%s", worker->error.message);
}

int worker_start(const struct model *model, const struct worker_config *config, struct worker **out,
                 struct worker_info *out_info, struct error *err) {
    struct worker *worker = calloc(1, sizeof(*worker));
    if (worker == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a worker");
    worker->model = model;
    worker->config = *config;
    CHECK(pthread_mutex_init(&worker->lock, NULL) == 0);
    CHECK(pthread_cond_init(&worker->changed, NULL) == 0);
    if (start_thread(worker, err) != 0) {
        free_worker(worker);
        return -1;
    }
    *out_info = worker->rank.info;
    *out = worker;
    return 0;
}

void worker_begin(struct worker *worker, const struct batch *batch, struct step_result *result) {
    pthread_mutex_lock(&worker->lock);
    CHECK(worker->state == WORKER_IDLE);
    worker->batch = batch;
    worker->result = result;
    enter_locked(worker, WORKER_RUNNING);
    pthread_mutex_unlock(&worker->lock);
}

int worker_wait(struct worker *worker, struct error *err) {
    pthread_mutex_lock(&worker->lock);
    while (worker->state == WORKER_RUNNING)
        pthread_cond_wait(&worker->changed, &worker->lock);
    struct error step = worker->error;
    pthread_mutex_unlock(&worker->lock);
    if (step.code == ERROR_NONE)
        return 0;
    return error_set(err, step.code, "%s", step.message);
}

void worker_stop(struct worker *worker) {
    if (worker == NULL)
        return;
    worker_wait(worker, NULL);
    pthread_mutex_lock(&worker->lock);
    enter_locked(worker, WORKER_QUITTING);
    pthread_mutex_unlock(&worker->lock);
    CHECK(pthread_join(worker->thread, NULL) == 0);
    free_worker(worker);
}
