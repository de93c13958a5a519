/* A process that has ranks of the model and nothing else: weights, KV blocks and the device. It
 * does what another one tells it, and ends with that one. The program's only thread calls. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_PROCESS_H
#define QUIRE_ENGINE_EXECUTOR_RANK_PROCESS_H

#include "engine/executor/executor.h"

#include <stdbool.h>

/* --- All ranks, for the engine's process, over a socket (process_executor.h) --- */

/* Returns whether this process was started for it: the socket is there. */
bool rank_process_is_expected(void);
/* Runs until the engine's process closes its end of the socket, or is gone: 0. -1: it could not
 * start, which the engine's process was told, or the device hangs, so that the process is to leave
 * by _exit(2). Closes every file that was inherited beyond those that the engine hands over. */
int rank_process_run(void);

/* --- One rank of several processes, over a transport (remote_ranks.h) --- */

/* Starts the rank config->transport->rank, and computes until rank 0 dismisses it: 0. -1 with
 * errors of executor_create, or with ERROR_DEVICE when rank 0, or another rank, is gone or has let
 * the timeout pass: the process is then to leave by _exit(2). `ready` is called once it has
 * started. */
int rank_process_run_remote(const struct model *model, const struct executor_config *config,
                            void (*ready)(void *context, const struct executor_info *info),
                            void *context, struct error *err);

#endif
