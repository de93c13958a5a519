/* A beam search comes in with all its lanes or not at all. A group of choices comes in with one, or
 * with as many as were swapped out, and is widened in its turn as seats and blocks become free: so
 * it never keeps the seats that are free from those behind it. That is its first CHOICES_IN_TURN
 * choices; of more it has lanes while nobody waits, and few of them when somebody does: what ends
 * then makes room for others. */
#include "engine/schedule/admission.h"

#include "engine/schedule/preemption.h"
#include "engine/schedule/prefix_reuse.h"

#define CHOICES_IN_TURN 16

static int32_t block_size(const struct scheduler *scheduler) {
    return scheduler->config.limits->block_size;
}

/* For the tokens it has, and the copy of a shared block it is about to write to. */
static int32_t missing_blocks(const struct scheduler *scheduler, const struct sequence *sequence) {
    int32_t needed = block_table_blocks_for(sequence->num_tokens, block_size(scheduler));
    int32_t missing = needed > sequence->table.num_blocks ? needed - sequence->table.num_blocks : 0;
    return missing +
           block_manager_needs_copy(&scheduler->blocks, &sequence->table, sequence->num_computed);
}

/* Lanes that the group has use for. */
static int32_t num_seats(const struct sequence_group *group) {
    return group->num_unfinished < group->max_running ? group->num_unfinished : group->max_running;
}

static int32_t num_seats_left(const struct scheduler *scheduler) {
    int32_t left = scheduler->config.limits->max_num_seqs;
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        left -= num_seats(g);
    return left;
}

/* For those that are to fork from a leader, with one block each to grow by. */
static int64_t blocks_for_followers(const struct scheduler *scheduler,
                                    const struct sequence_group *group, int32_t num_leaders) {
    int64_t blocks = 0;
    const struct sequence *leader = sequence_group_leader(group);
    int32_t left = num_seats(group) - num_leaders;
    int32_t num_shared = kv_demand_shared_blocks(group->request, scheduler->config.limits);
    for (int32_t i = 0; i < group->num_sequences && left > 0; i++) {
        const struct sequence *s = &group->sequences[i];
        if (s->status != SEQUENCE_WAITING || s == leader)
            continue;
        blocks += 1 + block_table_blocks_for(s->num_tokens, block_size(scheduler)) - num_shared;
        left--;
    }
    return blocks;
}

static int64_t promised_blocks(const struct scheduler *scheduler,
                               const struct sequence_group *group) {
    int32_t num_running = 0;
    int64_t blocks = 0;
    for (int32_t i = 0; i < group->num_sequences; i++) {
        if (group->sequences[i].status != SEQUENCE_RUNNING)
            continue;
        blocks += 1 + missing_blocks(scheduler, &group->sequences[i]);
        num_running++;
    }
    return blocks + blocks_for_followers(scheduler, group, num_running);
}

/* Free blocks that nobody seated will need for the tokens it has, less one for each to grow by. */
static int64_t unpromised_blocks(const struct scheduler *scheduler) {
    int64_t blocks = block_pool_num_free(&scheduler->blocks.pool);
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        blocks -= promised_blocks(scheduler, g);
    return blocks;
}

static int64_t needed_blocks(struct scheduler *scheduler, struct sequence_group *group) {
    if (group->is_swapped)
        return preempted_num_blocks(scheduler, group) +
               sequence_group_count(group, SEQUENCE_SWAPPED);
    return missing_blocks(scheduler, sequence_group_leader(group)) +
           blocks_for_followers(scheduler, group, 1);
}

/* With nobody seated the whole pool is free, and only what fits in it alone was let in. */
static bool has_room_for(struct scheduler *scheduler, struct sequence_group *group) {
    return scheduler->running.count == 0 ||
           (num_seats(group) <= num_seats_left(scheduler) &&
            needed_blocks(scheduler, group) <= unpromised_blocks(scheduler));
}

/* --- Coming in -------------------------------------------------------------------------------- */

static void narrow(struct sequence_group *group) {
    int32_t num_swapped = sequence_group_count(group, SEQUENCE_SWAPPED);
    if (group->beams == NULL)
        group->max_running = num_swapped > 0 ? num_swapped : 1;
}

/* What the cache has of the leader's tokens needs no further blocks. */
static bool bring_in(struct scheduler *scheduler, struct sequence_group *group) {
    narrow(group);
    if (group->is_swapped)
        return has_room_for(scheduler, group) && preempted_swap_in(scheduler, group);
    struct sequence *leader = sequence_group_leader(group);
    int32_t num_found = prefix_reuse_begin(scheduler, leader);
    if (!has_room_for(scheduler, group)) {
        prefix_reuse_undo(scheduler, leader);
        return false;
    }
    leader->status = SEQUENCE_RUNNING;
    prefix_reuse_count(scheduler, leader, num_found);
    return true;
}

static bool seat(struct scheduler *scheduler, struct sequence_group *group) {
    if (!bring_in(scheduler, group))
        return false;
    group_list_remove(&scheduler->waiting, group);
    group->status = GROUP_RUNNING;
    group_list_insert(&scheduler->running, group);
    return true;
}

static bool evict_stalled(struct scheduler *scheduler) {
    struct sequence_group *g = scheduler->running.last;
    while (g != NULL && (!g->stalled || g->swapped_in_this_step))
        g = g->list_previous;
    if (g == NULL)
        return false;
    preempt_group(scheduler, g);
    return true;
}

static struct sequence_group *first_that_can_run(const struct group_list *list) {
    struct sequence_group *g = list->first;
    while (g != NULL && g->stalled)
        g = g->list_next;
    return g;
}

static int32_t smaller(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* Lanes that the group may have while `next` waits; NULL: nobody. */
static int32_t lanes_beside(const struct scheduler *scheduler, const struct sequence_group *group,
                            const struct sequence_group *next) {
    if (next == NULL || group->request->priority < next->request->priority)
        return group->num_sequences;
    int32_t num_ended = group->num_sequences - group->num_unfinished;
    int32_t few = smaller(scheduler->config.limits->max_num_seqs / 2, CHOICES_IN_TURN);
    return larger(CHOICES_IN_TURN - num_ended, larger(few, 1));
}

/* What runs goes on to its end. */
static void narrow_beside(struct scheduler *scheduler, const struct sequence_group *next) {
    for (struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next) {
        int32_t most = lanes_beside(scheduler, g, next);
        if (g->beams == NULL && g->max_running > most)
            g->max_running = larger(sequence_group_count(g, SEQUENCE_RUNNING), most);
    }
}

static bool has_use_for_a_lane(const struct scheduler *scheduler,
                               const struct sequence_group *group) {
    return group->beams == NULL && !group->stalled && group->num_unfinished > group->max_running &&
           group->max_running < kv_demand_max_running(group->request, scheduler->config.limits);
}

static bool has_table_for_a_lane(struct sequence_group *group) {
    return group->num_tables > group->max_running || sequence_group_add_table(group) == 0;
}

/* As with a group that comes in, one that has the pool to itself fits. */
static void widen(struct scheduler *scheduler, struct sequence_group *group, int32_t most) {
    while (group->max_running < most && has_use_for_a_lane(scheduler, group) &&
           num_seats_left(scheduler) > 0 && has_table_for_a_lane(group)) {
        group->max_running++;
        if (scheduler->running.count == 1 || unpromised_blocks(scheduler) >= 0)
            continue;
        group->max_running--;
        return;
    }
}

/* Those that are served before `next`; NULL: all. */
static void widen_before(struct scheduler *scheduler, const struct sequence_group *next) {
    for (struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        if (next == NULL || sequence_group_before(g, next))
            widen(scheduler, g, lanes_beside(scheduler, g, next));
}

void admission_run(struct scheduler *scheduler) {
    struct sequence_group *g;
    do {
        g = first_that_can_run(&scheduler->waiting);
        narrow_beside(scheduler, g);
        widen_before(scheduler, g);
    } while (g != NULL && (seat(scheduler, g) || evict_stalled(scheduler)));
}
