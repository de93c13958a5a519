/* An executor whose ranks live in a process of their own (rank_process.c), with weights, KV blocks
 * and all that a device's libraries hold. Steps lie in memory that both share. When that process
 * dies, hangs or reports that the device failed, the executor says ERROR_RESTART (executor.h), and
 * restart begins a new one: the engine's process holds nothing of the device that could be broken.
 *
 * What a step returns is checked before anybody reads it (rank_message_check_done): a process that
 * answers wrongly is killed, as if it had crashed.
 *
 * A process that has neither answered nor used processor time for device_timeout_s is taken to
 * hang, on the CPU too: it was stopped, or waits for ever. A device that does not come back is
 * found in the rank process, as in any. */
#ifndef QUIRE_ENGINE_EXECUTOR_PROCESS_EXECUTOR_H
#define QUIRE_ENGINE_EXECUTOR_PROCESS_EXECUTOR_H

#include "engine/executor/executor.h"

#include <stdbool.h>
#include <sys/types.h>

struct process_executor_config {
    const char *program;     /* to run, as posix_spawn(3) takes it */
    const char *const *argv; /* its arguments, NULL at the end; they lead to rank_process_run */
    const char *model_path;  /* of the model, as the rank process opens it */
    struct executor_config executor;
};

/* As executor_create, in the process. All that the configuration points to outlives the executor.
 * Never leaves an executor that hangs: such a process is killed.
 *
 * The system kills the process, stopped or hanging as it may be, when the thread that started it
 * ends (PR_SET_PDEATHSIG goes by threads): the one that called this, or restart since. That is how
 * it ends with a server that is killed. A thread that ends before destroy costs the ranks, as a
 * crash would, so it is to live until the last step was waited for; the engine's, which restarts,
 * ends just before destroy, and nothing is lost any more. */
int process_executor_create(const struct process_executor_config *config,
                            struct executor_info *info, struct executor **out, struct error *err);

/* Returns the id of the process; it changes with a restart. Any thread. */
pid_t process_executor_pid(const struct executor *executor);

/* Returns whether ranks on this device, as executor_config names it, live in a process of their own
 * unless somebody says otherwise: on a GPU, whose failures stay with the process that saw them.
 * For "auto" the CUDA module is loaded and asked for the GPU's memory, which initialises the driver
 * in this process but makes no context (kernels/module.h). That state does not survive a fork, and
 * need not: the rank process is another program, and inherits none of the driver's files. */
bool process_executor_is_default(const char *device);

#endif
