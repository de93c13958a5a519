/* Finds masks that take long on threads of low priority, so that a grammar that is slow to follow
 * keeps nobody else waiting (engine/grammar/machine/grammar_job.h). Each thread goes on with a job
 * for some milliseconds and then with the next: the one whose share has had the least.
 *
 * An interface, so that tests decide when a job is done. Engine thread, but for mask_workers_create
 * and _destroy. */
#ifndef QUIRE_ENGINE_MASK_WORKERS_H
#define QUIRE_ENGINE_MASK_WORKERS_H

#include "config/base/error.h"
#include "engine/grammar/machine/grammar_job.h"
#include "engine/sequence/sequence_group.h"
#include "engine/stats/engine_stats.h"

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

/* --- The jobs of a core --- */

/* Has masks that take long found by workers. A group whose grammar is busy is left out of the plans
 * (sequence_group_is_held); its job begins once no step in flight is about the grammar. Engine
 * thread only. */
struct mask_jobs {
    struct mask_workers *workers; /* NULL: masks are found at once, whatever they cost */
    /* Learns of a job that was taken; NULL: nobody does. */
    void (*taken)(void *context, uint64_t id);
    void *context;
    uint64_t last_id;
    int32_t num_running;
};

/* Takes the jobs that are done, by rising ids, and begins those that can begin: of the live groups,
 * linked through their `next`. */
void mask_jobs_update(struct mask_jobs *jobs, const struct sequence_group *groups,
                      struct engine_stats *stats, int64_t now_ns);
/* Ends all jobs. */
void mask_jobs_stop(struct mask_jobs *jobs);

#endif
