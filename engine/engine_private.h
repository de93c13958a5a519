/* What the files of the engine's thread have in common. `lock` guards everything the front end shares
 * with it: the inbox, the ready list, a copy of the counters, and what the thread has to wake up for.
 * The lock is never held while a step runs. */
#ifndef QUIRE_ENGINE_ENGINE_PRIVATE_H
#define QUIRE_ENGINE_ENGINE_PRIVATE_H

#include "engine/core/engine_core.h"
#include "engine/engine.h"
#include "engine/mask_workers.h"
#include "engine/request_list.h"

#include <pthread.h>
#include <stdatomic.h>

struct engine {
    struct engine_config config;
    struct queue_limits queue;           /* taken from under the lock */
    struct mask_workers *mask_workers;   /* the core's; NULL without a vocabulary */
    struct engine_core core;             /* the thread's */
    struct request_list ready_this_step; /* the thread's: requests with events of this step */
    pthread_t thread;
    int64_t idle_since_ns; /* the thread's: 0: something runs, or has since it looked */
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
    bool awaits_others; /* the thread sleeps until a stream is read, or its time is up, or a mask
                           is found */
    bool accepting;
    bool failed;
    struct error failure; /* why */
    bool busy;            /* the core has requests, or is being given some */
    enum engine_rest rest;
    bool discards_weights; /* in its sleep */
    bool is_down;          /* the executor has given its memory back, or is about to */
    bool is_idle_sleep;    /* it began by itself, and a request ends it */
    int64_t waking_ns;     /* since when it is to wake up */
    struct engine_idle_stats idle;
    bool quitting;
};

/* engine_turn.c: parts of what the thread does in a turn. Called by it, without the lock. */
void engine_forget_prefixes(struct engine *engine);
bool engine_step(struct engine *engine); /* returns whether there is more to do */
void engine_end_kv_events(const struct engine *engine);
/* Makes a step's outcome visible, and wakes the front end when the ready list turned non-empty. */
void engine_publish(struct engine *engine);

/* engine_sleep.c. By the thread: returns when it is to fall asleep by itself; 0: not, as it is. */
int64_t engine_sleep_due_ns(struct engine *engine);
/* Under the lock: ends a sleep, or calls it off. */
void engine_begin_waking(struct engine *engine);
/* Returns whether it is to sleep, for which nothing is left to do. */
bool engine_falls_asleep(struct engine *engine);
/* Sleeps until it is woken or the thread is to end. */
void engine_rest_now(struct engine *engine);

#endif
