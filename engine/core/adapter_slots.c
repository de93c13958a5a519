#include "engine/core/adapter_slots.h"

#include "config/base/check.h"
#include "config/base/numbers.h"

#include <string.h>

void adapter_slots_init(struct adapter_slots *slots, const struct model_config *model,
                        const struct lora_shape *shape) {
    CHECK(shape->num_slots >= 0 && shape->num_slots <= LORA_MAX_SLOTS);
    *slots = (struct adapter_slots){.model = model, .shape = *shape};
}

void adapter_slots_finish(struct adapter_slots *slots) {
    for (int32_t i = 0; i < slots->shape.num_slots; i++)
        adapter_unref(slots->slots[i].adapter);
    *slots = (struct adapter_slots){0};
}

/* A row may be larger than a piece. */
void adapter_slots_add_capacity(const struct model_config *model, const struct lora_shape *shape,
                                struct batch_capacity *capacity) {
    struct lora_rows rows = {0};
    if (shape->num_slots == 0)
        return;
    capacity->num_adapter_writes = ADAPTER_STEP_WRITES;
    capacity->adapter_bytes = ADAPTER_IDLE_BYTES;
    while (lora_rows_next(model, shape, ADAPTER_STEP_BYTES, &rows))
        capacity->adapter_bytes =
            max_size(capacity->adapter_bytes, lora_rows_bytes(model, shape, &rows));
}

/* --- What a slot has --- */

static struct adapter_slot *slot_of(struct adapter_slots *slots, const struct adapter *adapter) {
    CHECK(adapter->slot >= 0 && adapter->slot < slots->shape.num_slots);
    struct adapter_slot *slot = &slots->slots[adapter->slot];
    CHECK(slot->adapter == adapter);
    return slot;
}

int32_t adapter_slots_id(struct adapter_slots *slots, const struct adapter *adapter) {
    return slot_of(slots, adapter)->id;
}

void adapter_slots_load(struct adapter_slots *slots, int32_t index, struct adapter *adapter,
                        bool is_ready) {
    CHECK(index >= 0 && index < slots->shape.num_slots && slots->slots[index].adapter == NULL);
    if (adapter->slot != index) /* else others may be reading it */
        adapter->slot = index;
    adapter_change(adapter, ADAPTER_NEW, is_ready ? ADAPTER_READY : ADAPTER_LOADING);
    slots->slots[index] = (struct adapter_slot){
        .adapter = adapter_ref(adapter), .id = ++slots->num_loaded, .was_ready = is_ready};
}

static void free_slot(struct adapter_slots *slots, struct adapter_slot *slot) {
    atomic_store(&slot->adapter->num_running, 0);
    atomic_store(&slot->adapter->num_waiting, 0);
    atomic_store(&slot->adapter->state, ADAPTER_GONE);
    adapter_unref(slot->adapter);
    *slot = (struct adapter_slot){0};
    slots->has_news = true;
}

void adapter_slots_unload(struct adapter_slots *slots, int32_t index) {
    CHECK(index >= 0 && index < slots->shape.num_slots);
    struct adapter_slot *slot = &slots->slots[index];
    CHECK(slot->adapter != NULL && !slot->is_unloading);
    slot->is_unloading = true;
    atomic_store(&slot->adapter->state, ADAPTER_UNLOADING);
    if (slot->num_requests == 0)
        free_slot(slots, slot);
}

void adapter_slots_take(struct adapter_slots *slots, const struct adapter *adapter) {
    if (adapter == NULL)
        return;
    struct adapter_slot *slot = slot_of(slots, adapter);
    CHECK(slot->was_ready && !slot->is_unloading);
    slot->num_requests++;
}

void adapter_slots_release(struct adapter_slots *slots, const struct adapter *adapter) {
    if (adapter == NULL)
        return;
    struct adapter_slot *slot = slot_of(slots, adapter);
    CHECK(slot->num_requests > 0);
    if (--slot->num_requests == 0 && slot->is_unloading)
        free_slot(slots, slot);
}

void adapter_slots_forget(struct adapter_slots *slots) {
    for (int32_t i = 0; i < slots->shape.num_slots; i++) {
        slots->slots[i].rows = (struct lora_rows){0};
        slots->slots[i].is_written = false;
    }
}

/* --- Writing --- */

static bool is_unwritten(const struct adapter_slot *slot) {
    return slot->adapter != NULL && !slot->is_written;
}

bool adapter_slots_have_writes(const struct adapter_slots *slots) {
    for (int32_t i = 0; i < slots->shape.num_slots; i++)
        if (is_unwritten(&slots->slots[i]))
            return true;
    return false;
}

bool adapter_slots_must_write(const struct adapter_slots *slots) {
    for (int32_t i = 0; i < slots->shape.num_slots; i++)
        if (is_unwritten(&slots->slots[i]) && slots->slots[i].was_ready)
            return true;
    return false;
}

/* Returns the slot to be written next: first those that requests wait for. NULL: none. */
static struct adapter_slot *next_to_write(struct adapter_slots *slots) {
    struct adapter_slot *next = NULL;
    for (int32_t i = 0; i < slots->shape.num_slots; i++) {
        struct adapter_slot *slot = &slots->slots[i];
        if (is_unwritten(slot) && (next == NULL || (slot->was_ready && !next->was_ready)))
            next = slot;
    }
    return next;
}

/* Returns false when the piece that follows does not fit into the step. */
static bool write_piece(const struct adapter_slots *slots, struct adapter_slot *slot,
                        size_t max_bytes, struct step *step) {
    struct batch_counts *counts = step->arena.counts;
    struct lora_rows rows = slot->rows;
    size_t left = max_bytes > counts->adapter_bytes ? max_bytes - counts->adapter_bytes : 0;
    if (!lora_rows_next(slots->model, &slots->shape, max_size(left, 1), &rows)) {
        slot->is_written = true; /* of a model without anything to adapt */
        slot->written_by = slots->num_submitted + 1;
        return true;
    }
    size_t bytes = lora_rows_bytes(slots->model, &slots->shape, &rows);
    bool is_first = counts->num_adapter_writes == 0; /* fits, however large a row is */
    if (counts->num_adapter_writes == ADAPTER_STEP_WRITES || (bytes > left && !is_first))
        return false;
    lora_adapter_copy(slot->adapter->lora, &rows, step->arena.adapter_data + counts->adapter_bytes);
    step->arena.adapter_writes[counts->num_adapter_writes++] = (struct adapter_write){
        .slot = slot->adapter->slot, .rows = rows, .first_byte = counts->adapter_bytes};
    counts->adapter_bytes += bytes;
    slot->rows = rows;
    slot->written_by = slots->num_submitted + 1;
    slot->is_written = !lora_rows_next(slots->model, &slots->shape, 1, &rows);
    return true;
}

void adapter_slots_write(struct adapter_slots *slots, size_t max_bytes, struct step *step) {
    struct adapter_slot *slot;
    while ((slot = next_to_write(slots)) != NULL && write_piece(slots, slot, max_bytes, step))
        continue;
    step->batch.num_adapter_writes = step->arena.counts->num_adapter_writes;
}

void adapter_slots_submitted(struct adapter_slots *slots) {
    slots->num_submitted++;
}

static void note_written(struct adapter_slots *slots, struct adapter_slot *slot) {
    if (slot->adapter == NULL || slot->was_ready || !slot->is_written ||
        slot->written_by > slots->num_collected)
        return;
    slot->was_ready = true;
    adapter_change(slot->adapter, ADAPTER_LOADING, ADAPTER_READY);
    slots->has_news = true;
}

void adapter_slots_collected(struct adapter_slots *slots, bool succeeded) {
    slots->num_collected++;
    for (int32_t i = 0; i < slots->shape.num_slots && succeeded; i++)
        note_written(slots, &slots->slots[i]);
}

/* --- Counting --- */

void adapter_slots_count(const struct adapter_slots *slots, const struct sequence_group *groups) {
    int32_t running[LORA_MAX_SLOTS] = {0}, waiting[LORA_MAX_SLOTS] = {0};
    if (slots->shape.num_slots == 0)
        return;
    for (const struct sequence_group *g = groups; g != NULL; g = g->next)
        if (g->request->adapter != NULL)
            (g->status == GROUP_RUNNING ? running : waiting)[g->request->adapter->slot]++;
    for (int32_t i = 0; i < slots->shape.num_slots; i++) {
        struct adapter *adapter = slots->slots[i].adapter;
        if (adapter == NULL)
            continue;
        atomic_store(&adapter->num_running, running[i]);
        atomic_store(&adapter->num_waiting, waiting[i]);
    }
}
