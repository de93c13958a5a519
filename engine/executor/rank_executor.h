/* Private to the executor of ranks (executor.c): its state, and a step's way through its ranks.
 *
 * Those in other processes (remote_ranks.h) are sent the step first, and waited for last.
 *
 * A thread for each rank starts it. From then on either the threads run the steps, which several
 * ranks and a CPU need: they compute in the calls. Or, where one rank's device works by itself, the
 * engine's thread has the rank, and hands its steps to the device without waking another. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_EXECUTOR_H
#define QUIRE_ENGINE_EXECUTOR_RANK_EXECUTOR_H

#include "engine/executor/executor.h"
#include "engine/executor/rank.h"
#include "engine/executor/rank_setup.h"

#include <pthread.h>

/* What the ranks' threads are to do, one after the other. */
enum phase {
    PHASE_OPEN,
    PHASE_LOAD,
    PHASE_ALLOCATE,
    PHASE_RUN,
    PHASE_HAND_OVER, /* instead of running: the rank is another thread's now */
    PHASE_RELEASE,   /* behind running, and before allocating again */
    PHASE_QUIT,
};

struct submitted_step {
    const struct batch *batch;
    struct step_result *result;
    bool is_supplied;
};

struct rank_executor;

struct rank_thread {
    struct rank_executor *executor;
    int32_t index; /* of the rank */
    pthread_t thread;
    /* guarded by the executor's lock: parts of a step that the rank has come to */
    uint64_t num_begun, num_sampled, num_finished;
    struct rank_stats stats; /* likewise; until the last of them ended */
};

/* What the ranks have. */
enum rank_rest {
    RANK_AWAKE,
    RANK_RELEASED, /* all but their pools */
    RANK_CLOSED,   /* nothing; there is no thread, either */
};

struct rank_executor {
    struct executor base;
    const struct model *model;
    struct executor_config config; /* once they have started: with what was chosen then */
    struct executor_info info;     /* of the first start */
    enum rank_rest rest;           /* the engine's thread's */
    int32_t num_ranks;
    int32_t device_timeout_s;
    bool is_direct; /* the engine's thread was handed the rank, and hands its steps to the device */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock; steps and their numbers are the engine's thread's alone where that runs
     * them */
    enum phase phase;
    int32_t num_ready;                               /* ranks that are done with it */
    struct submitted_step steps[EXECUTOR_MAX_STEPS]; /* step i is in place i % EXECUTOR_MAX_STEPS */
    uint64_t num_submitted, num_waited_for;          /* by the engine: calls that it made */
    uint64_t most_begun, most_sampled;               /* by any rank */
    struct error error;      /* the first, of starting or of a step; no rank goes on after it */
    uint64_t num_successful; /* steps before the first that some rank has not finished */

    struct rank_setup setup; /* unless they are closed */
    struct rank_thread threads[BACKEND_MAX_RANKS];
    struct rank_watch watches[BACKEND_MAX_RANKS];
    struct rank ranks[BACKEND_MAX_RANKS]; /* each its thread's own */
    struct remote_ranks *remote;          /* in other processes, as rank 0 has them; NULL: none */
    pthread_t watchdog; /* ends the process when a call of the engine's does not return in time */
    bool has_watchdog;
};

/* The lock is held. Waits for a change, or until the next look at the watches. False when a device
 * is late: the executor hangs. */
bool rank_executor_await_change(struct rank_executor *executor);

/* The thread of a rank, its struct rank_thread: goes through the phases. */
void *rank_executor_run_thread(void *thread);
/* Around the steps that the engine's thread hands to the device. -1 with ERROR_IO. */
int rank_executor_watch(struct rank_executor *executor, struct error *err);
void rank_executor_unwatch(struct rank_executor *executor);

/* See executor_ops. */
void rank_executor_submit(struct executor *executor, const struct batch *batch,
                          struct step_result *result);
void rank_executor_supply(struct executor *executor);
int rank_executor_wait(struct executor *executor, struct error *err);
int rank_executor_step_memory(struct executor *executor, const struct batch_capacity *capacity,
                              void **out);
int rank_executor_check(struct executor *executor, struct error *err);

#endif
