/* The last resort of a stop: a thread that ends the process when a stop is not over by its
 * deadline, whatever hangs. It waits for nobody, takes no lock of others, and sees SIGTERM and
 * SIGINT itself, so that it also acts where the thread that takes them is the one that hangs.
 *
 * It logs one line that says what the main and the engine's thread were doing, and ends the process
 * with status 70; while the server starts, and serves nobody yet, with 0. */
#ifndef QUIRE_SERVER_STOP_GUARD_H
#define QUIRE_SERVER_STOP_GUARD_H

#include "config/base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STOP_GUARD_SPARE_MS 5000 /* beyond what clients are given */

struct stop_guard {
    pthread_t thread;
    bool has_thread;
    int signal_fd, wake_fd;
    atomic_bool ends, serves;
    atomic_llong deadline_ns;              /* 0: nothing stops yet */
    atomic_llong clients_ms;               /* after a signal */
    _Atomic(const char *) activity;        /* of the main thread */
    _Atomic(const char *) engine_activity; /* as engine_config.activity */
};

/* Starts the thread. With the signals blocked (signals_block). ERROR_IO. */
int stop_guard_start(struct stop_guard *guard, struct error *err);
/* Main thread: what it does now, a constant text: "loads the model". */
void stop_guard_note(struct stop_guard *guard, const char *activity);
/* From now on clients are given so long after a signal. */
void stop_guard_serve(struct stop_guard *guard, int64_t clients_ms);
/* Any thread: a stop is on, and is to give clients so long from now on. The earliest end holds. */
void stop_guard_arm(struct stop_guard *guard, int64_t clients_ms);
/* The stop is over. Accepts a zeroed one. */
void stop_guard_finish(struct stop_guard *guard);

#endif
