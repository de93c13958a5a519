/* Finds masks that take long on threads of low priority, so that a slow grammar does not delay
 * other requests (engine/grammar/machine/grammar_job.h). Each thread works on a job for some
 * milliseconds, then on the next: the job whose share has received the least time.
 *
 * It is an interface, so that tests decide when a job is done. Engine thread, except for
 * mask_workers_create and _destroy. */
#ifndef QUIRE_ENGINE_CORE_MASK_WORKERS_H
#define QUIRE_ENGINE_CORE_MASK_WORKERS_H

#include "config/base/error.h"
#include "engine/grammar/machine/grammar_job.h"
#include "engine/sequence/sequence_group.h"
#include "engine/stats/engine_stats.h"

/* Maximum cost of a step's masks on the engine's thread: some 10 ms. */
#define MASK_STEP_BUDGET (1 << 20)

struct mask_workers;

struct mask_workers_ops {
    /* Takes a job that was begun. The workers own it until `take` returns it. */
    void (*add)(struct mask_workers *workers, struct grammar_job *job);
    /* Returns the finished job with the lowest id; NULL: none is finished. */
    struct grammar_job *(*take)(struct mask_workers *workers);
    /* Waits until nobody works on a job, then makes all jobs count as done; no more are added. */
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
/* Called after ops->stop, when all jobs were taken or none was added. Accepts NULL. */
void mask_workers_destroy(struct mask_workers *workers);

/* --- The jobs of a core --- */

/* Lets workers find masks that take long. A group whose grammar is busy is left out of plans
 * (sequence_group_is_held); its job begins once no step in flight uses the grammar. Engine thread
 * only. */
struct mask_jobs {
    struct mask_workers *workers; /* NULL: masks are computed at once, at any cost */
    /* Called for each job that was taken; may be NULL. */
    void (*taken)(void *context, uint64_t id);
    void *context;
    uint64_t last_id;
    int32_t num_running;
};

/* Takes finished jobs in order of their ids, and begins those that can begin. The live groups are
 * linked by `next`. */
void mask_jobs_update(struct mask_jobs *jobs, const struct sequence_group *groups,
                      struct engine_stats *stats, int64_t now_ns);
/* Ends all jobs. */
void mask_jobs_stop(struct mask_jobs *jobs);

#endif
