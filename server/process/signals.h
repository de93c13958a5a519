/* The signals of the server. SIGTERM and SIGINT stop it. SIGHUP rereads what may change while it
 * runs. No other signal that a user or a program can send ends it: a stream must not be cut off
 * because a terminal was closed or a script uses another server's signals. Our own faults (SIGSEGV,
 * SIGABRT, ...) keep their effect, and so do the signals of job control. */
#ifndef QUIRE_SERVER_PROCESS_SIGNALS_H
#define QUIRE_SERVER_PROCESS_SIGNALS_H

#include "config/base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum signal_action { SIGNAL_STOP, SIGNAL_RELOAD, SIGNAL_IGNORE };

/* Blocks the signals that are read through the signalfd, in the calling thread and those it creates
 * later. Ignores SIGPIPE and SIGXFSZ, whose system calls fail instead. Called before the first
 * thread exists. */
void signals_block(void);

/* Opens a non-blocking signalfd(2) of all that signals_block blocks, for the caller to close; -1
 * with errno. */
int signals_open(void);

/* Opens one for the signals that stop. It only reports them; the reader of the other one takes
 * them. */
int signals_open_stop(void);

enum signal_action signals_action(int number);

/* Takes a pending signal that stops; returns whether there was one. Leaves the others. */
bool signals_take_stop(void);

/* --- The stop guard --- */

/* The last resort of a stop: a thread that ends the process when a stop is not complete by its
 * deadline, whatever hangs. It waits for nothing, takes no shared lock, and sees SIGTERM and SIGINT
 * itself, so that it also works when the thread that handles them hangs.
 *
 * It logs one line that says what the main thread and the engine's thread were doing, and ends the
 * process with status 70, or with 0 while the server is starting and does not serve anybody yet. */

#define STOP_GUARD_SPARE_MS 5000 /* in addition to the clients' time */

struct stop_guard {
    pthread_t thread;
    bool has_thread;
    int signal_fd, wake_fd;
    atomic_bool ends, serves;
    atomic_llong deadline_ns;              /* 0: nothing stops yet */
    atomic_llong clients_ms;               /* after a signal */
    _Atomic(const char *) activity;        /* of the main thread */
    _Atomic(const char *) engine_activity; /* see engine_config.activity */
};

/* Starts the thread. With the signals blocked (signals_block). ERROR_IO. */
int stop_guard_start(struct stop_guard *guard, struct error *err);
/* Main thread: records what it is doing, a constant text: "loads the model". */
void stop_guard_note(struct stop_guard *guard, const char *activity);
/* From now on clients have clients_ms after a signal. */
void stop_guard_serve(struct stop_guard *guard, int64_t clients_ms);
/* Any thread: a stop is in progress, and gives clients clients_ms from now on. The earliest
 * deadline counts. */
void stop_guard_arm(struct stop_guard *guard, int64_t clients_ms);
/* The stop is over. Accepts a zeroed one. */
void stop_guard_finish(struct stop_guard *guard);

#endif
