/* The slots of the ranks as the core sees them: which adapter each has, what of it the steps have
 * yet to write there, and how many requests use it. The core writes pieces along with its steps, so
 * that none waits for a whole adapter.
 *
 *   free -load-> LOADING -the step of its last write was waited for-> READY
 *         LOADING -unload-> free at once
 *         READY -unload-> UNLOADING -its last request has ended-> free
 *
 * When the ranks have lost what the slots held (adapter_slots_forget), all is written again: those
 * that requests may use before anything else runs. Engine thread only. */
#ifndef QUIRE_ENGINE_CORE_ADAPTER_SLOTS_H
#define QUIRE_ENGINE_CORE_ADAPTER_SLOTS_H

#include "engine/batch/step.h"
#include "engine/request/adapter.h"
#include "engine/schedule/scheduler.h"

#define ADAPTER_STEP_BYTES ((size_t)256 << 10) /* that a step with tokens writes */
#define ADAPTER_IDLE_BYTES ((size_t)1 << 20)   /* one without */
#define ADAPTER_STEP_WRITES 32                 /* of either */

struct adapter_slot {
    struct adapter *adapter; /* a reference; NULL: free */
    int32_t id;              /* of this load, from 1 */
    bool was_ready;          /* requests may use it, or did */
    bool is_unloading;
    bool is_written;       /* by steps that were submitted */
    uint64_t written_by;   /* the number of the last of these */
    struct lora_rows rows; /* written last; zeroed: none were */
    int64_t num_requests;  /* accepted and not ended */
};

struct adapter_slots {
    const struct model_config *model;
    struct lora_shape shape;
    struct adapter_slot slots[LORA_MAX_SLOTS];
    int32_t num_loaded;                    /* since the start */
    uint64_t num_submitted, num_collected; /* steps */
    bool has_news; /* some adapter became READY or GONE; cleared by whoever reports it */
};

/* The model outlives the slots; it is not read if the shape has none. */
void adapter_slots_init(struct adapter_slots *slots, const struct model_config *model,
                        const struct lora_shape *shape);
void adapter_slots_finish(struct adapter_slots *slots); /* accepts zeroed ones */
/* Adds what adapter_slots_write writes to the capacity of a step. */
void adapter_slots_add_capacity(const struct model_config *model, const struct lora_shape *shape,
                                struct batch_capacity *capacity);

/* Gives a free slot to an adapter, of which it takes a reference. is_ready: requests may use it
 * already, as in the core whose recording is replayed. */
void adapter_slots_load(struct adapter_slots *slots, int32_t slot, struct adapter *adapter,
                        bool is_ready);
void adapter_slots_unload(struct adapter_slots *slots, int32_t slot);
/* Note that a request was accepted, and that no step computes it any more. Both accept NULL. */
void adapter_slots_take(struct adapter_slots *slots, const struct adapter *adapter);
void adapter_slots_release(struct adapter_slots *slots, const struct adapter *adapter);
int32_t adapter_slots_id(struct adapter_slots *slots, const struct adapter *adapter);
/* The ranks hold no adapter any more, and no step that was not waited for succeeds. */
void adapter_slots_forget(struct adapter_slots *slots);

/* Returns whether a slot has yet to be written; the second: one that requests may use. */
bool adapter_slots_have_writes(const struct adapter_slots *slots);
bool adapter_slots_must_write(const struct adapter_slots *slots);
/* Adds the next pieces to a step that is built; max_bytes: ADAPTER_STEP_BYTES or _IDLE_BYTES. */
void adapter_slots_write(struct adapter_slots *slots, size_t max_bytes, struct step *step);
/* The step was submitted; the oldest one was waited for. */
void adapter_slots_submitted(struct adapter_slots *slots);
void adapter_slots_collected(struct adapter_slots *slots, bool succeeded);

/* Sets num_running and num_waiting of all adapters. */
void adapter_slots_count(const struct adapter_slots *slots, const struct sequence_group *groups);

#endif
