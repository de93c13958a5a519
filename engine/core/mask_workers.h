/* Finds masks that take long on threads of low priority, so that a grammar that is slow to follow
 * keeps nobody else waiting (engine/grammar/machine/grammar_job.h). Each thread goes on with a job for some
 * milliseconds and then with the next: the one whose share has had the least.
 *
 * An interface, so that tests decide when a job is done. Engine thread, but for mask_workers_create
 * and _destroy. */
#ifndef QUIRE_ENGINE_MASK_WORKERS_H
#define QUIRE_ENGINE_MASK_WORKERS_H

#include "config/base/error.h"
#include "engine/grammar/machine/grammar_job.h"

/* What the masks of a step may cost on the engine's thread: some 10 ms. */
#define MASK_STEP_BUDGET (1 << 20)

struct mask_workers;

struct mask_workers_ops {
    /* Takes a job that was begun; it stays the workers' until it was taken back. */
    void (*add)(struct mask_workers *workers, struct grammar_job *job);
    /* Gives back a job that is done, the one with the lowest id; NULL: none is. */
    struct grammar_job *(*take)(struct mask_workers *workers);
    /* Makes all jobs count as done, once nobody works on them; more are not added. */
    void (*stop)(struct mask_workers *workers);
};

struct mask_workers {
    const struct mask_workers_ops *ops;
};

struct mask_workers_config {
    int32_t num_threads;         /* >= 1 */
    int32_t num_shares;          /* a job's share < num_shares */
    void (*wake)(void *context); /* a job is done; called by its thread */
    void *context;
};

/* Starts the threads. */
int mask_workers_create(const struct mask_workers_config *config, struct mask_workers **out,
                        struct error *err);
/* After ops->stop, with all jobs taken, or without any. Accepts NULL. */
void mask_workers_destroy(struct mask_workers *workers);

#endif
