/* What the scheduler knows, for the files that it is made of: scheduler.c, admission.c,
 * preemption.c, prefix_reuse.c, kv_window.c. Others read it and change nothing. */
#ifndef QUIRE_ENGINE_SCHEDULE_SCHEDULER_STATE_H
#define QUIRE_ENGINE_SCHEDULE_SCHEDULER_STATE_H

#include "engine/kv/block_manager.h"
#include "engine/schedule/kv_demand.h"
#include "engine/schedule/step_plan.h"

struct scheduler_config {
    const struct serving_limits *limits; /* without host blocks preemption is by recomputation */
    int64_t swap_block_ns;               /* to move one block to the host, or back */
    int32_t num_tenants;
    bool prefix_caching;
    struct block_key_secret secret; /* of the keys of prefixes */
};

struct scheduler {
    struct scheduler_config config;
    struct block_manager blocks;
    struct group_list waiting;
    struct group_list running;
    double token_ns; /* what computing one token takes, for the choice of preemption */
    struct step_plan plan;
    struct block_table **tables; /* [max_num_seqs], of one group, while it is moved */

    /* since start */
    uint64_t num_queried_tokens; /* looked for in the prefix cache, once per group */
    uint64_t num_hit_tokens;     /* and found, before anybody computed them for the group */
    uint64_t num_swaps;          /* groups swapped out */
    uint64_t num_recomputes;     /* groups preempted by recomputation */
};

#endif
