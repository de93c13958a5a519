/* Each rank is started by its own thread, which then runs the steps or hands the rank over
 * (rank_executor.h). No other thread touches a rank until it is handed over or closed, except to
 * choose the numbers of blocks, while all ranks' threads wait for that. */
#include "engine/executor/executor.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "config/base/log.h"
#include "engine/executor/rank_executor.h"
#include "engine/executor/remote_ranks.h"
#include "kernels/transport.h"
#include "models/files/tensor_file.h"
#include "models/weights/weights_reader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- The engine's thread: starting and ending --- */

static void enter(struct rank_executor *executor, enum phase phase) {
    pthread_mutex_lock(&executor->lock);
    executor->phase = phase;
    executor->num_ready = 0;
    pthread_cond_broadcast(&executor->changed);
    pthread_mutex_unlock(&executor->lock);
}

/* Waits until every rank has finished the phase. Returns -1 when one of them has failed. */
static int await_ranks(struct rank_executor *executor, struct error *err) {
    pthread_mutex_lock(&executor->lock);
    while (executor->num_ready < executor->num_ranks && rank_executor_await_change(executor))
        continue;
    struct error failure = executor->error;
    pthread_mutex_unlock(&executor->lock);
    if (failure.code == ERROR_NONE)
        return 0;
    return error_set(err, failure.code, "%s", failure.message);
}

static void join_threads(struct rank_executor *executor, int32_t num_started) {
    for (int32_t r = 0; r < num_started; r++)
        CHECK(pthread_join(executor->threads[r].thread, NULL) == 0);
}

/* Ends the threads of the first num_started ranks. */
static void end_threads(struct rank_executor *executor, int32_t num_started) {
    enter(executor, PHASE_QUIT);
    join_threads(executor, num_started);
}

/* On failure, the threads that were started would wait for the others' parts of the weights. */
static int start_threads(struct rank_executor *executor, struct error *err) {
    for (int32_t r = 0; r < executor->num_ranks; r++) {
        struct rank_thread *thread = &executor->threads[r];
        pthread_mutex_lock(&executor->lock); /* at a restart, for rank_stats */
        *thread = (struct rank_thread){.executor = executor, .index = r};
        pthread_mutex_unlock(&executor->lock);
        int status = pthread_create(&thread->thread, NULL, rank_executor_run_thread, thread);
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

/* Hands the rank over from its thread to the engine's. */
static int hand_over(struct rank_executor *executor, struct error *err) {
    enter(executor, PHASE_HAND_OVER);
    join_threads(executor, executor->num_ranks);
    pthread_mutex_lock(&executor->lock); /* at a restart, for rank_stats */
    executor->is_direct = true;
    pthread_mutex_unlock(&executor->lock);
    if (rank_executor_watch(executor, err) == 0)
        return 0;
    rank_close(&executor->ranks[0]);
    return -1;
}

/* Agrees with the ranks in other processes, if there are any; if this one cannot continue, they
 * learn it. Also returns -1 when one of the others cannot continue. */
static int agree(struct rank_executor *executor, int status, struct rank_decision *out,
                 struct error *err) {
    const struct rank *rank = &executor->ranks[0];
    struct transport *transport = executor->setup.config->transport;
    struct rank_report report = {.config = *executor->setup.config};
    if (transport == NULL)
        return status;
    snprintf(report.build, sizeof(report.build), "%s", executor->setup.config->build);
    snprintf(report.device, sizeof(report.device), "%s", executor->setup.config->device);
    if (status != 0) {
        report.error = *err;
    } else {
        report.config.limits.max_num_seqs = rank->limits.max_num_seqs;
        report.config.limits.max_num_batched_tokens = rank->limits.max_num_batched_tokens;
        snprintf(report.numerics, sizeof(report.numerics), "%s", rank->backend->numerics);
        report.max_model_len = rank->limits.max_model_len;
        report.num_blocks = rank->limits.num_blocks;
        report.num_host_blocks = rank->limits.num_host_blocks;
        report.swap_block_ns = rank->swap_block_ns;
        report.memory = rank->memory;
        memcpy(report.place, rank->place, sizeof(report.place));
        report.model = *weights_reader_digest(executor->setup.reader);
    }
    return rank_agreement_reach(transport, &report, out, err);
}

/* Chooses the length before the weights are read: one sequence must fit. */
static int choose_length(struct rank_executor *executor, int status, struct error *err) {
    struct rank_decision decision = {0};
    if (status == 0)
        status = rank_setup_choose_length(&executor->setup, executor->ranks, err);
    if (status == 0)
        status = rank_setup_choose_blocks(executor->ranks, executor->num_ranks, err);
    status = agree(executor, status, &decision, err);
    if (status == 0 && executor->setup.config->transport != NULL)
        status = rank_setup_set_length(executor->ranks, executor->num_ranks, decision.max_model_len,
                                       err);
    return status;
}

/* Other processes load for longer or shorter, and one that cannot must not be waited for. */
static int load(struct rank_executor *executor, struct error *err) {
    struct rank_decision decision;
    enter(executor, PHASE_LOAD);
    return agree(executor, await_ranks(executor, err), &decision, err);
}

static int choose_blocks(struct rank_executor *executor, int status, struct error *err) {
    struct rank_decision decision = {0};
    if (status == 0)
        status = rank_setup_choose_blocks(executor->ranks, executor->num_ranks, err);
    status = agree(executor, status, &decision, err);
    if (status == 0 && executor->setup.config->transport != NULL)
        rank_setup_set_blocks(executor->ranks, executor->num_ranks, decision.num_blocks,
                              decision.num_host_blocks);
    return status;
}

/* Stores the digests of the models that the ranks of all processes have read. */
static int take_digests(struct rank_executor *executor, struct executor_info *info,
                        struct error *err) {
    struct transport *transport = executor->setup.config->transport;
    struct weights_digest *digest = weights_reader_digest(executor->setup.reader);
    if (executor->setup.draft_reader != NULL)
        weights_digest_sum(weights_reader_digest(executor->setup.draft_reader), info->draft_digest);
    if (transport != NULL && rank_agreement_share_model(transport, digest, err) != 0)
        return -1;
    if (transport == NULL || transport->rank == 0)
        weights_digest_sum(digest, info->model_digest);
    return 0;
}

static int allocate(struct rank_executor *executor, struct executor_info *info, struct error *err) {
    struct rank_decision decision;
    struct executor_info found = {0};
    enter(executor, PHASE_ALLOCATE);
    int status = await_ranks(executor, err);
    struct error unseen;
    if (take_digests(executor, &found, status == 0 ? err : &unseen) != 0)
        status = -1;
    if (agree(executor, status, &decision, err) != 0)
        return -1;
    rank_setup_describe(executor->ranks, executor->num_ranks, info);
    memcpy(info->model_digest, found.model_digest, sizeof(info->model_digest));
    memcpy(info->draft_digest, found.draft_digest, sizeof(info->draft_digest));
    if (executor->setup.config->transport != NULL)
        rank_setup_describe_all(&decision, executor->setup.num_ranks, info);
    return 0;
}

/* Before the first request a rank may take much longer than another, which waits for it without a
 * timeout. */
static int try_and_allocate(struct rank_executor *executor, struct executor_info *info,
                            struct error *err) {
    struct transport *transport = executor->setup.config->transport;
    int64_t timeout_ns = transport != NULL ? transport->timeout_ns : 0;
    if (transport != NULL)
        transport->timeout_ns = 0;
    enter(executor, PHASE_TRY);
    int status = choose_blocks(executor, await_ranks(executor, err), err);
    if (status == 0)
        status = allocate(executor, info, err);
    if (transport != NULL)
        transport->timeout_ns = timeout_ns;
    return status;
}

/* Goes through the phases of starting. In each of them, the failure of one rank is the failure of
 * all. */
static int start_ranks(struct rank_executor *executor, struct executor_info *info,
                       struct error *err) {
    if (start_threads(executor, err) != 0)
        return -1;
    int status = choose_length(executor, await_ranks(executor, err), err);
    if (status == 0)
        status = load(executor, err);
    if (status == 0)
        status = try_and_allocate(executor, info, err);
    if (status != 0) {
        if (!executor_has_hung(&executor->base))
            end_threads(executor, executor->num_ranks);
        return -1;
    }
    if (executor->setup.num_ranks == 1 && rank_is_asynchronous(&executor->ranks[0]))
        return hand_over(executor, err);
    enter(executor, PHASE_RUN);
    return 0;
}

static void free_executor(struct rank_executor *executor) {
    rank_setup_finish(&executor->setup);
    remote_ranks_destroy(executor->remote);
    pthread_cond_destroy(&executor->changed);
    pthread_mutex_destroy(&executor->lock);
    free(executor);
}

/* Opens all ranks, in threads that end with this function. */
static int open_all(struct rank_executor *executor, const struct executor_config *config,
                    struct executor_info *info, struct error *err) {
    int status = rank_setup_init(&executor->setup, executor->model, config, true, err);
    enter(executor, PHASE_OPEN);
    pthread_mutex_lock(&executor->lock);
    executor->num_ranks = executor->setup.num_local;
    pthread_mutex_unlock(&executor->lock);
    executor->setup.watches = executor->watches;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        rank_watch_init(&executor->watches[r], config->device_timeout_s * CLOCK_NS_PER_S);
    if (status == 0)
        status = start_ranks(executor, info, err);
    if (status == 0)
        rank_setup_loaded(&executor->setup);
    return status;
}

static void close_all(struct rank_executor *executor) {
    if (executor->is_direct) {
        rank_executor_unwatch(executor);
        rank_close(&executor->ranks[0]);
    } else {
        end_threads(executor, executor->num_ranks);
    }
}

static void destroy(struct executor *base) {
    struct rank_executor *executor = (struct rank_executor *)base;
    CHECK(executor->num_waited_for == executor->num_submitted &&
          !executor_has_hung(&executor->base));
    if (executor->remote != NULL)
        remote_ranks_dismiss(executor->remote);
    if (executor->rest != RANK_CLOSED)
        close_all(executor);
    free_executor(executor);
}

/* --- Sleep --- */

static void release_pools(struct rank_executor *executor) {
    struct error err;
    if (executor->is_direct) {
        rank_release(&executor->ranks[0]);
        return;
    }
    pthread_mutex_lock(&executor->lock);
    executor->error = (struct error){0}; /* of pools that were not allocated */
    pthread_mutex_unlock(&executor->lock);
    enter(executor, PHASE_RELEASE);
    await_ranks(executor, &err);
}

static int take_pools(struct rank_executor *executor, struct error *err) {
    int status;
    if (executor->is_direct) {
        status = rank_allocate(&executor->ranks[0], err);
    } else {
        enter(executor, PHASE_ALLOCATE);
        status = await_ranks(executor, err);
    }
    if (executor_has_hung(&executor->base))
        return -1;
    if (status != 0)
        release_pools(executor);
    else if (!executor->is_direct)
        enter(executor, PHASE_RUN);
    return status;
}

/* The threads of ranks that are opened again count steps from 0. */
static int reopen(struct rank_executor *executor, struct error *err) {
    struct executor_info info;
    pthread_mutex_lock(&executor->lock);
    executor->error = (struct error){0};
    executor->num_submitted = executor->num_waited_for = 0;
    executor->most_begun = executor->most_sampled = 0;
    executor->turn.end = 0;
    pthread_mutex_unlock(&executor->lock);
    const struct model *draft = executor->config.draft_model;
    if (tensor_file_refresh(executor->model->file, err) != 0 ||
        (draft != NULL && tensor_file_refresh(draft->file, err) != 0))
        return -1;
    if (open_all(executor, &executor->config, &info, err) != 0) {
        if (!executor_has_hung(&executor->base))
            rank_setup_finish(&executor->setup);
        return -1;
    }
    if (executor_info_compare(&executor->info, &info, err) == 0)
        return 0;
    close_all(executor);
    rank_setup_finish(&executor->setup);
    return -1;
}

static void fall_asleep(struct executor *base, bool discards_weights) {
    struct rank_executor *executor = (struct rank_executor *)base;
    CHECK(base->can_sleep && executor->num_waited_for == executor->num_submitted &&
          (executor->rest == RANK_AWAKE || (executor->rest == RANK_RELEASED && discards_weights)));
    if (discards_weights) {
        close_all(executor);
        rank_setup_finish(&executor->setup);
    } else {
        release_pools(executor);
    }
    executor->rest = discards_weights ? RANK_CLOSED : RANK_RELEASED;
}

static int wake(struct executor *base, struct error *err) {
    struct rank_executor *executor = (struct rank_executor *)base;
    CHECK(executor->rest != RANK_AWAKE);
    int status = executor->rest == RANK_CLOSED ? reopen(executor, err) : take_pools(executor, err);
    if (status == 0)
        executor->rest = RANK_AWAKE;
    return status;
}

static int32_t rank_stats(struct executor *base, struct rank_stats *out) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    int32_t num_ranks = executor->is_direct ? 0 : executor->num_ranks;
    for (int32_t r = 0; r < num_ranks; r++)
        out[r] = executor->threads[r].stats;
    pthread_mutex_unlock(&executor->lock);
    if (executor->remote != NULL)
        num_ranks += remote_ranks_stats(executor->remote, out + num_ranks);
    return num_ranks;
}

/* The ranks use them only in steps. */
static void list_host_pools(struct executor *base, struct host_pools *out) {
    struct rank_executor *executor = (struct rank_executor *)base;
    out->count = 0;
    for (int32_t r = 0; r < executor->num_ranks && executor->remote == NULL; r++)
        rank_add_host_pools(&executor->ranks[r], out);
}

static void init_sync(struct rank_executor *executor) {
    pthread_condattr_t attributes;
    CHECK(pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&executor->changed, &attributes) == 0);
    CHECK(pthread_mutex_init(&executor->lock, NULL) == 0);
    pthread_condattr_destroy(&attributes);
}

int executor_create(const struct model *model, const struct executor_config *config,
                    struct executor_info *info, struct executor **out, struct error *err) {
    static const struct executor_ops ops = {
        .submit = rank_executor_submit,
        .supply = rank_executor_supply,
        .wait = rank_executor_wait,
        .destroy = destroy,
        .step_memory = rank_executor_step_memory,
        .check = rank_executor_check,
        .restart = executor_cannot_start_again,
        .sleep = fall_asleep,
        .wake = wake,
        .rank_stats = rank_stats,
        .host_pools = list_host_pools,
    };
    struct rank_executor *executor = calloc(1, sizeof(*executor));
    struct error unseen;
    bool has_remote = config->transport != NULL && config->transport->rank == 0;
    err = err != NULL ? err : &unseen; /* it may be sent to other ranks */
    *out = NULL;
    if (executor != NULL && has_remote)
        executor->remote = remote_ranks_create(config->transport, max_int32(config->num_ranks, 1));
    if (executor == NULL || (has_remote && executor->remote == NULL)) {
        free(executor);
        return error_set(err, ERROR_MEMORY, "no memory for the executor");
    }
    executor->base = (struct executor){
        .ops = &ops, .can_lose_ranks = has_remote, .can_sleep = config->transport == NULL};
    executor->num_successful = UINT64_MAX;
    executor->device_timeout_s = config->device_timeout_s;
    init_sync(executor);
    executor->model = model;
    int status = open_all(executor, config, info, err);
    bool has_hung = executor_has_hung(&executor->base);
    *out = has_hung ? &executor->base : NULL;
    if (status != 0 && !has_hung)
        free_executor(executor);
    if (status != 0)
        return -1;
    executor->info = *info;
    executor->config = *config;
    executor->config.progress = (struct weights_progress){0};
    executor_info_fix(&executor->info, &executor->config);
    *out = &executor->base;
    return 0;
}

void executor_info_fix(const struct executor_info *info, struct executor_config *config) {
    config->device = info->device;
    config->kv_memory_bytes = info->memory.kv_bytes;
    config->swap_bytes = info->memory.swap_bytes;
    config->kept_bytes = 0;
    config->limits = info->limits;
    config->lora = info->lora;
}

int executor_info_compare(const struct executor_info *first, const struct executor_info *now,
                          struct error *err) {
    const struct serving_limits *a = &first->limits, *b = &now->limits;
    if (memcmp(first->model_digest, now->model_digest, sizeof(first->model_digest)) != 0)
        return error_set(err, ERROR_MODEL, "the model's files have changed since the start");
    if (memcmp(first->draft_digest, now->draft_digest, sizeof(first->draft_digest)) != 0)
        return error_set(err, ERROR_MODEL, "the draft model's files have changed since the start");
    if (a->num_blocks != b->num_blocks || a->num_host_blocks != b->num_host_blocks ||
        a->max_num_seqs != b->max_num_seqs ||
        a->max_num_batched_tokens != b->max_num_batched_tokens)
        return error_set(err, ERROR_DEVICE, "the ranks have %d blocks now, and had %d",
                         b->num_blocks, a->num_blocks);
    if (strcmp(first->numerics, now->numerics) != 0)
        log_warning("the ranks round differently than before: %s; were %s", now->numerics,
                    first->numerics);
    return 0;
}

int executor_plan(const struct model *model, const struct executor_config *config,
                  struct executor_info *info, struct error *err) {
    struct rank_setup setup;
    struct rank ranks[BACKEND_MAX_RANKS] = {0};
    if (rank_setup_init(&setup, model, config, false, err) != 0)
        return -1;
    int status = 0;
    for (int32_t r = 0; r < setup.num_local && status == 0; r++) {
        const struct rank_place place = rank_setup_place(&setup, r);
        status = rank_open(&setup, r, place.num_threads, &ranks[r], err);
        rank_setup_describe_place(&setup, &place, ranks[r].place);
    }
    if (status == 0)
        status = rank_setup_choose_length(&setup, ranks, err);
    if (status == 0)
        status = rank_setup_choose_blocks(ranks, setup.num_local, err);
    if (status == 0)
        rank_setup_describe(ranks, setup.num_local, info);
    for (int32_t r = 0; r < setup.num_local; r++)
        rank_close(&ranks[r]);
    rank_setup_finish(&setup);
    return status;
}

void executor_plan_traffic(const struct model *model, const struct executor_config *config,
                           const struct executor_info *info, struct executor_traffic *out) {
    for (int32_t r = 0; r < info->num_ranks; r++) {
        struct model_shard shard;
        CHECK(model_shard_init_stage(model, config->quantization, r,
                                     info->num_ranks / info->num_stages, info->num_stages, &shard,
                                     NULL) == 0);
        int64_t activation_bytes = (int64_t)dtype_row_bytes(info->activation_dtype, 1);
        out[r] = info->has_dedicated_memory
                     ? (struct executor_traffic){model_shard_gpu_token_traffic(
                                                     &shard, &model->config, activation_bytes,
                                                     config->fast_sums),
                                                 model_shard_gpu_row_traffic(&shard)}
                     : (struct executor_traffic){model_shard_token_traffic(&shard, &model->config),
                                                 model_shard_row_traffic(&shard)};
    }
}
