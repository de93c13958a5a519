/* Sleep: the executor gives its memory back while nothing runs, and takes it again when the engine is
 * woken. All that lies in the blocks is forgotten before. Somebody puts the engine to sleep, and wakes
 * it; or it falls asleep by itself for want of requests, and the next one wakes it. */
#include "engine/engine_private.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/log.h"

static void wake_front_end(const struct engine *engine) {
    engine->config.wake(engine->config.wake_context);
}

/* --- Falling asleep ----------------------------------------------------------------------------- */

int64_t engine_sleep_due_ns(struct engine *engine) {
    const struct engine_core *core = &engine->core;
    if (engine->config.sleep_idle_ms == 0 || !engine_core_is_idle(core) || core->is_lost ||
        core->failed)
        return 0;
    if (engine->idle_since_ns == 0)
        engine->idle_since_ns = clock_now_ns();
    return engine->idle_since_ns + engine->config.sleep_idle_ms * CLOCK_NS_PER_MS;
}

static void fall_asleep_if_due(struct engine *engine) {
    int64_t due_ns = engine_sleep_due_ns(engine);
    if (due_ns == 0 || clock_now_ns() < due_ns)
        return;
    pthread_mutex_lock(&engine->lock);
    if (engine->rest == ENGINE_AWAKE && engine->inbox.first == NULL) {
        engine->rest = ENGINE_FALLING_ASLEEP;
        engine->discards_weights = false;
        engine->is_idle_sleep = true;
    }
    pthread_mutex_unlock(&engine->lock);
}

static bool may_sleep(const struct engine *engine) {
    const struct engine_core *core = &engine->core;
    return engine_core_is_idle(core) && !core->is_lost && !core->failed;
}

/* Returns whether it is still to sleep; with `begins`, that cannot be called off any more, and it will
 * have to wake up. */
static bool is_falling_asleep(struct engine *engine, bool begins) {
    pthread_mutex_lock(&engine->lock);
    bool is_due = engine->rest == ENGINE_FALLING_ASLEEP && engine->inbox.first == NULL;
    engine->is_down = is_due && begins;
    pthread_mutex_unlock(&engine->lock);
    return is_due;
}

/* What the cache knows lies in blocks that are about to go. Returns whether the executor has no more
 * to do than before. */
static bool forget_blocks(struct engine *engine) {
    engine_forget_prefixes(engine);
    bool runnable = engine_step(engine);
    engine_end_kv_events(engine);
    engine_publish(engine);
    return !runnable;
}

bool engine_falls_asleep(struct engine *engine) {
    fall_asleep_if_due(engine);
    return is_falling_asleep(engine, false) && may_sleep(engine) && forget_blocks(engine) &&
           may_sleep(engine) && is_falling_asleep(engine, true);
}

/* A device that does not come back fails here as in a step. */
static void note_hang(struct engine *engine) {
    struct error err;
    if (!executor_has_hung(engine->core.executor))
        return;
    error_set(&err, ERROR_DEVICE, "the device hangs: it fell asleep, or was to wake up");
    engine_core_note_failure(&engine->core, &err);
    engine_publish(engine);
}

/* Meanwhile somebody may have woken it, or requested that the weights go too. */
static void give_memory_back(struct engine *engine) {
    struct executor *executor = engine->core.executor;
    pthread_mutex_lock(&engine->lock);
    bool discards_weights = engine->discards_weights;
    pthread_mutex_unlock(&engine->lock);
    executor->ops->sleep(executor, discards_weights);
    pthread_mutex_lock(&engine->lock);
    bool is_asleep =
        engine->rest == ENGINE_FALLING_ASLEEP && engine->discards_weights == discards_weights;
    bool is_idle_sleep = engine->is_idle_sleep;
    if (is_asleep)
        engine->rest = ENGINE_ASLEEP;
    else if (engine->rest == ENGINE_WAKING)
        engine->discards_weights = discards_weights;
    engine->idle.num_sleeps += is_idle_sleep;
    pthread_mutex_unlock(&engine->lock);
    if (is_idle_sleep)
        log_info("no request for %lld s: asleep", (long long)engine->config.sleep_idle_ms / 1000);
    note_hang(engine);
    wake_front_end(engine);
}

/* --- Waking up ---------------------------------------------------------------------------------- */

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

/* Under the lock. */
static void count_waking(struct engine *engine, bool is_awake, double seconds) {
    if (!engine->is_idle_sleep)
        return;
    engine->idle.num_wakes += is_awake;
    engine->idle.num_wake_failures += !is_awake;
    engine->idle.wake_seconds += is_awake ? seconds : 0;
}

static void take_memory(struct engine *engine) {
    struct executor *executor = engine->core.executor;
    struct request_list inbox = {0};
    struct error err = {0};
    bool is_awake = executor->ops->wake(executor, &err) == 0;
    pthread_mutex_lock(&engine->lock);
    engine->rest = is_awake ? ENGINE_AWAKE : ENGINE_ASLEEP;
    engine->is_down = !is_awake;
    double seconds = (double)(clock_now_ns() - engine->waking_ns) / (double)CLOCK_NS_PER_S;
    count_waking(engine, is_awake, seconds);
    if (!is_awake)
        inbox = request_list_take(&engine->inbox);
    pthread_mutex_unlock(&engine->lock);
    if (is_awake) {
        log_info("awake after %.0f ms", seconds * 1e3);
    } else {
        log_warning("cannot wake up: %s", err.message);
        refuse_inbox(engine, &inbox);
    }
    wake_front_end(engine);
}

/* Returns what it comes to once it does not just sleep. */
static enum engine_rest await_change(struct engine *engine) {
    if (engine->core.failed)
        return ENGINE_AWAKE;
    pthread_mutex_lock(&engine->lock);
    while (engine->rest == ENGINE_ASLEEP && !engine->quitting)
        pthread_cond_wait(&engine->wake_up, &engine->lock);
    enum engine_rest rest = engine->quitting ? ENGINE_AWAKE : engine->rest;
    pthread_mutex_unlock(&engine->lock);
    return rest;
}

void engine_rest_now(struct engine *engine) {
    enum engine_rest rest = ENGINE_FALLING_ASLEEP;
    while (rest != ENGINE_AWAKE) {
        if (rest == ENGINE_FALLING_ASLEEP)
            give_memory_back(engine);
        else
            take_memory(engine);
        rest = await_change(engine);
    }
    engine->idle_since_ns = 0;
}

/* --- What the front end asks ------------------------------------------------------------------- */

bool engine_can_sleep(const struct engine *engine) {
    return engine->core.executor->ops->sleep != NULL;
}

void engine_sleep(struct engine *engine, bool discards_weights) {
    CHECK(engine_can_sleep(engine));
    pthread_mutex_lock(&engine->lock);
    bool was_awake = engine->rest == ENGINE_AWAKE, was_asleep = engine->rest == ENGINE_ASLEEP;
    if (engine->rest != ENGINE_WAKING) {
        bool has_weights = was_awake || !engine->discards_weights;
        if (was_awake || (was_asleep && has_weights && discards_weights))
            engine->rest = ENGINE_FALLING_ASLEEP;
        engine->discards_weights = discards_weights || !has_weights;
        engine->is_idle_sleep = false;
        engine->wake_requested = true;
        pthread_cond_signal(&engine->wake_up);
    }
    pthread_mutex_unlock(&engine->lock);
}

void engine_begin_waking(struct engine *engine) {
    if (engine->rest != ENGINE_FALLING_ASLEEP && engine->rest != ENGINE_ASLEEP)
        return;
    engine->rest = engine->is_down ? ENGINE_WAKING : ENGINE_AWAKE;
    engine->waking_ns = clock_now_ns();
    pthread_cond_signal(&engine->wake_up);
}

void engine_wake(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool was_falling = engine->rest == ENGINE_FALLING_ASLEEP;
    engine_begin_waking(engine);
    pthread_mutex_unlock(&engine->lock);
    if (was_falling)
        wake_front_end(engine);
}

enum engine_rest engine_get_rest(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    enum engine_rest rest = engine->rest;
    pthread_mutex_unlock(&engine->lock);
    return rest;
}
