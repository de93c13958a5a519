/* A beam search is admitted with all its beams or not at all. A group of choices is admitted with
 * one, or with as many as were swapped out, and widened in its turn as running slots and blocks
 * become free: so it never withholds free slots from those after it. That is its first
 * CHOICES_IN_TURN choices; of more it runs as many as there are slots for while nobody waits, and
 * few of them when somebody does: what ends then makes room for others.
 *
 * Preemption estimates which way is shorter: swapping moves every distinct block out and in again;
 * recomputation runs every token that is computed now through the model again, what the sequences
 * share only once. */
#include "config/base/check.h"
#include "config/base/numbers.h"
#include "config/base/log.h"
#include "engine/schedule/scheduler_private.h"

#define CHOICES_IN_TURN 16
#define HELD_UP_STEPS 16 /* for slots that end by themselves to become free */

/* --- Moving a group's blocks --- */

/* Fills scheduler->tables. */
static int32_t list_tables(struct scheduler *scheduler, struct sequence_group *group,
                           enum sequence_status status) {
    int32_t count = 0;
    for (int32_t i = 0; i < group->num_sequences; i++) {
        if (group->sequences[i].status != status)
            continue;
        CHECK(count < scheduler->config.kv.limits->max_num_seqs);
        scheduler->tables[count++] = &group->sequences[i].table;
    }
    return count;
}

static void set_status(struct sequence_group *group, enum sequence_status from,
                       enum sequence_status to) {
    for (int32_t i = 0; i < group->num_sequences; i++)
        if (group->sequences[i].status == from)
            group->sequences[i].status = to;
}

static double recompute_ns(const struct scheduler *scheduler, const struct sequence_group *group) {
    int64_t num_tokens = 0;
    const struct sequence *first = NULL;
    for (int32_t i = 0; i < group->num_sequences; i++) {
        const struct sequence *s = &group->sequences[i];
        if (s->status != SEQUENCE_RUNNING)
            continue;
        int32_t shared = first == NULL ? 0 : sequence_common_tokens(first, s);
        num_tokens += s->num_computed > shared ? s->num_computed - shared : 0;
        first = first == NULL ? s : first;
    }
    return (double)num_tokens * scheduler->token_ns;
}

static bool swap_out(struct scheduler *scheduler, struct sequence_group *group) {
    struct block_table **tables = scheduler->tables;
    int32_t num_tables = list_tables(scheduler, group, SEQUENCE_RUNNING);
    int32_t num_blocks = block_manager_count_distinct(&scheduler->blocks, tables, num_tables);
    double swap = 2.0 * num_blocks * (double)scheduler->config.swap_block_ns;
    double recompute = recompute_ns(scheduler, group);
    bool swaps = num_blocks > 0 && swap <= recompute &&
                 block_manager_swap_out(&scheduler->blocks, tables, num_tables);
    log_debug("request %llu: preempted, %d blocks %s (swapping estimated at %.3f ms, recomputation "
              "at %.3f ms, %d of %d host blocks free)",
              (unsigned long long)group->request->id, num_blocks,
              swaps ? "swapped out" : "to be recomputed", swap * 1e-6, recompute * 1e-6,
              block_pool_num_free(&scheduler->blocks.host),
              scheduler->config.kv.limits->num_host_blocks);
    if (swaps)
        set_status(group, SEQUENCE_RUNNING, SEQUENCE_SWAPPED);
    return swaps;
}

/* Returns false when there are not enough free blocks. */
static bool swap_in(struct scheduler *scheduler, struct sequence_group *group) {
    struct block_table **tables = scheduler->tables;
    int32_t num_tables = list_tables(scheduler, group, SEQUENCE_SWAPPED);
    if (!block_manager_swap_in(&scheduler->blocks, tables, num_tables))
        return false;
    set_status(group, SEQUENCE_SWAPPED, SEQUENCE_RUNNING);
    group->is_swapped = false;
    group->swapped_in_this_step = true;
    return true;
}

static void drop_blocks(struct scheduler *scheduler, struct sequence_group *group) {
    for (int32_t i = 0; i < group->num_sequences; i++) {
        struct sequence *s = &group->sequences[i];
        if (s->status != SEQUENCE_RUNNING)
            continue;
        block_manager_release(&scheduler->blocks, &s->table);
        s->num_computed = 0;
    }
    set_status(group, SEQUENCE_RUNNING, SEQUENCE_WAITING);
}

void admission_leave(struct scheduler *scheduler, struct sequence_group *group) {
    group_list_remove(&scheduler->running, group);
    share_queue_stop(&scheduler->waiting, group);
}

/* Takes slots and blocks away; the group is then to be added to those that wait. */
static void stop_running(struct scheduler *scheduler, struct sequence_group *group) {
    struct step_plan *plan = scheduler->plan;
    CHECK(group->status == GROUP_RUNNING && !group->swapped_in_this_step);
    CHECK(group->num_in_flight == 0);
    for (int32_t i = 0; i < group->num_sequences; i++) {
        struct sequence *s = &group->sequences[i];
        s->is_of_next_step = false;
        if (s->num_scheduled_tokens == 0)
            continue;
        plan->num_tokens -= s->num_scheduled_tokens;
        s->num_scheduled_tokens = 0;
        block_manager_trim(&scheduler->blocks, &s->table, s->num_computed);
    }
    group->is_swapped = swap_out(scheduler, group);
    if (!group->is_swapped)
        drop_blocks(scheduler, group);
    *(group->is_swapped ? &plan->num_swapped_out : &plan->num_dropped) += 1;
    *(group->is_swapped ? &scheduler->num_swaps : &scheduler->num_recomputes) += 1;
    admission_leave(scheduler, group);
    group->preempted_in_plan = scheduler->num_plans;
    group->status = GROUP_WAITING;
}

void admission_preempt(struct scheduler *scheduler, struct sequence_group *group) {
    stop_running(scheduler, group);
    share_queue_return(&scheduler->waiting, group);
}

void admission_clear(struct scheduler *scheduler) {
    struct sequence_group *group = scheduler->running.first, *next;
    for (; group != NULL; group = next) {
        next = group->list_next;
        if (group != scheduler->alone)
            admission_preempt(scheduler, group);
    }
}

void admission_forget(struct scheduler *scheduler, struct sequence_group *group) {
    for (int32_t i = 0; i < group->num_sequences; i++)
        if (group->sequences[i].status == SEQUENCE_SWAPPED)
            group->sequences[i].status = SEQUENCE_RUNNING;
    drop_blocks(scheduler, group);
    group->is_swapped = false;
    if (group->status != GROUP_RUNNING)
        return;
    admission_leave(scheduler, group);
    group->status = GROUP_WAITING;
    share_queue_return(&scheduler->waiting, group);
}

/* --- Room --- */

/* Returns how many running slots the group has use for. */
static int32_t num_slots(const struct sequence_group *group) {
    return min_int32(group->num_unfinished, group->max_running);
}

static int32_t num_free_slots(const struct scheduler *scheduler) {
    int32_t left = scheduler->config.kv.limits->max_num_seqs;
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        left -= num_slots(g);
    return left;
}

static int64_t blocks_for(const struct scheduler *scheduler, int32_t num_tokens) {
    const struct serving_limits *limits = scheduler->config.kv.limits;
    return serving_limits_blocks_for(limits, num_tokens, limits->max_num_batched_tokens);
}

/* Counts for the tokens it has, and the copies of shared blocks it is about to write to. */
static int64_t missing_blocks(const struct scheduler *scheduler, const struct sequence *sequence) {
    const struct serving_limits *limits = scheduler->config.kv.limits;
    const struct block_table *table = &sequence->table;
    int32_t num_tokens = sequence_num_tokens_ahead(sequence);
    int32_t begin =
        max_int32(sequence_num_computed_ahead(sequence), table->num_awaited * limits->block_size);
    int32_t missing =
        max_int32(blocks_for_tokens(num_tokens, limits->block_size) - table->num_blocks, 0);
    int32_t seen = serving_limits_window_blocks(
        limits, min_int32(num_tokens - begin, limits->max_num_batched_tokens));
    seen = max_int32(seen - (table->num_blocks - table->num_dropped), 0);
    return (int64_t)missing * limits->num_full_groups +
           (int64_t)min_int32(missing, seen) * (table->num_groups - limits->num_full_groups) +
           block_manager_num_copies(&scheduler->blocks, table, begin);
}

/* Returns how many blocks are kept for each running sequence to grow by. */
static int32_t blocks_to_grow(const struct scheduler *scheduler) {
    return serving_limits_groups(scheduler->config.kv.limits);
}

/* Counts for those that are to fork from a leader, with blocks for each to grow by. */
static int64_t blocks_of_forks(const struct scheduler *scheduler,
                               const struct sequence_group *group, int32_t num_leaders) {
    const struct serving_limits *limits = scheduler->config.kv.limits;
    const struct sequence *leader = sequence_group_leader(group);
    int32_t left = num_slots(group) - num_leaders;
    int32_t num_shared = kv_demand_shared_blocks(group->request, limits);
    int64_t blocks = 0;
    for (int32_t i = 0; i < group->num_sequences && left > 0; i++) {
        const struct sequence *s = &group->sequences[i];
        if (s->status != SEQUENCE_WAITING || s == leader)
            continue;
        blocks += blocks_to_grow(scheduler) + blocks_for(scheduler, s->num_tokens) - num_shared;
        left--;
    }
    return blocks;
}

/* Counts for what a running group has pending, with blocks for each sequence to grow by. */
static int64_t reserved_blocks(const struct scheduler *scheduler,
                               const struct sequence_group *group) {
    int32_t num_running = 0;
    int64_t blocks = 0;
    for (int32_t i = 0; i < group->num_sequences; i++) {
        if (group->sequences[i].status != SEQUENCE_RUNNING)
            continue;
        blocks += blocks_to_grow(scheduler) + missing_blocks(scheduler, &group->sequences[i]);
        num_running++;
    }
    return blocks + blocks_of_forks(scheduler, group, num_running);
}

static int64_t unreserved_blocks(const struct scheduler *scheduler) {
    int64_t blocks = block_pool_num_free(&scheduler->blocks.pool);
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        blocks -= reserved_blocks(scheduler, g);
    return blocks;
}

static int64_t needed_blocks(struct scheduler *scheduler, struct sequence_group *group) {
    if (!group->is_swapped)
        return missing_blocks(scheduler, sequence_group_leader(group)) +
               blocks_of_forks(scheduler, group, 1);
    int32_t num_tables = list_tables(scheduler, group, SEQUENCE_SWAPPED);
    return block_manager_count_distinct(&scheduler->blocks, scheduler->tables, num_tables) +
           (int64_t)num_tables * blocks_to_grow(scheduler);
}

/* While nobody runs the whole pool is free, but for what steps in flight still hold, and only what
 * fits in it alone was accepted. */
static bool has_room_for(struct scheduler *scheduler, struct sequence_group *group) {
    return scheduler->running.count == 0 ||
           (num_slots(group) <= num_free_slots(scheduler) &&
            needed_blocks(scheduler, group) <= unreserved_blocks(scheduler));
}

/* --- Admission --- */

/* Blocks that the cache has of the leader's tokens are not needed once more. */
static bool start_leader(struct scheduler *scheduler, struct sequence_group *group) {
    struct sequence *leader = sequence_group_leader(group);
    int32_t num_found = prefix_match(scheduler, leader);
    if (!has_room_for(scheduler, group)) {
        prefix_match_rollback(scheduler, leader);
        return false;
    }
    leader->status = SEQUENCE_RUNNING;
    prefix_match_commit(scheduler, leader, num_found);
    return true;
}

static bool admit(struct scheduler *scheduler, struct sequence_group *group) {
    int32_t num_swapped = sequence_group_count(group, SEQUENCE_SWAPPED);
    if (group->beams == NULL)
        group->max_running = max_int32(num_swapped, 1);
    bool admitted = group->is_swapped ? has_room_for(scheduler, group) && swap_in(scheduler, group)
                                      : start_leader(scheduler, group);
    if (!admitted)
        return false;
    for (int32_t i = 0; i < group->num_sequences; i++)
        group->sequences[i].waits_for_prefix = false; /* as it did before it was preempted */
    const struct sequence *leader = sequence_group_leader(group);
    share_queue_admit(&scheduler->waiting, group, leader->num_tokens - leader->num_computed,
                      group->beams != NULL ? group->num_sequences
                                           : min_int32(group->num_sequences, CHOICES_IN_TURN));
    group->status = GROUP_RUNNING;
    share_queue_insert_running(&scheduler->running, group);
    log_debug("request %llu: admitted, %d of its %d tokens are there",
              (unsigned long long)group->request->id, leader->num_computed, leader->num_tokens);
    return true;
}

/* One that is stalled takes part in no further step: it is in flight for one more at most. */
static bool preempt_stalled(struct scheduler *scheduler) {
    struct sequence_group *g = scheduler->running.last;
    while (g != NULL && (!g->stalled || g->swapped_in_this_step))
        g = g->list_previous;
    if (g == NULL || g->num_in_flight > 0)
        return false;
    admission_preempt(scheduler, g);
    return true;
}

/* Returns whether the group has waited at the head of the queue for some steps; one whose share
 * runs nothing need not. */
static bool is_held_up(struct scheduler *scheduler, const struct sequence_group *next) {
    if (scheduler->waiting.shares[next->request->share].num_running == 0)
        return true;
    if (scheduler->held_up_id != next->request->id)
        scheduler->num_held_up_steps = 0;
    scheduler->held_up_id = next->request->id;
    return scheduler->num_held_up_steps++ >= HELD_UP_STEPS;
}

static bool preempt_for_fairness(struct scheduler *scheduler, struct sequence_group *next) {
    if (!is_held_up(scheduler, next))
        return false;
    bool lacks_blocks = needed_blocks(scheduler, next) > unreserved_blocks(scheduler);
    struct sequence_group *victim = fair_preemption_victim(scheduler, next, lacks_blocks);
    if (victim == NULL) {
        if (scheduler->held_up_id == next->request->id)
            scheduler->num_held_up_steps = 0;
        return false;
    }
    if (victim->num_in_flight > 0) {
        scheduler->must_collect = true;
        return false;
    }
    stop_running(scheduler, victim);
    share_queue_yield(&scheduler->waiting, victim);
    return true;
}

/* --- Choices of one group --- */

/* Returns how many of the group may run while `next` waits; NULL: nobody waits. Beyond the first
 * ones each choice is a turn of its share. */
static int32_t max_running_beside(const struct scheduler *scheduler,
                                  const struct sequence_group *group,
                                  const struct sequence_group *next) {
    bool is_own = next == NULL || next->request->share == group->request->share;
    if (next == NULL || (is_own && group->request->priority < next->request->priority))
        return group->num_sequences;
    int32_t num_ended = group->num_sequences - group->num_unfinished;
    int32_t few = min_int32(scheduler->config.kv.limits->max_num_seqs / 2, CHOICES_IN_TURN);
    if (!is_own && !share_queue_is_due(&scheduler->waiting, group, next))
        few = 1;
    return max_int32(CHOICES_IN_TURN - num_ended, max_int32(few, 1));
}

/* Lowers the limits; what runs already continues to its end. */
static void narrow_groups(struct scheduler *scheduler, const struct sequence_group *next) {
    for (struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next) {
        int32_t most = max_running_beside(scheduler, g, next);
        if (g->beams == NULL && g->max_running > most)
            g->max_running =
                max_int32(sequence_group_count(g, SEQUENCE_RUNNING) + g->num_forking, most);
    }
}

/* Choices, which end one by one, leave a slot for whoever comes, where others came lately. */
static bool can_widen(const struct scheduler *scheduler, const struct sequence_group *group) {
    int32_t num_kept = scheduler->num_plans < scheduler->shared_until;
    return group->beams == NULL && !group->stalled && group->num_unfinished > group->max_running &&
           group->max_running <
               kv_demand_max_running(group->request, scheduler->config.kv.limits) &&
           num_free_slots(scheduler) > num_kept;
}

static bool has_table_for_one_more(struct sequence_group *group) {
    return group->num_tables > group->max_running || sequence_group_add_table(group) == 0;
}

/* Raises the limit; as with a group that is admitted, one that has the pool to itself fits. */
static void widen(struct scheduler *scheduler, struct sequence_group *group, int32_t most) {
    while (group->max_running < most && can_widen(scheduler, group) &&
           has_table_for_one_more(group)) {
        group->max_running++;
        if (scheduler->running.count == 1 || unreserved_blocks(scheduler) >= 0)
            continue;
        group->max_running--;
        return;
    }
}

/* Widens the groups that are served before `next`; NULL: all. */
static void widen_groups(struct scheduler *scheduler, const struct sequence_group *next) {
    for (struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        if (next == NULL || sequence_group_before(g, next))
            widen(scheduler, g, max_running_beside(scheduler, g, next));
}

static void run_alone(struct scheduler *scheduler, struct sequence_group *group) {
    if (group->status == GROUP_WAITING)
        admit(scheduler, group);
    if (group->status == GROUP_RUNNING)
        widen(scheduler, group, group->num_sequences);
}

/* Returns whether the group runs now, or somebody has made room. Whose blocks this step moves does
 * not take them back in it. */
static bool take_in(struct scheduler *scheduler, struct sequence_group *next) {
    if (next->preempted_in_plan == scheduler->num_plans)
        return false;
    return admit(scheduler, next) || preempt_stalled(scheduler) ||
           preempt_for_fairness(scheduler, next);
}

void admission_run(struct scheduler *scheduler) {
    struct sequence_group *next;
    if (scheduler->alone != NULL) {
        run_alone(scheduler, scheduler->alone);
        return;
    }
    do {
        next = share_queue_first(&scheduler->waiting);
        narrow_groups(scheduler, next);
        widen_groups(scheduler, next);
    } while (next != NULL && (take_in(scheduler, next) ||
                              ((next = share_queue_first_idle(&scheduler->waiting, next)) != NULL &&
                               take_in(scheduler, next))));
}
