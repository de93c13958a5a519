/* Sleep: the executor gives its memory back while nothing runs, and takes it again when the engine is
 * woken. All that lies in the blocks is forgotten before. */
#include "engine/engine_private.h"

#include "config/base/check.h"

static void wake_front_end(const struct engine *engine) {
    engine->config.wake(engine->config.wake_context);
}

static bool may_sleep(struct engine *engine) {
    const struct engine_core *core = &engine->core;
    pthread_mutex_lock(&engine->lock);
    bool is_due = engine->rest == ENGINE_FALLING_ASLEEP && engine->inbox.first == NULL;
    pthread_mutex_unlock(&engine->lock);
    return is_due && engine_core_is_idle(core) && !core->is_lost && !core->failed;
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
    return may_sleep(engine) && forget_blocks(engine) && may_sleep(engine);
}

/* Waits while it is asleep. Returns false when the thread is to end. */
static bool await_waking(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    while (engine->rest == ENGINE_ASLEEP && !engine->quitting)
        pthread_cond_wait(&engine->wake_up, &engine->lock);
    bool continues = !engine->quitting;
    pthread_mutex_unlock(&engine->lock);
    return continues;
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

/* Ends what was submitted for an executor that does not wake, of which nothing runs and so nothing
 * is recorded. */
static void refuse_inbox(struct engine *engine, struct request_list *inbox) {
    struct request *request;
    note_hang(engine);
    while ((request = request_list_pop(inbox)) != NULL) {
        engine_core_add(&engine->core, request);
        request_unref(request);
    }
    engine_core_abort(&engine->core, FINISH_ERROR);
    engine_publish(engine);
}

static void wake(struct engine *engine) {
    struct executor *executor = engine->core.executor;
    struct request_list inbox = {0};
    struct error err = {0};
    bool is_awake = executor->ops->wake(executor, &err) == 0;
    pthread_mutex_lock(&engine->lock);
    engine->rest = is_awake ? ENGINE_AWAKE : ENGINE_ASLEEP;
    engine->wake_failure = err;
    if (!is_awake)
        inbox = request_list_take(&engine->inbox);
    pthread_mutex_unlock(&engine->lock);
    if (!is_awake)
        refuse_inbox(engine, &inbox);
    wake_front_end(engine);
}

void engine_rest_now(struct engine *engine) {
    struct executor *executor = engine->core.executor;
    pthread_mutex_lock(&engine->lock);
    bool discards_weights = engine->discards_weights;
    pthread_mutex_unlock(&engine->lock);
    executor->ops->sleep(executor, discards_weights);
    pthread_mutex_lock(&engine->lock);
    bool was_woken = engine->rest != ENGINE_FALLING_ASLEEP; /* while it did that */
    engine->rest = was_woken ? ENGINE_WAKING : ENGINE_ASLEEP;
    engine->discards_weights = discards_weights;
    pthread_mutex_unlock(&engine->lock);
    note_hang(engine);
    wake_front_end(engine);
    while (!engine->core.failed && await_waking(engine)) {
        wake(engine);
        if (engine_get_rest(engine, NULL) == ENGINE_AWAKE)
            break;
    }
}

/* --- What the front end asks ------------------------------------------------------------------- */

bool engine_can_sleep(const struct engine *engine) {
    return engine->core.executor->ops->sleep != NULL;
}

void engine_sleep(struct engine *engine, bool discards_weights) {
    CHECK(engine_can_sleep(engine));
    pthread_mutex_lock(&engine->lock);
    if (engine->rest == ENGINE_AWAKE || engine->rest == ENGINE_FALLING_ASLEEP) {
        engine->discards_weights =
            discards_weights || (engine->rest != ENGINE_AWAKE && engine->discards_weights);
        engine->rest = ENGINE_FALLING_ASLEEP;
        engine->wake_requested = true;
        pthread_cond_signal(&engine->wake_up);
    }
    pthread_mutex_unlock(&engine->lock);
}

void engine_wake(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool was_awake = engine->rest == ENGINE_FALLING_ASLEEP;
    if (was_awake) {
        engine->rest = ENGINE_AWAKE;
    } else if (engine->rest == ENGINE_ASLEEP) {
        engine->rest = ENGINE_WAKING;
        pthread_cond_signal(&engine->wake_up);
    }
    pthread_mutex_unlock(&engine->lock);
    if (was_awake)
        wake_front_end(engine);
}

enum engine_rest engine_get_rest(struct engine *engine, struct error *why) {
    pthread_mutex_lock(&engine->lock);
    enum engine_rest rest = engine->rest;
    if (why != NULL)
        *why = engine->wake_failure;
    pthread_mutex_unlock(&engine->lock);
    return rest;
}
