/* Has masks that take long found by workers. A group whose grammar is busy is left out of the plans
 * (sequence_group_is_held); its job begins once no step in flight is about the grammar. Engine
 * thread only. */
#ifndef QUIRE_ENGINE_CORE_MASK_JOBS_H
#define QUIRE_ENGINE_CORE_MASK_JOBS_H

#include "engine/stats/engine_stats.h"
#include "engine/core/mask_workers.h"
#include "engine/sequence/sequence_group.h"

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
