/* One thread runs engine_core_step in a loop.
 *
 *   engine_submit -> inbox -> core -> token stream of the request
 *                          -> ready_this_step -> ready list -> engine_take_ready
 *
 * Order matters for stalled streams: `has_stalled` is raised before the step that finds nothing to
 * run, so that a reader either is seen by that step or sees the flag and wakes the thread. */
#include "engine/engine_private.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/cores.h"
#include "config/base/numbers.h"
#include "engine/record/recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_STALL_TIMEOUT_NS (10 * CLOCK_NS_PER_S)
#define MAX_MASK_THREADS 4
#define LOOK_NS CLOCK_NS_PER_S /* at an executor that may lose its ranks, while nothing runs */
#define STORE_LOOK_NS (20 * CLOCK_NS_PER_MS) /* at a store that may hang */
#define CHOICE_RECORD_BYTES 1024 /* of one that has not begun, here and in the front end */

/* --- What the core asks --- */

static struct recorder *recorder_of(void *context) {
    return ((struct engine *)context)->config.recorder;
}

static int64_t clock_ns(void *context) {
    int64_t now_ns = clock_now_ns();
    recorder_note_clock(recorder_of(context), now_ns);
    return now_ns;
}

/* Not recorded, since nothing follows from it. */
static int64_t stopwatch_ns(void *context) {
    return clock_now_ns();
}

static bool has_signal(void *context, struct request *request, enum request_signal signal) {
    bool is_set = request_has_signal(request, signal);
    if (is_set)
        recorder_note_signal(recorder_of(context), request, signal);
    return is_set;
}

static void note_collected(void *context, const struct step *step, const struct error *failure) {
    recorder_note_collected(recorder_of(context), step, failure);
}

static void note_answer(void *context, enum executor_answer answer, const struct error *err) {
    recorder_note_answer(recorder_of(context), answer, err);
}

static void note_masks(void *context, uint64_t job) {
    recorder_note_masks(recorder_of(context), job);
}

/* Called by the core after a push. A request that is still listed will be read after this push. */
static void mark_ready(void *context, struct request *request) {
    struct engine *engine = context;
    if (!atomic_exchange(&request->ready_listed, true))
        request_list_push(&engine->ready_this_step, request_ref(request));
}

static void wait_until(struct engine *engine, int64_t deadline_ns) {
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_S),
        .tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_S),
    };
    int status = pthread_cond_timedwait(&engine->wake_up, &engine->lock, &deadline);
    CHECK(status == 0 || status == ETIMEDOUT);
}

/* Wakes the thread for another reason than the inbox. */
static void request_wake(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->wake_requested = true;
    pthread_cond_signal(&engine->wake_up);
    pthread_mutex_unlock(&engine->lock);
}

/* 0: no deadline. */
static int64_t sooner_ns(int64_t deadline_ns, int64_t other_ns) {
    return deadline_ns == 0 ? other_ns : min_int64(deadline_ns, other_ns);
}

/* Sleeps until there is something to do, unless `runnable`. Takes the inbox. Returns false when the
 * thread is to end. */
static bool wait_for_work(struct engine *engine, bool runnable, struct engine_inbox *out) {
    const struct block_tiers *tiers = &engine->core.scheduler.blocks.tiers;
    bool awaits_others = engine->core.num_stalled > 0 || engine->core.mask_jobs.num_running > 0 ||
                         engine->core.num_storing > 0 || tiers->num_reads > 0;
    int64_t deadline_ns =
        awaits_others ? engine->core.first_deadline_ns : engine_sleep_due_ns(engine);
    if (tiers->num_reads + tiers->num_writes > 0)
        deadline_ns = sooner_ns(deadline_ns, clock_now_ns() + STORE_LOOK_NS);
    if (engine->core.executor->can_lose_ranks)
        deadline_ns = sooner_ns(deadline_ns, clock_now_ns() + LOOK_NS);
    pthread_mutex_lock(&engine->lock);
    while (!runnable && engine->inbox.first == NULL && !engine->wake_requested &&
           !engine->quitting) {
        engine->awaits_others = awaits_others;
        if (deadline_ns == 0) {
            pthread_cond_wait(&engine->wake_up, &engine->lock);
        } else {
            wait_until(engine, deadline_ns);
            runnable = clock_now_ns() >= deadline_ns;
        }
    }
    engine->awaits_others = false;
    engine->wake_requested = false;
    out->flushes = engine->flush_requested;
    out->flushes_store = engine->store_flush_requested;
    engine->flush_requested = engine->store_flush_requested = false;
    engine_take_adapters(engine, out);
    out->requests = request_list_take(&engine->inbox);
    engine->busy = engine->busy || out->requests.first != NULL;
    if (out->requests.first != NULL)
        engine->idle_since_ns = 0;
    bool continues = !engine->quitting;
    pthread_mutex_unlock(&engine->lock);
    return continues;
}

/* A recording begins when nothing runs, with a core that is as good as new. */
static void begin_recording(struct engine *engine) {
    struct recorder *recorder = engine->config.recorder;
    if (recorder_is_due(recorder) && engine_core_renew(&engine->core))
        recorder_begin(recorder, &engine->core);
}

/* Requests use adapters that were loaded before, and come before an adapter is unloaded. */
static void take_in(struct engine *engine, struct engine_inbox *inbox) {
    struct request *request;
    if (inbox->flushes)
        engine_forget_prefixes(engine);
    if (inbox->flushes_store && engine->config.store != NULL)
        kv_store_forget_all(engine->config.store);
    engine_pass_loads(engine, inbox);
    while ((request = request_list_pop(&inbox->requests)) != NULL) {
        recorder_add(engine->config.recorder, request);
        engine_core_add(&engine->core, request);
        request_unref(request);
    }
    engine_pass_unloads(engine, inbox);
}

/* --- The thread --- */

static void *engine_thread(void *argument) {
    struct engine *engine = argument;
    pthread_setname_np(pthread_self(), "engine");
    bool continues = true, runnable = false;
    while (continues) {
        struct engine_inbox inbox = {0};
        continues = wait_for_work(engine, runnable, &inbox);
        begin_recording(engine);
        take_in(engine, &inbox);
        bool had_stalled = atomic_load(&engine->has_stalled);
        if (continues)
            runnable = engine_step(engine);
        else
            engine_core_abort(&engine->core, FINISH_ABORT);
        runnable = runnable || (engine->core.num_stalled > 0 && !had_stalled);
        engine_end_kv_events(engine);
        engine_publish(engine);
        if (continues)
            engine_sleep_if_due(engine);
    }
    return NULL;
}

static int check_limits(const struct serving_limits *limits, struct error *err) {
    if (limits->max_num_seqs < 1)
        return error_set(err, ERROR_CONFIG, "max-num-seqs is %d, must be at least 1",
                         limits->max_num_seqs);
    if (limits->max_num_batched_tokens < limits->max_num_seqs)
        return error_set(err, ERROR_CONFIG,
                         "max-num-batched-tokens is %d, must be at least max-num-seqs, which is %d",
                         limits->max_num_batched_tokens, limits->max_num_seqs);
    if (limits->max_model_len < 1 || limits->block_size < 1 || limits->num_blocks < 1 ||
        limits->num_blocks > INT32_MAX / limits->block_size)
        return error_set(
            err, ERROR_CONFIG,
            "max-model-len %d, block-size %d and %d blocks must be at least 1, and the "
            "pool's tokens fit 31 bits",
            limits->max_model_len, limits->block_size, limits->num_blocks);
    return 0;
}

static struct queue_limits queue_limits_of(const struct engine_config *config) {
    return (struct queue_limits){
        .max_requests = config->max_queued_requests,
        .max_tokens = config->max_queued_tokens,
        .max_choices = config->max_choices,
        .num_shares = config->core.schedule.num_shares,
    };
}

static struct engine_core_config core_config_of(const struct engine_config *config) {
    struct engine_core_config core = config->core;
    core.schedule.kv.num_tenants = max_int32(core.schedule.kv.num_tenants, 1);
    core.schedule.num_shares = max_int32(core.schedule.num_shares, 1);
    if (core.stall_timeout_ns <= 0)
        core.stall_timeout_ns = DEFAULT_STALL_TIMEOUT_NS;
    return core;
}

static void wake_from_worker(void *context) {
    request_wake(context);
}

/* At most half of the cores: masks are found while steps run. */
static int start_mask_workers(struct engine *engine, struct error *err) {
    const struct mask_workers_config config = {
        .num_threads = max_int32(min_int32(cores_available() / 2, MAX_MASK_THREADS), 1),
        .num_shares = engine->config.core.schedule.num_shares,
        .wake = wake_from_worker,
        .context = engine,
    };
    if (engine->config.core.vocabulary == NULL)
        return 0;
    return mask_workers_create(&config, &engine->mask_workers, err);
}

/* Its keys are those of the store, so that they are found again after a restart. */
static void add_store(struct engine *engine, struct executor *executor,
                      struct block_manager_config *kv) {
    store_tier_init(&engine->store_tier, engine->config.store, executor);
    kv_store_set_wake(engine->config.store, wake_from_worker, engine);
    kv->store = &engine->store_tier.tier;
    kv->secret = *kv_store_secret(engine->config.store);
}

static int init_core(struct engine *engine, struct executor *executor,
                     const struct tokenizer *tokenizer, struct error *err) {
    struct engine_core_config core = engine->config.core;
    core.mask_workers = engine->mask_workers;
    core.mask_budget = MASK_STEP_BUDGET;
    core.masks_found = note_masks;
    core.queue = &engine->queue;
    core.clock = clock_ns;
    core.stopwatch = stopwatch_ns;
    core.has_signal = has_signal;
    core.collected = note_collected;
    core.answered = note_answer;
    core.notify = mark_ready;
    core.context = engine;
    engine->queue = queue_limits_of(&engine->config);
    if (queue_limits_init(&engine->queue) != 0)
        return error_set(err, ERROR_MEMORY, "no memory for the queue of %d shares",
                         engine->queue.num_shares);
    if (engine->config.store != NULL)
        add_store(engine, executor, &core.schedule.kv);
    else if (block_key_secret_create(&core.schedule.kv.secret) != 0)
        return error_set(err, ERROR_IO, "cannot read random numbers for the prefix cache: %s",
                         strerror(errno));
    return engine_core_init(&engine->core, &core, executor, tokenizer, err);
}

static void init_sync(struct engine *engine) {
    pthread_condattr_t attributes;
    CHECK(pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&engine->wake_up, &attributes) == 0);
    CHECK(pthread_mutex_init(&engine->lock, NULL) == 0);
    pthread_condattr_destroy(&attributes);
}

static void free_engine(struct engine *engine) {
    engine_core_finish(&engine->core);
    if (engine->config.store != NULL) /* its threads may still tell of the last jobs */
        kv_store_set_wake(engine->config.store, NULL, NULL);
    engine_end_kv_events(engine);
    mask_workers_destroy(engine->mask_workers);
    queue_limits_finish(&engine->queue);
    for (int32_t i = 0; i < LORA_MAX_SLOTS; i++)
        adapter_unref(engine->adapters[i]);
    pthread_cond_destroy(&engine->wake_up);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

int engine_create(const struct engine_config *config, struct executor *executor,
                  const struct tokenizer *tokenizer, struct engine **out, struct error *err) {
    if (check_limits(config->core.schedule.kv.limits, err) != 0)
        return -1;
    struct engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the engine");
    CHECK(config->sleep_idle_ms == 0 || executor->can_sleep);
    engine->config = *config;
    engine->config.core = core_config_of(config);
    engine->accepting = true;
    if (start_mask_workers(engine, err) != 0 || init_core(engine, executor, tokenizer, err) != 0) {
        mask_workers_destroy(engine->mask_workers);
        queue_limits_finish(&engine->queue);
        free(engine);
        return -1;
    }
    init_sync(engine);
    engine->stats = engine->core.stats;
    engine_note_activity(engine, ENGINE_BETWEEN_STEPS);
    int status = pthread_create(&engine->thread, NULL, engine_thread, engine);
    if (status != 0) {
        free_engine(engine);
        return error_set(err, ERROR_IO, "cannot start the engine thread: %s", strerror(status));
    }
    *out = engine;
    return 0;
}

/* Under the lock. */
static enum submit_result try_submit(struct engine *engine, struct request *request) {
    if (engine->failed)
        return SUBMIT_FAILED;
    if (!engine->accepting)
        return SUBMIT_STOPPING;
    if (sleep_machine_refuses_requests(&engine->sleep))
        return SUBMIT_ASLEEP;
    if (request->adapter != NULL && atomic_load(&request->adapter->state) != ADAPTER_READY)
        return SUBMIT_NO_ADAPTER;
    const struct serving_limits *limits = engine->config.core.schedule.kv.limits;
    const struct kv_demand demand = kv_demand_of(request, limits);
    if (!kv_demand_fits(&demand, limits))
        return SUBMIT_TOO_LARGE;
    if (!queue_limits_take(&engine->queue, request))
        return SUBMIT_QUEUE_FULL;
    request->id = ++engine->next_id;
    request->arrival_ns = clock_now_ns();
    request_list_push(&engine->inbox, request_ref(request));
    if (request->adapter != NULL)
        atomic_fetch_add(&request->adapter->num_submitted, 1);
    CHECK(engine_take_sleep_event(engine, SLEEP_EVENT_SUBMIT));
    return SUBMIT_OK;
}

size_t engine_memory_bytes(const struct engine_config *config, const struct tokenizer *tokenizer) {
    const struct engine_core_config core = core_config_of(config);
    const struct serving_limits *limits = core.schedule.kv.limits;
    int32_t num_shares = core.schedule.num_shares;
    size_t seqs = (size_t)limits->max_num_seqs;
    size_t queued = (size_t)queue_limits_room(config->max_queued_requests, num_shares);
    size_t choices = (size_t)queue_limits_room(config->max_choices, num_shares);
    size_t prompt_tokens = (size_t)queue_limits_room(config->max_queued_tokens, num_shares) +
                           seqs * (size_t)limits->max_model_len;
    /* a slow reader is noticed only once the steps in flight have pushed their events */
    size_t events = (size_t)engine_core_num_steps(&core) * logprob_lists_event_bytes(limits);
    size_t adapters = core.lora.num_slots == 0 ? 0
                                               : (size_t)core.lora.num_slots *
                                                     lora_adapter_max_bytes(core.model, &core.lora);
    return sizeof(struct engine_core) + engine_core_bytes(&core, tokenizer) + events + adapters +
           seqs * sequence_max_bytes(limits) + (seqs + queued) * request_max_bytes() +
           queue_limits_bytes(num_shares) + choices * CHOICE_RECORD_BYTES +
           prompt_tokens * sizeof(int32_t);
}

const struct serving_limits *engine_limits(const struct engine *engine) {
    return engine->config.core.schedule.kv.limits;
}

enum submit_result engine_submit(struct engine *engine, struct request *request) {
    pthread_mutex_lock(&engine->lock);
    enum submit_result result = try_submit(engine, request);
    pthread_mutex_unlock(&engine->lock);
    return result;
}

bool engine_is_put_to_sleep(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool sleeps = sleep_machine_refuses_requests(&engine->sleep);
    pthread_mutex_unlock(&engine->lock);
    return sleeps;
}

bool engine_queue_is_full(struct engine *engine) {
    return queue_limits_is_full(&engine->queue);
}

int64_t engine_num_queued(const struct engine *engine, int32_t share) {
    CHECK(share >= 0 && share < engine->queue.num_shares);
    return atomic_load(&engine->queue.of_share[share].requests);
}

void engine_cancel(struct engine *engine, struct request *request) {
    atomic_store(&request->cancelled, true);
    request_wake(engine);
}

int32_t engine_list_keys(const struct engine *engine, const struct request *request,
                         struct block_key *out) {
    return engine_core_list_keys(&engine->core, request, out);
}

void engine_flush_cache(struct engine *engine, bool with_store) {
    pthread_mutex_lock(&engine->lock);
    engine->flush_requested = true;
    engine->store_flush_requested |= with_store;
    engine->wake_requested = true;
    pthread_cond_signal(&engine->wake_up);
    pthread_mutex_unlock(&engine->lock);
}

int engine_take_ready(struct engine *engine, struct request **out, int capacity) {
    int count = 0;
    pthread_mutex_lock(&engine->lock);
    while (count < capacity && (out[count] = request_list_pop(&engine->ready)) != NULL)
        count++;
    pthread_mutex_unlock(&engine->lock);
    for (int i = 0; i < count; i++)
        atomic_store(&out[i]->ready_listed, false);
    return count;
}

void engine_resume_reading(struct engine *engine) {
    if (atomic_load(&engine->has_stalled))
        request_wake(engine);
}

void engine_get_stats(struct engine *engine, struct engine_stats *out) {
    pthread_mutex_lock(&engine->lock);
    *out = engine->stats;
    out->block_size = engine->config.core.schedule.kv.limits->block_size;
    out->num_waiting += engine->inbox.num_choices;
    out->rest = sleep_machine_rest(&engine->sleep);
    out->discards_weights = sleep_machine_discards_weights(&engine->sleep);
    out->is_idle_sleep = sleep_machine_is_idle_sleep(&engine->sleep);
    out->idle = engine->sleep.idle;
    out->has_work = out->rest != ENGINE_WAKING &&
                    ((engine->busy && !engine->awaits_others) || engine->inbox.first != NULL);
    pthread_mutex_unlock(&engine->lock);
    struct executor *executor = engine->core.executor;
    out->num_ranks = executor->ops->rank_stats(executor, out->ranks);
}

bool engine_has_failed(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool failed = engine->failed;
    pthread_mutex_unlock(&engine->lock);
    return failed;
}

struct error engine_failure(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    struct error failure = engine->failure;
    pthread_mutex_unlock(&engine->lock);
    return failure;
}

void engine_stop_accepting(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->accepting = false;
    pthread_mutex_unlock(&engine->lock);
}

bool engine_is_idle(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool idle = engine->inbox.first == NULL && !engine->busy;
    pthread_mutex_unlock(&engine->lock);
    return idle;
}

void engine_stop_restarting(struct engine *engine) {
    executor_stop_restarting(engine->core.executor);
}

void engine_destroy(struct engine *engine) {
    if (engine == NULL)
        return;
    engine_stop_restarting(engine);
    pthread_mutex_lock(&engine->lock);
    engine->accepting = false;
    engine->quitting = true;
    pthread_cond_signal(&engine->wake_up);
    pthread_mutex_unlock(&engine->lock);
    CHECK(pthread_join(engine->thread, NULL) == 0);
    request_list_clear(&engine->ready);
    request_list_clear(&engine->inbox);
    free_engine(engine);
}
