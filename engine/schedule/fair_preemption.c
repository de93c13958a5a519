/* Which running group gives way to a share that waits. Turns alone (share_queue.h) decide about
 * what becomes free: a share whose requests are long would hold all running slots until they end,
 * whoever comes meanwhile.
 *
 * What shares hold is compared by dominant resource fairness (Ghodsi et al., NSDI 2011): of running
 * slots and KV blocks the one of which a share holds the larger part of the server's, by its
 * weight. A group gives way when its share, without it, still holds as much as the other one would
 * with the group that waits: so nothing moves back, and the first group of a share always stays.
 * What computing it again costs is bounded: since it was admitted last, at least half of the tokens
 * that it was ever served were computed.
 *
 * A share that runs nothing is not kept waiting, so that its first tokens come within a few steps
 * under any load of others. If it lacks only a slot, what gives way is still in the prefix cache,
 * so that it costs next to nothing, and how much it was served does not matter. */
#include "engine/schedule/scheduler_private.h"

#include "config/base/numbers.h"

#include <math.h>

#define LEAST_SERVED 64 /* tokens from one admission to where it may be taken back */

struct holding {
    int64_t num_slots, num_blocks;
};

/* The blocks of a prompt that choices or beams share count once. */
static struct holding holding_of(const struct scheduler *scheduler,
                                 const struct sequence_group *group) {
    int32_t num_shared = kv_demand_shared_blocks(group->request, scheduler->config.kv.limits);
    struct holding holding = {.num_slots = min_int32(group->num_unfinished, group->max_running)};
    int64_t num_counted = 0;
    for (int32_t i = 0; i < group->num_sequences; i++) {
        int64_t num_blocks = block_manager_num_held(&scheduler->blocks, &group->sequences[i].table);
        if (group->sequences[i].status != SEQUENCE_RUNNING)
            continue;
        holding.num_blocks +=
            num_counted++ == 0 ? num_blocks : max_int64(num_blocks - num_shared, 0);
    }
    return holding;
}

/* What a waiting group takes when it is admitted. */
static struct holding demand_of(const struct scheduler *scheduler,
                                const struct sequence_group *group) {
    const struct serving_limits *limits = scheduler->config.kv.limits;
    return (struct holding){
        .num_slots = group->beams != NULL ? group->num_sequences : 1,
        .num_blocks =
            serving_limits_blocks_for(limits, sequence_group_leader(group)->num_tokens, 1),
    };
}

static struct holding holding_of_share(const struct scheduler *scheduler, int32_t share) {
    struct holding sum = {0};
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next) {
        if (g->request->share != share)
            continue;
        const struct holding holding = holding_of(scheduler, g);
        sum.num_slots += holding.num_slots;
        sum.num_blocks += holding.num_blocks;
    }
    return sum;
}

static double dominant(const struct scheduler *scheduler, const struct sequence_group *group,
                       const struct holding *holding) {
    const struct serving_limits *limits = scheduler->config.kv.limits;
    double part = fmax((double)holding->num_slots / limits->max_num_seqs,
                       (double)holding->num_blocks / limits->num_blocks);
    return part / scheduler->waiting.shares[group->request->share].weight;
}

/* The first of a share keeps what it has, so that the first of all, which never waits for another,
 * always advances. */
static bool is_first_of_share(const struct sequence_group *group) {
    const struct sequence_group *g = group->list_previous;
    while (g != NULL && g->request->share != group->request->share)
        g = g->list_previous;
    return g == NULL;
}

static bool is_paid_off(const struct sequence_group *group, int64_t least) {
    int64_t num_served = group->num_served - group->num_served_before;
    return num_served >= least && 2 * num_served >= group->num_served;
}

struct sequence_group *fair_preemption_victim(struct scheduler *scheduler,
                                              const struct sequence_group *next,
                                              bool lacks_blocks) {
    bool is_urgent = scheduler->waiting.shares[next->request->share].num_running == 0;
    bool is_free = is_urgent && !lacks_blocks && scheduler->config.kv.caching;
    struct holding wanted = holding_of_share(scheduler, next->request->share);
    const struct holding demand = demand_of(scheduler, next);
    wanted.num_slots += demand.num_slots;
    wanted.num_blocks += demand.num_blocks;
    double least = dominant(scheduler, next, &wanted), most = 0;
    struct sequence_group *victim = NULL;
    for (struct sequence_group *g = scheduler->running.last; g != NULL; g = g->list_previous) {
        if (g->request->share == next->request->share || is_first_of_share(g) ||
            g->swapped_in_this_step ||
            (!is_free && !is_paid_off(g, is_urgent ? 0 : LEAST_SERVED)) ||
            share_queue_is_due(&scheduler->waiting, g, next))
            continue;
        const struct holding all = holding_of_share(scheduler, g->request->share);
        const struct holding own = holding_of(scheduler, g);
        const struct holding left = {all.num_slots - own.num_slots,
                                     all.num_blocks - own.num_blocks};
        if (dominant(scheduler, g, &left) < least || dominant(scheduler, g, &all) <= most)
            continue;
        most = dominant(scheduler, g, &all);
        victim = g;
    }
    return victim;
}
