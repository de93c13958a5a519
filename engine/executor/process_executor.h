/* An executor whose ranks live in their own process (rank_process.c), with weights, KV blocks and
 * everything that a device's libraries hold. Steps lie in memory that both processes share. When
 * that process dies, hangs or reports that the device failed, the executor returns ERROR_RESTART
 * (executor.h), and restart starts a new one: the engine's process holds nothing of the device that
 * could be broken.
 *
 * The result of a step is checked before anybody reads it (rank_message_check_done). A process that
 * answers wrongly is killed, as if it had crashed.
 *
 * A process that has neither answered nor used processor time for device_timeout_s is assumed to
 * hang, on the CPU too: it was stopped, or waits forever. While it waits for its turn
 * (step_turns.h), that time does not count. A device that does not answer is detected in the rank
 * process, as in any other. */
#ifndef QUIRE_ENGINE_EXECUTOR_PROCESS_EXECUTOR_H
#define QUIRE_ENGINE_EXECUTOR_PROCESS_EXECUTOR_H

#include "engine/executor/executor.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct process_executor_config {
    const char *program;     /* to run, in the form that posix_spawn(3) expects */
    const char *const *argv; /* its arguments, ending with NULL; they lead to rank_process_run */
    const char *model_path;  /* of the model, for the rank process to open */
    const char *draft_path;  /* of the draft model, likewise; NULL: none */
    const atomic_bool
        *gives_up; /* once another thread sets it, the first start fails; may be NULL */
    struct executor_config executor; /* its draft_model and turns are not read */
    /* In which the process computes its steps if it computes on the CPU (step_turns.h): shared with
     * other executors' processes on the same cores. NULL: it does not wait for others. */
    struct step_turns *turns;
};

/* Creates the executor like executor_create, with its ranks in a new process. Everything that the
 * configuration points to outlives the executor, which has a slot of the turns. Never leaves an
 * executor that hangs: such a process is killed.
 *
 * The system kills the process, even if it is stopped or hangs, when the thread that started it
 * ends (PR_SET_PDEATHSIG applies to threads): the thread that called this function, or restart
 * since. This is how the process ends with a server that is killed. If that thread ends before
 * destroy, the ranks are lost, as in a crash; so it must live until the last step was waited for.
 * The engine's thread, which restarts, ends just before destroy, when there is nothing left to
 * lose. */
int process_executor_create(const struct process_executor_config *config,
                            struct executor_info *info, struct executor **out, struct error *err);

/* Returns the id of the process, which changes with a restart. Any thread. */
pid_t process_executor_pid(const struct executor *executor);

/* Returns whether ranks on this device, a name as in executor_config, live in their own process by
 * default: on a GPU, so that its failures stay in the process that saw them. For "auto" the CUDA
 * module is loaded and asked for the GPU's memory. That initialises the driver in this process but
 * creates no context (kernels/module.h). The driver's state does not survive a fork, and does not
 * have to: the rank process is another program, and inherits none of the driver's files. */
bool process_executor_is_default(const char *device);

#endif
