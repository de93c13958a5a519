#include "engine/schedule/scheduler.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/schedule/scheduler_private.h"

#include <stdlib.h>
#include <string.h>

#define SHARED_PLANS 1024 /* for which several shares are expected after two came */

static int32_t num_shares(const struct scheduler_config *config) {
    return max_int32(config->num_shares, 1);
}

size_t scheduler_bytes(const struct scheduler_config *config) {
    return block_manager_bytes(&config->kv) + share_queue_bytes(num_shares(config)) +
           (size_t)config->kv.limits->max_num_seqs * sizeof(struct block_table *);
}

int scheduler_init(struct scheduler *scheduler, const struct scheduler_config *config) {
    const struct serving_limits *limits = config->kv.limits;
    CHECK(limits->max_num_seqs >= 1 && limits->block_size >= 1);
    CHECK(limits->max_num_batched_tokens >= limits->max_num_seqs);
    struct scheduler made = {.config = *config, .last_share = -1};
    made.config.kv.drafts_ahead = config->has_mtp;
    made.tables = calloc((size_t)limits->max_num_seqs, sizeof(struct block_table *));
    if (made.tables == NULL || share_queue_init(&made.waiting, num_shares(config)) != 0 ||
        block_manager_init(&made.blocks, &made.config.kv) != 0) {
        share_queue_finish(&made.waiting);
        free(made.tables);
        return -1;
    }
    *scheduler = made;
    return 0;
}

void scheduler_finish(struct scheduler *scheduler) {
    CHECK(scheduler->waiting.count == 0 && scheduler->running.count == 0);
    block_manager_finish(&scheduler->blocks);
    share_queue_finish(&scheduler->waiting);
    free(scheduler->tables);
    memset(scheduler, 0, sizeof(*scheduler));
}

bool scheduler_renew(struct scheduler *scheduler) {
    struct scheduler made;
    if (scheduler->waiting.count > 0 || scheduler->running.count > 0 ||
        block_manager_has_moves(&scheduler->blocks) ||
        scheduler_init(&made, &scheduler->config) != 0)
        return false;
    made.num_plans = scheduler->num_plans;
    made.num_walks = scheduler->num_walks;
    made.num_queried_tokens = scheduler->num_queried_tokens;
    made.num_hit_tokens = scheduler->num_hit_tokens;
    made.num_swaps = scheduler->num_swaps;
    made.num_recomputes = scheduler->num_recomputes;
    made.blocks.num_copied_blocks = scheduler->blocks.num_copied_blocks;
    made.blocks.num_swapped_out_blocks = scheduler->blocks.num_swapped_out_blocks;
    made.blocks.num_swapped_in_blocks = scheduler->blocks.num_swapped_in_blocks;
    made.blocks.tiers.num_kept = scheduler->blocks.tiers.num_kept;
    made.blocks.tiers.num_evicted = scheduler->blocks.tiers.num_evicted;
    made.blocks.tiers.num_promoted = scheduler->blocks.tiers.num_promoted;
    scheduler_finish(scheduler);
    *scheduler = made;
    return true;
}

void scheduler_add(struct scheduler *scheduler, struct sequence_group *group) {
    CHECK(group->status == GROUP_NEW);
    group->max_running = kv_demand_max_running(group->request, scheduler->config.kv.limits);
    CHECK(group->max_running >= 1);
    group->status = GROUP_WAITING;
    if (scheduler->last_share >= 0 && scheduler->last_share != group->request->share)
        scheduler->shared_until = scheduler->num_plans + SHARED_PLANS;
    scheduler->last_share = group->request->share;
    share_queue_add(&scheduler->waiting, group);
}

void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence) {
    struct sequence_group *group = sequence->group;
    CHECK(sequence->status != SEQUENCE_FINISHED);
    block_manager_release(&scheduler->blocks, &sequence->table);
    sequence->status = SEQUENCE_FINISHED;
    sequence_group_note_finished(group, sequence);
    if (group->status != GROUP_NEW && sequence_num_generated(sequence) > 0)
        share_queue_note_output(&scheduler->waiting, group, sequence_num_generated(sequence));
    if (group->num_unfinished > 0)
        return;
    if (group->status == GROUP_WAITING)
        share_queue_remove(&scheduler->waiting, group);
    else if (group->status == GROUP_RUNNING)
        admission_leave(scheduler, group);
    share_queue_settle(&scheduler->waiting, group);
    group->status = GROUP_ENDED;
}

/* --- Computed tokens --- */

/* Returns whether the sequence still has the blocks that a token after the first num_tokens
 * sees. */
static bool holds_window(const struct scheduler *scheduler, const struct sequence *sequence,
                         int32_t num_tokens) {
    const struct serving_limits *limits = scheduler->config.kv.limits;
    int32_t num_dropped = sequence->table.num_dropped;
    return num_dropped == 0 || num_dropped * limits->block_size <= num_tokens - limits->window + 1;
}

void scheduler_fork(struct scheduler *scheduler, const struct sequence *from, struct sequence *to,
                    int32_t num_tokens) {
    CHECK(from->status != SEQUENCE_FINISHED && to->status != SEQUENCE_FINISHED);
    CHECK(from->in_flight.num_tokens == 0 && to->in_flight.num_tokens == 0);
    block_manager_release(&scheduler->blocks, &to->table);
    bool shares = from->status == SEQUENCE_RUNNING && holds_window(scheduler, from, num_tokens);
    to->num_computed = shares ? num_tokens : 0;
    to->status = from->status == SEQUENCE_RUNNING ? SEQUENCE_RUNNING : SEQUENCE_WAITING;
    if (shares)
        block_manager_fork(&scheduler->blocks, &from->table, &to->table, num_tokens);
    if (to->num_computed > to->max_computed)
        to->max_computed = to->num_computed;
}

void scheduler_idle(struct scheduler *scheduler, struct sequence *sequence) {
    CHECK(sequence->status != SEQUENCE_FINISHED && sequence->in_flight.num_tokens == 0);
    block_manager_release(&scheduler->blocks, &sequence->table);
    sequence->status = SEQUENCE_WAITING;
    sequence->num_computed = 0;
}

void scheduler_flush_cache(struct scheduler *scheduler) {
    block_manager_flush_cache(&scheduler->blocks);
}

void scheduler_restart(struct scheduler *scheduler) {
    while (scheduler->running.first != NULL) {
        admission_forget(scheduler, scheduler->running.first);
        scheduler->num_recomputes++;
    }
    struct sequence_group *group = NULL;
    while ((group = share_queue_next(&scheduler->waiting, group)) != NULL)
        if (group->is_swapped)
            admission_forget(scheduler, group);
    block_manager_lose_contents(&scheduler->blocks);
}

void scheduler_run_alone(struct scheduler *scheduler, struct sequence_group *group) {
    scheduler->alone = group;
}

void scheduler_submit(struct scheduler *scheduler, const struct step_plan *plan) {
    for (int32_t i = 0; i < plan->num_entries; i++) {
        const struct planned_sequence *entry = &plan->entries[i];
        struct sequence *sequence = entry->sequence;
        struct sequence_in_flight *in_flight = &sequence->in_flight;
        CHECK(sequence->num_scheduled_tokens == entry->num_tokens);
        sequence->num_scheduled_tokens = 0;
        in_flight->num_tokens += entry->num_tokens;
        in_flight->num_drafts += entry->num_drafts;
        in_flight->num_samples += entry->samples;
        in_flight->sample_row = entry->first_row + entry->num_scores;
        sequence->group->num_forking += entry->num_forks;
        scheduler->tables[i] = &sequence->table;
    }
    block_manager_submit(&scheduler->blocks, scheduler->tables, plan->num_entries);
}

void scheduler_collect(struct scheduler *scheduler) {
    block_manager_collect(&scheduler->blocks);
}

/* The last tokens that are computed may not be known yet: drafts that were accepted. */
void scheduler_publish(struct scheduler *scheduler, struct sequence *sequence) {
    const struct token_view tokens = sequence_tokens(sequence);
    block_manager_publish(&scheduler->blocks, &sequence->table, &tokens,
                          min_int32(sequence->num_computed, sequence->num_tokens));
}

void scheduler_discard(struct scheduler *scheduler, const struct planned_sequence *entry) {
    struct sequence *sequence = entry->sequence;
    sequence->in_flight.num_tokens -= entry->num_tokens;
    sequence->in_flight.num_drafts -= entry->num_drafts;
    sequence->in_flight.num_samples -= entry->samples;
    sequence->group->num_forking -= entry->num_forks;
}

void scheduler_commit(struct scheduler *scheduler, const struct planned_sequence *entry,
                      int32_t num_accepted) {
    struct sequence *sequence = entry->sequence;
    CHECK(num_accepted >= -1 && num_accepted <= entry->num_drafts);
    int32_t num_known = sequence->max_computed;
    scheduler_discard(scheduler, entry);
    CHECK(sequence->status == SEQUENCE_RUNNING && sequence->num_computed == entry->begin);
    sequence->num_computed += entry->num_tokens - entry->num_drafts + num_accepted;
    sequence->max_computed = max_int32(num_known, sequence->num_computed);
    share_queue_charge(&scheduler->waiting, sequence->group, sequence->max_computed - num_known);
    CHECK(num_accepted >= 0 || sequence->in_flight.num_tokens == 0);
    if (num_accepted < entry->num_drafts)
        block_manager_trim(&scheduler->blocks, &sequence->table, sequence->num_computed);
    scheduler_publish(scheduler, sequence);
    scheduler_release_window(scheduler, sequence);
}
