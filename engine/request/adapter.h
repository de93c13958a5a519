/* A low-rank adapter as requests and the core know it: a name, its numbers, and the slot of the
 * ranks that holds them (models/lora). The core gives it a slot and has steps write it there; a
 * request that names it computes with it. Reference-counted: adapter_create gives the caller one
 * reference, each request and the core take one of their own. */
#ifndef QUIRE_ENGINE_REQUEST_ADAPTER_H
#define QUIRE_ENGINE_REQUEST_ADAPTER_H

#include "models/lora/lora_adapter.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum adapter_state {
    ADAPTER_NEW,
    ADAPTER_LOADING,   /* it has a slot, and steps write it */
    ADAPTER_READY,     /* requests may name it */
    ADAPTER_UNLOADING, /* none may any more; those that do end as usual */
    ADAPTER_GONE,      /* the slot is free again */
};

struct adapter {
    char *name;
    struct lora_adapter *lora;        /* owned */
    _Atomic enum adapter_state state; /* written by the engine, read by anyone */
    /* Written by the engine, read by anyone: its requests. */
    _Atomic int32_t num_running, num_waiting;
    _Atomic uint64_t num_submitted; /* accepted since it was created */
    atomic_int references;
    int32_t slot; /* set by engine_load_adapter; -1: none yet */
};

/* Takes `lora` over, also on failure. Returns NULL when memory is short. */
struct adapter *adapter_create(const char *name, struct lora_adapter *lora);
struct adapter *adapter_ref(struct adapter *adapter);
void adapter_unref(struct adapter *adapter); /* accepts NULL */

/* By the engine. Changes the state unless it is another one than `from` by now, and returns whether
 * it was that. */
bool adapter_change(struct adapter *adapter, enum adapter_state from, enum adapter_state to);

#endif
