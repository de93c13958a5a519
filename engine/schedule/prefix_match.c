#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/schedule/scheduler_private.h"

#define UNKNOWN_COMPUTE_NS 1e9 /* while no step was measured */
/* What another server has computed for this one is read even if that takes longer, up to this many
 * times: computing it here delays those that decode. */
#define HANDED_OVER_FACTOR 8

static int32_t find(struct scheduler *scheduler, struct sequence *sequence) {
    const struct token_view tokens = sequence_tokens(sequence);
    int32_t num_found = block_manager_match(&scheduler->blocks, &sequence->table, &tokens,
                                            sequence_group_reusable(sequence));
    if (num_found > 0) {
        sequence->num_computed += num_found;
        scheduler_release_window(scheduler, sequence);
    }
    return num_found;
}

/* Hits are tokens that nobody computed for the group before; it may have lost them again. A choice
 * that starts late finds the prompt once more, but for what choice 0 computed. */
static void count_hits(struct scheduler *scheduler, struct sequence *sequence, int32_t from) {
    int32_t end = sequence->num_computed, num_prompt = sequence_num_prompt(sequence);
    int32_t known = from > sequence->max_computed ? from : sequence->max_computed;
    if (end <= known)
        return;
    sequence->max_computed = end;
    if (sequence->choice > 0)
        return;
    scheduler->num_hit_tokens += (uint64_t)(end - known);
    if (end > num_prompt)
        end = num_prompt;
    if (end > known)
        sequence->group->num_cached_tokens += end - known;
}

/* Returns whether to read blocks instead of computing the sequence's tokens from `begin` on: it
 * takes less time, but for what was handed over. */
static bool reading_pays(const struct scheduler *scheduler, const struct sequence *sequence,
                         int32_t num_reads, int32_t begin, int32_t num_tokens) {
    double factor = sequence->table.num_expected > 0 ? HANDED_OVER_FACTOR : 1;
    struct step_work work = {0};
    step_work_add(&work, &(struct step_chunk){
                             .begin = begin,
                             .num_tokens = num_tokens,
                             .window = serving_limits_longest_window(scheduler->config.kv.limits)});
    double compute_ns = step_cost_careful_ns(&scheduler->step_cost, &work);
    double read_ns = (double)block_manager_reads_ns(&scheduler->blocks, num_reads) +
                     num_reads * (double)scheduler->config.swap_block_ns;
    return read_ns <=
           factor * (scheduler->step_cost.num_steps > 0 ? compute_ns : UNKNOWN_COMPUTE_NS);
}

/* Has the sequence await what only the store has, if that pays. */
static void await_stored(struct scheduler *scheduler, struct sequence *sequence) {
    const struct token_view tokens = sequence_tokens(sequence);
    int32_t limit = sequence_group_reusable(sequence), num_reads;
    int32_t num_tokens =
        block_manager_find_stored(&scheduler->blocks, &sequence->table, &tokens, limit, &num_reads);
    if (num_tokens == 0)
        return;
    if (reading_pays(scheduler, sequence, num_reads, sequence->num_computed, num_tokens))
        block_manager_await(&scheduler->blocks, &sequence->table, &tokens, limit);
    else
        block_manager_note_unread(&scheduler->blocks);
}

int32_t prefix_match(struct scheduler *scheduler, struct sequence *sequence) {
    CHECK(sequence->num_computed == 0);
    int32_t num_found = find(scheduler, sequence);
    await_stored(scheduler, sequence);
    return num_found;
}

/* As if the store had all of it: reading what is not there costs nothing. */
void prefix_match_read_ahead(struct scheduler *scheduler) {
    const struct sequence_group *group = share_queue_first(&scheduler->waiting);
    struct read_ahead *ahead = &scheduler->read_ahead;
    if (group == NULL || group->is_swapped || scheduler->config.kv.store == NULL)
        return;
    const struct sequence *leader = sequence_group_leader(group);
    const struct serving_limits *limits = scheduler->config.kv.limits;
    int32_t limit = sequence_group_reusable(leader);
    if (ahead->owner != group->request->id)
        *ahead = (struct read_ahead){.owner = group->request->id};
    if (ahead->is_done || leader->table.num_blocks > 0 || limit < limits->block_size)
        return;
    int32_t num_reads = limit / limits->block_size * max_int32(limits->num_full_groups, 1);
    if (!reading_pays(scheduler, leader, num_reads, 0, limit))
        return;
    const struct token_view tokens = sequence_tokens(leader);
    block_manager_read_ahead(&scheduler->blocks, &leader->table, &tokens, limit, ahead);
}

/* Returns whether what the sequence still awaits takes longer than to compute it: the store may
 * have become slower. */
static bool gives_up(const struct scheduler *scheduler, const struct sequence *sequence) {
    const struct block_table *table = &sequence->table;
    int32_t block_size = scheduler->config.kv.limits->block_size;
    int32_t kept = table->num_dropped == 0 ? table->num_keyed * block_size : 0;
    int32_t num_tokens = table->num_awaited * block_size - kept;
    return !reading_pays(scheduler, sequence, block_manager_num_awaited(&scheduler->blocks, table),
                         kept, num_tokens);
}

void prefix_match_load(struct scheduler *scheduler, struct sequence *sequence) {
    const struct token_view tokens = sequence_tokens(sequence);
    int32_t before = sequence->num_computed;
    enum block_load load = block_manager_load(&scheduler->blocks, &sequence->table, &tokens,
                                              gives_up(scheduler, sequence));
    if (load == BLOCKS_COMING)
        return;
    sequence->num_computed = sequence->table.num_blocks * scheduler->config.kv.limits->block_size;
    if (load == BLOCKS_LOST)
        find(scheduler, sequence);
    else
        scheduler_release_window(scheduler, sequence);
    count_hits(scheduler, sequence, before);
}

void prefix_match_commit(struct scheduler *scheduler, struct sequence *sequence,
                         int32_t num_found) {
    if (!sequence->group->started)
        scheduler->num_queried_tokens += (uint64_t)sequence_group_reusable(sequence);
    if (num_found > 0)
        count_hits(scheduler, sequence, 0);
}

void prefix_match_rollback(struct scheduler *scheduler, struct sequence *sequence) {
    block_manager_release(&scheduler->blocks, &sequence->table);
    sequence->num_computed = 0;
}

void prefix_match_extend(struct scheduler *scheduler, struct sequence *sequence) {
    int32_t before = sequence->num_computed;
    int32_t covered = sequence->table.num_blocks * scheduler->config.kv.limits->block_size;
    if (before == covered && sequence->in_flight.num_tokens == 0 &&
        sequence_num_pending(sequence) > 1 && find(scheduler, sequence) > 0)
        count_hits(scheduler, sequence, before);
}

/* The first comparisons only spare the others. */
bool prefix_match_is_next_of(struct scheduler *scheduler, struct sequence *sequence,
                             struct sequence *other) {
    int32_t size = scheduler->config.kv.limits->block_size;
    int32_t begin = sequence->num_computed;
    int32_t num_new = other->in_flight.num_tokens + other->num_scheduled_tokens;
    if (!scheduler->config.kv.caching || sequence->in_flight.num_tokens > 0 ||
        other->num_computed < begin || other->num_computed >= begin + size || num_new == 0 ||
        begin % size != 0 || other->num_tokens < begin + size ||
        sequence_group_reusable(sequence) < begin + size ||
        sequence_token(sequence, begin) != sequence_token(other, begin))
        return false;
    const struct token_view tokens = sequence_tokens(sequence);
    const struct token_view other_tokens = sequence_tokens(other);
    return block_manager_same_next(&scheduler->blocks, &sequence->table, &tokens, &other->table,
                                   &other_tokens, begin / size);
}
