/* The estimate: swapping moves every distinct block out and in again; recomputation runs every
 * token that is computed now through the model again, what the sequences share only once. */
#include "engine/schedule/preemption.h"

#include "config/base/check.h"
#include "config/log.h"

/* Fills scheduler->tables. */
static int32_t list_tables(struct scheduler *scheduler, struct sequence_group *group,
                           enum sequence_status status) {
    int32_t count = 0;
    for (int32_t i = 0; i < group->num_sequences; i++) {
        if (group->sequences[i].status != status)
            continue;
        CHECK(count < scheduler->config.limits->max_num_seqs);
        scheduler->tables[count++] = &group->sequences[i].table;
    }
    return count;
}

static double swap_ns(const struct scheduler *scheduler, int32_t num_blocks) {
    return 2.0 * num_blocks * (double)scheduler->config.swap_block_ns;
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

static void set_status(struct sequence_group *group, enum sequence_status from,
                       enum sequence_status to) {
    for (int32_t i = 0; i < group->num_sequences; i++)
        if (group->sequences[i].status == from)
            group->sequences[i].status = to;
}

static bool swap_out(struct scheduler *scheduler, struct sequence_group *group) {
    struct block_table **tables = scheduler->tables;
    int32_t num_tables = list_tables(scheduler, group, SEQUENCE_RUNNING);
    int32_t num_blocks = block_manager_count_distinct(&scheduler->blocks, tables, num_tables);
    double swap = swap_ns(scheduler, num_blocks), recompute = recompute_ns(scheduler, group);
    bool swaps = num_blocks > 0 && swap <= recompute &&
                 block_manager_swap_out(&scheduler->blocks, tables, num_tables);
    log_debug("preempted request %llu, %d blocks: %s (swapping estimated at %.3f ms, recomputation "
              "at %.3f ms, %d of %d host blocks free)",
              (unsigned long long)group->request->id, num_blocks,
              swaps ? "swapped out" : "to be recomputed", swap * 1e-6, recompute * 1e-6,
              block_pool_num_free(&scheduler->blocks.host),
              scheduler->config.limits->num_host_blocks);
    if (swaps)
        set_status(group, SEQUENCE_RUNNING, SEQUENCE_SWAPPED);
    return swaps;
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

/* What was planned for it in this step. */
static void take_back_grant(struct scheduler *scheduler, struct sequence *sequence) {
    if (sequence->num_scheduled_tokens == 0)
        return;
    scheduler->plan.num_tokens -= sequence->num_scheduled_tokens;
    sequence->num_scheduled_tokens = 0;
    block_manager_trim(&scheduler->blocks, &sequence->table, sequence->num_computed);
}

void preempt_group(struct scheduler *scheduler, struct sequence_group *group) {
    struct step_plan *plan = &scheduler->plan;
    CHECK(group->status == GROUP_RUNNING && !group->swapped_in_this_step);
    for (int32_t i = 0; i < group->num_sequences; i++)
        take_back_grant(scheduler, &group->sequences[i]);
    group->is_swapped = swap_out(scheduler, group);
    if (!group->is_swapped)
        drop_blocks(scheduler, group);
    *(group->is_swapped ? &plan->num_swapped_out : &plan->num_dropped) += 1;
    *(group->is_swapped ? &scheduler->num_swaps : &scheduler->num_recomputes) += 1;
    group_list_remove(&scheduler->running, group);
    group->status = GROUP_WAITING;
    group_list_insert(&scheduler->waiting, group);
}

int32_t preempted_num_blocks(struct scheduler *scheduler, struct sequence_group *group) {
    struct block_table **tables = scheduler->tables;
    int32_t num_tables = list_tables(scheduler, group, SEQUENCE_SWAPPED);
    return block_manager_count_distinct(&scheduler->blocks, tables, num_tables);
}

bool preempted_swap_in(struct scheduler *scheduler, struct sequence_group *group) {
    struct block_table **tables = scheduler->tables;
    int32_t num_tables = list_tables(scheduler, group, SEQUENCE_SWAPPED);
    if (!block_manager_swap_in(&scheduler->blocks, tables, num_tables))
        return false;
    set_status(group, SEQUENCE_SWAPPED, SEQUENCE_RUNNING);
    group->is_swapped = false;
    group->swapped_in_this_step = true;
    return true;
}
