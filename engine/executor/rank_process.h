/* A process that holds ranks of the model and nothing else: weights, KV blocks and the device. It
 * does what another process tells it, and ends with that process. Called by the program's only
 * thread. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_PROCESS_H
#define QUIRE_ENGINE_EXECUTOR_RANK_PROCESS_H

#include "engine/executor/executor.h"

#include <stdbool.h>

/* --- All ranks, for the engine's process, over a socket (process_executor.h) --- */

/* Returns whether this process was started as a rank process: whether the socket exists. */
bool rank_process_is_expected(void);
/* Runs until the engine's process closes its end of the socket or is gone; then returns 0. Returns
 * -1 if it could not start, which the engine's process was told, or if the device hangs, so that
 * the process must leave with _exit(2). Closes all inherited files except those that the engine
 * hands over. */
int rank_process_run(void);

/* --- One rank of several processes, over a transport (remote_ranks.h) --- */

/* Starts the rank config->transport->rank, and computes until rank 0 dismisses it; then returns 0.
 * Returns -1 with the errors of executor_create, or with ERROR_DEVICE when rank 0 or another rank
 * is gone or did not answer within the timeout: the process must then leave with _exit(2). `ready`
 * is called once the rank has started. */
int rank_process_run_remote(const struct model *model, const struct executor_config *config,
                            void (*ready)(void *context, const struct executor_info *info),
                            void *context, struct error *err);

#endif
