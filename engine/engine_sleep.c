/* Sleep: the executor gives its memory back while nothing runs, and takes it again when the engine
 * is woken. The contents of the blocks are forgotten before. Somebody puts the engine to sleep, and
 * wakes it; or it falls asleep by itself when there are no requests, and the next one wakes it.
 * sleep_machine.h has the states; this file does what they say. */
#include "engine/engine_private.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/log.h"
#include "engine/record/recorder.h"

/* --- Parts of a turn of the thread, awake or about to sleep --- */

void engine_forget_prefixes(struct engine *engine) {
    recorder_flush(engine->config.recorder);
    engine_core_flush_cache(&engine->core);
}

void engine_note_activity(const struct engine *engine, const char *activity) {
    if (engine->config.activity != NULL)
        atomic_store_explicit(engine->config.activity, activity, memory_order_relaxed);
}

bool engine_step(struct engine *engine) {
    engine_note_activity(engine, "runs a step");
    bool runnable = engine_core_step(&engine->core);
    engine_note_activity(engine, ENGINE_BETWEEN_STEPS);
    recorder_end_step(engine->config.recorder, &engine->core, runnable);
    return runnable;
}

void engine_end_kv_events(const struct engine *engine) {
    const struct kv_event_sink *events = engine->config.core.schedule.kv.events;
    if (events != NULL)
        events->end_step(events->context);
}

/* Under the lock. */
static void forget_gone_adapters(struct engine *engine) {
    for (int32_t i = 0; i < engine->core.adapters.shape.num_slots; i++) {
        struct adapter *adapter = engine->adapters[i];
        if (adapter == NULL || atomic_load(&adapter->state) != ADAPTER_GONE)
            continue;
        engine->adapters[i] = NULL;
        adapter_unref(adapter);
    }
}

void engine_publish(struct engine *engine) {
    struct engine_core *core = &engine->core;
    bool has_news = core->adapters.has_news;
    atomic_store(&engine->has_stalled, core->num_stalled > 0);
    pthread_mutex_lock(&engine->lock);
    engine->stats = core->stats;
    recorder_count(engine->config.recorder, &engine->stats);
    engine->failed = core->failed;
    if (core->failed)
        engine->failure = core->error;
    engine->busy = !engine_core_is_idle(core);
    bool was_empty = engine->ready.first == NULL;
    struct request *request;
    while ((request = request_list_pop(&engine->ready_this_step)) != NULL)
        request_list_push(&engine->ready, request);
    bool wakes = has_news || (was_empty && engine->ready.first != NULL);
    if (has_news)
        forget_gone_adapters(engine);
    core->adapters.has_news = false;
    pthread_mutex_unlock(&engine->lock);
    if (wakes)
        engine->config.wake(engine->config.wake_context);
}

/* --- Falling asleep --- */

static void wake_front_end(const struct engine *engine) {
    engine->config.wake(engine->config.wake_context);
}

int64_t engine_sleep_due_ns(struct engine *engine) {
    const struct engine_core *core = &engine->core;
    if (engine->config.sleep_idle_ms == 0 || !engine_core_is_idle(core) || core->is_lost ||
        core->failed)
        return 0;
    if (engine->idle_since_ns == 0)
        engine->idle_since_ns = clock_now_ns();
    return engine->idle_since_ns + engine->config.sleep_idle_ms * CLOCK_NS_PER_MS;
}

bool engine_take_sleep_event(struct engine *engine, enum sleep_event event) {
    pthread_cond_signal(&engine->wake_up);
    return sleep_machine_take(&engine->sleep, event, clock_now_ns());
}

static bool may_sleep(const struct engine *engine) {
    const struct engine_core *core = &engine->core;
    return engine_core_is_idle(core) && !core->is_lost && !core->failed &&
           !block_manager_has_writes(&core->scheduler.blocks);
}

static bool is_idle_for_long(struct engine *engine) {
    int64_t due_ns = engine_sleep_due_ns(engine);
    return due_ns != 0 && clock_now_ns() >= due_ns;
}

/* Returns whether it is to sleep, as far as the front end goes. */
static bool is_due(struct engine *engine) {
    bool is_idle = is_idle_for_long(engine);
    pthread_mutex_lock(&engine->lock);
    bool is_requested = sleep_machine_rest(&engine->sleep) == ENGINE_FALLING_ASLEEP;
    bool has_inbox = engine->inbox.first != NULL || engine->wake_requested;
    pthread_mutex_unlock(&engine->lock);
    return (is_requested || is_idle) && !has_inbox;
}

/* What the cache knows lies in blocks that are about to go, and what is read has nobody who awaits
 * it. Returns whether the executor has no more to do than before. */
static bool forget_blocks(struct engine *engine) {
    engine_forget_prefixes(engine);
    block_manager_end_jobs(&engine->core.scheduler.blocks);
    bool runnable = engine_step(engine);
    engine_end_kv_events(engine);
    engine_publish(engine);
    return !runnable;
}

/* Returns whether it sleeps: not where that was called off, or something came, meanwhile. */
static bool begin_sleep(struct engine *engine) {
    bool is_idle = is_idle_for_long(engine);
    pthread_mutex_lock(&engine->lock);
    bool begins = engine->inbox.first == NULL && !engine->wake_requested &&
                  (engine_take_sleep_event(engine, SLEEP_EVENT_DRAINED) ||
                   (is_idle && engine_take_sleep_event(engine, SLEEP_EVENT_IDLE)));
    pthread_mutex_unlock(&engine->lock);
    return begins;
}

/* A device that does not come back fails here as in a step. */
static void note_hang(struct engine *engine) {
    struct error err;
    if (!executor_has_hung(engine->core.executor))
        return;
    error_set(&err, ERROR_DEVICE, "the device hangs while falling asleep or waking up");
    engine_core_note_failure(&engine->core, &err);
    engine_publish(engine);
}

static void give_memory_back(struct engine *engine, bool discards_weights) {
    struct executor *executor = engine->core.executor;
    engine_note_activity(engine, "gives memory back to fall asleep");
    executor->ops->sleep(executor, discards_weights);
    pthread_mutex_lock(&engine->lock);
    bool is_idle_sleep = sleep_machine_is_idle_sleep(&engine->sleep);
    CHECK(engine_take_sleep_event(engine, SLEEP_EVENT_RELEASED));
    pthread_mutex_unlock(&engine->lock);
    if (is_idle_sleep)
        log_info("no request for %lld s: asleep", (long long)engine->config.sleep_idle_ms / 1000);
    note_hang(engine);
    wake_front_end(engine);
}

/* --- Waking up --- */

/* Ends what was submitted for an executor that does not wake, of which nothing runs and so nothing
 * is recorded. */
static void refuse_inbox(struct engine *engine, struct request_list *inbox) {
    struct request *request;
    note_hang(engine);
    while ((request = request_list_pop(inbox)) != NULL) {
        engine_core_add(&engine->core, request);
        request_unref(request);
    }
    engine_core_abort(&engine->core, FINISH_ASLEEP);
    engine_publish(engine);
}

static void take_memory(struct engine *engine) {
    struct executor *executor = engine->core.executor;
    struct request_list inbox = {0};
    struct error err = {0};
    engine_note_activity(engine, "takes memory again to wake up");
    bool is_awake = executor->ops->wake(executor, &err) == 0;
    pthread_mutex_lock(&engine->lock);
    CHECK(engine_take_sleep_event(engine, is_awake ? SLEEP_EVENT_WOKEN : SLEEP_EVENT_WAKE_FAILED));
    int64_t waking_ns = clock_now_ns() - engine->sleep.waking_ns;
    if (!is_awake)
        inbox = request_list_take(&engine->inbox);
    pthread_mutex_unlock(&engine->lock);
    if (is_awake) {
        recorder_rewrite(engine->config.recorder);
        engine_core_rewrite_adapters(&engine->core);
        log_info("awake after %.0f ms", (double)waking_ns / (double)CLOCK_NS_PER_MS);
    } else {
        log_warning("cannot wake up: %s", err.message);
        refuse_inbox(engine, &inbox);
    }
    wake_front_end(engine);
}

/* Returns what the thread has to do but rest, once there is something: no more than its turns when
 * it is to end, or the device has failed. */
static enum sleep_duty await_duty(struct engine *engine) {
    engine_note_activity(engine, "sleeps");
    pthread_mutex_lock(&engine->lock);
    enum sleep_duty duty = sleep_machine_duty(&engine->sleep);
    while (duty == SLEEP_DUTY_REST && !engine->quitting && !engine->core.failed) {
        pthread_cond_wait(&engine->wake_up, &engine->lock);
        duty = sleep_machine_duty(&engine->sleep);
    }
    bool ends = engine->quitting || engine->core.failed;
    pthread_mutex_unlock(&engine->lock);
    return ends ? SLEEP_DUTY_SERVE : duty;
}

void engine_sleep_if_due(struct engine *engine) {
    enum sleep_duty duty;
    if (!is_due(engine) || !may_sleep(engine) || !forget_blocks(engine) || !may_sleep(engine) ||
        !begin_sleep(engine))
        return;
    while ((duty = await_duty(engine)) != SLEEP_DUTY_SERVE) {
        if (duty == SLEEP_DUTY_TAKE)
            take_memory(engine);
        else
            give_memory_back(engine, duty == SLEEP_DUTY_RELEASE_ALL);
    }
    engine->idle_since_ns = 0;
    engine_note_activity(engine, ENGINE_BETWEEN_STEPS);
}

/* --- What the front end asks --- */

bool engine_can_sleep(const struct engine *engine) {
    return engine->core.executor->can_sleep;
}

bool engine_sleep(struct engine *engine, bool discards_weights, struct engine_rest_view *out) {
    CHECK(engine_can_sleep(engine));
    pthread_mutex_lock(&engine->lock);
    bool is_taken = engine_take_sleep_event(engine, discards_weights ? SLEEP_EVENT_SLEEP_2
                                                                     : SLEEP_EVENT_SLEEP_1);
    engine->wake_requested = true;
    *out = sleep_machine_view(&engine->sleep);
    pthread_mutex_unlock(&engine->lock);
    return is_taken;
}

void engine_wake(struct engine *engine, struct engine_rest_view *out) {
    pthread_mutex_lock(&engine->lock);
    bool was_falling = sleep_machine_rest(&engine->sleep) == ENGINE_FALLING_ASLEEP;
    CHECK(engine_take_sleep_event(engine, SLEEP_EVENT_WAKE));
    *out = sleep_machine_view(&engine->sleep);
    pthread_mutex_unlock(&engine->lock);
    if (was_falling)
        wake_front_end(engine);
}

struct engine_rest_view engine_get_rest(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    struct engine_rest_view view = sleep_machine_view(&engine->sleep);
    pthread_mutex_unlock(&engine->lock);
    return view;
}
