/* What the engine's thread does in each turn, awake or about to sleep. */
#include "engine/engine_private.h"

#include "engine/record/recorder.h"

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
    const struct kv_event_sink *events = engine->config.kv_events;
    if (events != NULL)
        events->end_step(events->context);
}

void engine_publish(struct engine *engine) {
    const struct engine_core *core = &engine->core;
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
    bool wakes = was_empty && engine->ready.first != NULL;
    pthread_mutex_unlock(&engine->lock);
    if (wakes)
        engine->config.wake(engine->config.wake_context);
}
