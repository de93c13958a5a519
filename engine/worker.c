#include "engine/worker.h"

#include "config/check.h"
#include "engine/kv_budget.h"
#include "kernels/backend.h"
#include "models/llama.h"
#include "models/weights.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The head runs over this many rows at a time. */
#define MAX_LOGIT_ROWS 64

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
    struct worker_memory memory;

    /* the thread's own */
    struct backend *backend;
    struct weights *weights;
    struct kv_cache cache;
    struct llama *llama;
};

static int create_cache(struct worker *worker, struct error *err) {
    const struct model_config *model = &worker->model->config;
    struct backend *backend = worker->backend;
    struct kv_layout layout = {
        .num_layers = model->num_layers,
        .num_kv_heads = model->num_kv_heads,
        .head_dim = model->head_dim,
        .block_size = worker->config.block_size,
        .dtype = worker->config.kv_dtype,
    };
    struct kv_budget budget = {
        .block_bytes = kv_block_bytes(&layout),
        .block_size = layout.block_size,
        .max_model_len = worker->config.max_model_len,
        .max_num_seqs = worker->config.max_num_seqs,
        .memory_bytes = worker->config.kv_memory_bytes,
    };
    size_t total;
    backend->ops->memory_info(backend, &budget.available_bytes, &total);
    worker->cache.layout = layout;
    if (kv_budget_blocks(&budget, &worker->cache.num_blocks, err) != 0)
        return -1;
    return backend->ops->buffer_alloc(
        backend, (size_t)worker->cache.num_blocks * budget.block_bytes, &worker->cache.buffer, err);
}

static int load(struct worker *worker, struct error *err) {
    const struct worker_config *config = &worker->config;
    struct backend_config backend_config = {
        .num_threads = config->num_threads,
        .max_step_tokens = config->max_num_batched_tokens,
        .max_step_seqs = config->max_num_seqs,
    };
    struct llama_limits limits = {
        .max_step_tokens = config->max_num_batched_tokens,
        .max_logit_rows =
            config->max_num_seqs < MAX_LOGIT_ROWS ? config->max_num_seqs : MAX_LOGIT_ROWS,
    };
    worker->backend = backend_open(config->backend, &backend_config, err);
    if (worker->backend == NULL)
        return -1;
    if (weights_load(worker->backend, worker->model, config->max_model_len, &worker->weights,
                     err) != 0 ||
        llama_create(worker->backend, &worker->model->config, worker->weights, &limits,
                     &worker->llama, err) != 0)
        return -1;
    return create_cache(worker, err);
}

static void unload(struct worker *worker) {
    llama_destroy(worker->llama);
    if (worker->backend == NULL)
        return;
    worker->backend->ops->buffer_free(worker->backend, &worker->cache.buffer);
    weights_free(worker->backend, worker->weights);
    backend_close(worker->backend);
}

static void describe_memory(const struct worker *worker, struct worker_memory *out) {
    out->weight_bytes = worker->weights->bytes;
    out->workspace_bytes = llama_workspace_bytes(worker->llama);
    out->kv_bytes = worker->cache.buffer.bytes;
    out->num_blocks = worker->cache.num_blocks;
    snprintf(out->backend, sizeof(out->backend), "%s (%s)", worker->backend->name,
             worker->backend->description);
}

static void enter_locked(struct worker *worker, enum worker_state state) {
    worker->state = state;
    pthread_cond_broadcast(&worker->changed);
}

static void start_up(struct worker *worker) {
    struct error err = {0};
    struct worker_memory memory = {0};
    int status = load(worker, &err);
    if (status == 0)
        describe_memory(worker, &memory);
    pthread_mutex_lock(&worker->lock);
    worker->error = err;
    worker->memory = memory;
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
        llama_forward(worker->llama, &worker->cache, worker->batch, worker->result, &err);
        pthread_mutex_lock(&worker->lock);
        worker->error = err;
        enter_locked(worker, WORKER_IDLE);
    }
    pthread_mutex_unlock(&worker->lock);
    unload(worker);
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
                 struct worker_memory *out_memory, struct error *err) {
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
    *out_memory = worker->memory;
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
