/* The rank process (engine/executor/process_executor.h) as the engine's process has it: started,
 * talked to over a socket, watched, and ended. What the messages are about is left to the caller.
 *
 * A process that ends, answers wrongly or hangs is lost: it is killed, `lost` says why, and what is
 * sent from then on goes nowhere, until another one is started. It hangs when it has neither
 * answered nor used processor time for a while; one that computes for long is left alone.
 *
 * One thread at a time; the pid may be read by any. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_CHILD_H
#define QUIRE_ENGINE_EXECUTOR_RANK_CHILD_H

#include "engine/executor/rank_message.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

/* Numbers of files from here on are none that the process expects. */
#define RANK_CHILD_MIN_FD 16

struct rank_child {
    _Atomic pid_t pid; /* 0: none */
    int socket;        /* -1: none */
    struct error lost; /* ERROR_RESTART; ERROR_DEVICE: it cannot be killed; ERROR_NONE: it is not */
};

/* Starts the program, as posix_spawn(3) takes it; argv ends with NULL. The process gets its end of
 * a socket, the files, whose numbers are RANK_CHILD_MIN_FD at least, and the environment without
 * the API keys. The system kills it when the thread that calls this ends (PR_SET_PDEATHSIG). */
int rank_child_start(struct rank_child *child, const char *program, const char *const *argv,
                     const struct step_files *files, struct error *err);
/* Kills the process, if it has not ended by itself. Returns -1 when it does not go. Accepts that
 * there is none, as does the next one. */
int rank_child_end(struct rank_child *child, struct error *err);
/* Lets the process end by itself, for a while. */
void rank_child_dismiss(struct rank_child *child);

/* Ends the process because of this; NULL: because it has ended by itself. */
void rank_child_lose(struct rank_child *child, const char *why);
/* What comes from the process is wrong: it is as good as dead. */
void rank_child_lose_for_answer(struct rank_child *child, const char *what);
bool rank_child_is_lost(const struct rank_child *child);
/* Returns -1 with `lost` when the process is. */
int rank_child_check(const struct rank_child *child, struct error *err);

/* Sends a message, unless the process is lost. One that cannot be sent loses it. */
void rank_child_send(struct rank_child *child, const struct rank_message *message);
/* Waits for a message. timeout_s: without any processor time used, 0: for ever. gives_up: set by
 * any thread, ends the wait; NULL: nothing does. Returns -1 when the process is lost. */
int rank_child_receive(struct rank_child *child, int32_t timeout_s, const atomic_bool *gives_up,
                       struct rank_message *out);

#endif
