/* Adapters between the front end and the core. The front end's list has one adapter for each slot
 * that is taken; the thread compares it with what the core has when it takes the inbox, and tells
 * the core what is new. */
#include "engine/engine_private.h"

#include "config/base/check.h"
#include "engine/record/recorder.h"

/* --- The thread --- */

void engine_take_adapters(struct engine *engine, struct engine_inbox *out) {
    const struct adapter_slots *slots = &engine->core.adapters;
    for (int32_t i = 0; i < slots->shape.num_slots; i++) {
        struct adapter *adapter = engine->adapters[i];
        const struct adapter_slot *slot = &slots->slots[i];
        if (adapter == NULL)
            continue;
        out->loads[i] = slot->adapter == NULL ? adapter : NULL;
        out->unloads[i] = atomic_load(&adapter->state) == ADAPTER_UNLOADING && !slot->is_unloading;
    }
}

void engine_pass_loads(struct engine *engine, const struct engine_inbox *inbox) {
    for (int32_t i = 0; i < engine->core.adapters.shape.num_slots; i++) {
        if (inbox->loads[i] == NULL)
            continue;
        recorder_load(engine->config.recorder, i, inbox->loads[i], false);
        engine_core_load_adapter(&engine->core, i, inbox->loads[i], false);
    }
}

void engine_pass_unloads(struct engine *engine, const struct engine_inbox *inbox) {
    for (int32_t i = 0; i < engine->core.adapters.shape.num_slots; i++) {
        if (!inbox->unloads[i])
            continue;
        recorder_unload(engine->config.recorder, i);
        engine_core_unload_adapter(&engine->core, i);
    }
}

/* --- The front end --- */

/* One that has gone may not have been published yet. */
static bool has_slot(const struct adapter *adapter) {
    return adapter != NULL && atomic_load(&adapter->state) != ADAPTER_GONE;
}

int engine_load_adapter(struct engine *engine, struct adapter *adapter) {
    const int32_t num_slots = engine->config.core.lora.num_slots;
    CHECK(atomic_load(&adapter->state) == ADAPTER_NEW);
    pthread_mutex_lock(&engine->lock);
    int32_t slot = 0;
    while (slot < num_slots && has_slot(engine->adapters[slot]))
        slot++;
    if (slot < num_slots) {
        adapter_unref(engine->adapters[slot]);
        engine->adapters[slot] = adapter_ref(adapter);
        adapter->slot = slot;
        atomic_store(&adapter->state, ADAPTER_LOADING);
        engine->wake_requested = true;
        engine_take_sleep_event(engine, SLEEP_EVENT_SUBMIT); /* refused if it was put to sleep */
    }
    pthread_mutex_unlock(&engine->lock);
    return slot < num_slots ? 0 : -1;
}

void engine_unload_adapter(struct engine *engine, struct adapter *adapter) {
    pthread_mutex_lock(&engine->lock);
    if (adapter_change(adapter, ADAPTER_LOADING, ADAPTER_UNLOADING) ||
        adapter_change(adapter, ADAPTER_READY, ADAPTER_UNLOADING)) {
        engine->wake_requested = true;
        pthread_cond_signal(&engine->wake_up);
    }
    pthread_mutex_unlock(&engine->lock);
}
