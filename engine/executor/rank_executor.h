/* Private to the executor of ranks (executor.c): its state, and the way of a step through its
 * ranks.
 *
 * Ranks in other processes (remote_ranks.h) are sent the step first, and waited for last.
 *
 * Each rank is started by its own thread. After that there are two ways. With several ranks, or on
 * a CPU, the threads run the steps, because the calls compute. With one rank whose device works
 * asynchronously, the engine's thread takes over the rank, and hands steps to the device without
 * waking another thread. */
#ifndef QUIRE_ENGINE_EXECUTOR_RANK_EXECUTOR_H
#define QUIRE_ENGINE_EXECUTOR_RANK_EXECUTOR_H

#include "engine/executor/executor.h"
#include "engine/executor/rank.h"
#include "engine/executor/rank_setup.h"
#include "engine/executor/rank_turn.h"

#include <pthread.h>

/* What the ranks' threads are to do, one phase after the other. */
enum phase {
    PHASE_OPEN,
    PHASE_LOAD,
    PHASE_TRY, /* with the first steps, in which ranks meet */
    PHASE_ALLOCATE,
    PHASE_RUN,
    PHASE_HAND_OVER, /* instead of running: another thread takes over the rank */
    PHASE_RELEASE,   /* after running, and before allocating again */
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
    /* guarded by the executor's lock: how many steps the rank has come to begin, sample and
     * finish */
    uint64_t num_begun, num_sampled, num_finished;
    struct rank_stats stats; /* guarded by the same lock; up to the last part that ended */
};

/* What the ranks still have. */
enum rank_rest {
    RANK_AWAKE,
    RANK_RELEASED, /* everything except their pools */
    RANK_CLOSED,   /* nothing, not even a thread */
};

struct rank_executor {
    struct executor base;
    const struct model *model;
    struct executor_config config; /* once they have started: with what was chosen then */
    struct executor_info info;     /* of the first start */
    enum rank_rest rest;           /* engine thread only */
    int32_t num_ranks;
    int32_t device_timeout_s;
    bool is_direct; /* the engine's thread took over the rank, and hands its steps to the device */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock; if the engine's thread runs the steps, only that thread uses the steps and
     * their numbers */
    enum phase phase;
    int32_t num_ready;                               /* ranks that have finished the phase */
    struct submitted_step steps[EXECUTOR_MAX_STEPS]; /* step i is in place i % EXECUTOR_MAX_STEPS */
    uint64_t num_submitted, num_waited_for;          /* calls that the engine made */
    uint64_t most_begun, most_sampled;               /* by any rank */
    struct rank_turn turn;
    struct error error; /* the first one, of starting or of a step; no rank continues after it */
    uint64_t num_successful; /* steps before the first that some rank has not finished */

    struct rank_setup setup; /* unless they are closed */
    struct rank_thread threads[BACKEND_MAX_RANKS];
    struct rank_watch watches[BACKEND_MAX_RANKS];
    struct rank ranks[BACKEND_MAX_RANKS]; /* each belongs to its thread */
    struct remote_ranks *remote; /* ranks in other processes, if this is rank 0; NULL: none */
    pthread_t watchdog; /* ends the process when the engine's call does not return in time */
    bool has_watchdog;
};

/* Waits for a change, or until the watches are due to be checked. The lock is held. Returns false
 * when a device is late: the executor hangs. */
bool rank_executor_await_change(struct rank_executor *executor);

/* The thread of a rank; its argument is a struct rank_thread. Goes through the phases. */
void *rank_executor_run_thread(void *thread);
/* Start and end watching the steps that the engine's thread hands to the device. The first returns
 * -1 with ERROR_IO on failure. */
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
