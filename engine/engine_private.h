/* Shared by the files of the engine's thread. `lock` guards everything that the thread shares with
 * the front end: the inbox, the ready list, a copy of the counters, and the reasons for waking the
 * thread. The lock is never held while a step runs. */
#ifndef QUIRE_ENGINE_ENGINE_PRIVATE_H
#define QUIRE_ENGINE_ENGINE_PRIVATE_H

#include "engine/core/engine_core.h"
#include "engine/engine.h"
#include "engine/core/mask_workers.h"
#include "engine/executor/store_tier.h"
#include "engine/request/request_list.h"
#include "engine/sleep_machine.h"

#include <pthread.h>
#include <stdatomic.h>

struct engine {
    struct engine_config config;
    struct queue_limits queue;           /* taken from under the lock */
    struct mask_workers *mask_workers;   /* the core's; NULL without a vocabulary */
    struct store_tier store_tier;        /* the core's, if there is a store */
    struct engine_core core;             /* the thread's */
    struct request_list ready_this_step; /* the thread's: requests with events of this step */
    pthread_t thread;
    int64_t idle_since_ns; /* the thread's; 0: something runs, or has run since it last looked */
    atomic_bool has_stalled;

    pthread_mutex_t lock;
    pthread_cond_t wake_up;
    /* guarded by lock */
    struct request_list inbox;
    struct request_list ready;
    struct engine_stats stats;
    uint64_t next_id;
    bool wake_requested; /* something was cancelled or read */
    bool flush_requested;
    bool store_flush_requested; /* too */
    /* With a slot each, references. The states LOADING and UNLOADING are set under the lock, and
     * seen by the thread when it next takes the inbox. */
    struct adapter *adapters[LORA_MAX_SLOTS];
    bool awaits_others; /* the thread sleeps until a stream is read, its timeout ends, or a mask is
                           found */
    bool accepting;
    bool failed;
    struct error failure; /* why */
    bool busy;            /* the core has requests, or is being handed some */
    struct sleep_machine sleep;
    bool quitting;
};

/* What the thread takes from the front end at once. */
struct engine_inbox {
    struct request_list requests;
    bool flushes;
    bool flushes_store;
    struct adapter *loads[LORA_MAX_SLOTS]; /* by slot; NULL: none */
    bool unloads[LORA_MAX_SLOTS];
};

/* Parts of the thread's loop, called by it without the lock. */
void engine_forget_prefixes(struct engine *engine);
bool engine_step(struct engine *engine); /* returns whether there is more to do */
void engine_end_kv_events(const struct engine *engine);
/* Makes a step's outcome visible, and wakes the front end when the ready list turned non-empty. */
void engine_publish(struct engine *engine);

/* engine_adapters.c, by the thread. Under the lock: adds to the inbox what is new. Without it: pass
 * the inbox to the core; loads before its requests, unloads after them. */
void engine_take_adapters(struct engine *engine, struct engine_inbox *out);
void engine_pass_loads(struct engine *engine, const struct engine_inbox *inbox);
void engine_pass_unloads(struct engine *engine, const struct engine_inbox *inbox);

#define ENGINE_BETWEEN_STEPS "is between steps"
/* Records what the thread is doing (engine_config.activity). */
void engine_note_activity(const struct engine *engine, const char *activity);

/* By the thread: returns when it will fall asleep by itself; 0: not in its present state. */
int64_t engine_sleep_due_ns(struct engine *engine);
/* Under the lock: returns false if the state refuses the event. */
bool engine_take_sleep_event(struct engine *engine, enum sleep_event event);
/* Falls asleep if that is due and nothing is left to do. Sleeps until it is woken or the thread
 * must end. */
void engine_sleep_if_due(struct engine *engine);

#endif
