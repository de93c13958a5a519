#include "engine/core/core_stats.h"

#include "config/base/numbers.h"

static double seconds(int64_t from_ns, int64_t to_ns) {
    return (double)(to_ns - from_ns) * 1e-9;
}

static void note_first(_Atomic int64_t *time_ns, int64_t now_ns) {
    if (atomic_load_explicit(time_ns, memory_order_relaxed) == 0)
        atomic_store_explicit(time_ns, now_ns, memory_order_relaxed);
}

static void note_token(struct request *request, int64_t now_ns) {
    note_first(&request->times.first_token_ns, now_ns);
    atomic_store_explicit(&request->times.last_token_ns, now_ns, memory_order_relaxed);
}

void core_stats_scheduled(struct engine_stats *stats, const struct planned_sequence *entry,
                          int64_t now_ns) {
    struct sequence *sequence = entry->sequence;
    if (sequence->first_scheduled_ns != 0)
        return;
    struct request *request = sequence->group->request;
    sequence->first_scheduled_ns = now_ns;
    note_first(&request->times.scheduled_ns, now_ns);
    histogram_add(&stats->queue_time, seconds(request->arrival_ns, now_ns));
}

void core_stats_forked(const struct sequence *from, struct sequence *to) {
    if (to->first_scheduled_ns == 0)
        to->first_scheduled_ns = from->first_scheduled_ns;
}

void core_stats_computed(struct engine_stats *stats, const struct planned_sequence *entry,
                         int32_t num_accepted) {
    const struct sequence *sequence = entry->sequence;
    int32_t begin = sequence->num_computed;
    int32_t end = begin + entry->num_tokens - entry->num_drafts + num_accepted;
    int32_t num_prompt = sequence->group->request->num_prompt_tokens;
    if (begin < sequence->max_computed)
        begin = sequence->max_computed;
    if (end > num_prompt)
        end = num_prompt;
    if (end > begin)
        stats->prompt_tokens += (uint64_t)(end - begin);
}

void core_stats_token(struct engine_stats *stats, struct sequence *sequence, int64_t now_ns) {
    stats->generation_tokens++;
    if (sequence->first_token_ns == 0) {
        sequence->first_token_ns = now_ns;
        histogram_add(&stats->time_to_first_token,
                      seconds(sequence->group->request->arrival_ns, now_ns));
    } else {
        histogram_add(&stats->inter_token_latency, seconds(sequence->last_token_ns, now_ns));
    }
    sequence->last_token_ns = now_ns;
    note_token(sequence->group->request, now_ns);
}

void core_stats_hypothesis(struct engine_stats *stats, struct sequence *choice, int32_t num_tokens,
                           int64_t now_ns) {
    const struct sequence *first = &choice->group->sequences[0];
    choice->first_scheduled_ns = first->first_scheduled_ns;
    if (num_tokens <= 0)
        return;
    stats->generation_tokens += (uint64_t)num_tokens;
    choice->first_token_ns = now_ns;
    choice->last_token_ns = now_ns;
    note_token(choice->group->request, now_ns);
    histogram_add(&stats->time_to_first_token, seconds(choice->group->request->arrival_ns, now_ns));
}

static void observe_times(struct engine_stats *stats, const struct sequence *sequence,
                          int64_t now_ns) {
    int64_t arrival_ns = sequence->group->request->arrival_ns;
    int64_t scheduled_ns =
        sequence->first_scheduled_ns != 0 ? sequence->first_scheduled_ns : now_ns;
    int64_t first_token_ns = sequence->first_token_ns != 0 ? sequence->first_token_ns : now_ns;
    int32_t num_generated = sequence_num_generated(sequence);
    histogram_add(&stats->e2e_latency, seconds(arrival_ns, now_ns));
    histogram_add(&stats->inference_time, seconds(scheduled_ns, now_ns));
    histogram_add(&stats->prefill_time, seconds(scheduled_ns, first_token_ns));
    histogram_add(&stats->decode_time, seconds(first_token_ns, now_ns));
    histogram_add(&stats->request_generation_tokens, num_generated);
    if (num_generated > 1)
        histogram_add(&stats->time_per_output_token,
                      seconds(first_token_ns, now_ns) / (num_generated - 1));
}

/* Observes what concerns all choices, when the last of them has ended. */
static void observe_group(struct engine_stats *stats, const struct sequence_group *group) {
    int32_t num_choices = sequence_group_num_choices(group), most = 0;
    for (int32_t i = 0; i < num_choices; i++) {
        int32_t num_generated = sequence_num_generated(&group->sequences[i]);
        if (group->sequences[i].finish == FINISH_NONE)
            return;
        most = num_generated > most ? num_generated : most;
    }
    histogram_add(&stats->request_max_generation_tokens, most);
}

/* Returns whether the client gets the sequence's tokens, however few; beams have none to give
 * before their end. */
static bool is_answered(const struct sequence *sequence) {
    return sequence->finish == FINISH_STOP || sequence->finish == FINISH_LENGTH ||
           (sequence->finish == FINISH_DEADLINE && sequence->group->beams == NULL);
}

static void count_handover(struct handover_stats *stats, int32_t num_tokens, int32_t num_there) {
    stats->num_requests++;
    stats->num_tokens += (uint64_t)num_there;
    stats->num_missing_tokens += (uint64_t)(num_tokens - num_there);
}

/* What was found in the prefix cache of this server counts as handed over, too. */
static void observe_handover(struct engine_stats *stats, const struct sequence_group *group) {
    const struct handover *handover = &group->handover;
    if (group->request->hands_over)
        count_handover(&stats->handed_over, handover->num_tokens, handover->num_stored_tokens);
    if (handover->num_expected > 0)
        count_handover(&stats->taken_over, handover->num_expected,
                       min_int32(group->num_cached_tokens, handover->num_expected));
}

void core_stats_finished(struct engine_stats *stats, const struct sequence *sequence,
                         int64_t now_ns) {
    const struct request *request = sequence->group->request;
    stats->finished[sequence->finish]++;
    if (!is_answered(sequence))
        return;
    observe_times(stats, sequence, now_ns);
    observe_group(stats, sequence->group);
    if (sequence->choice > 0)
        return;
    observe_handover(stats, sequence->group);
    int32_t num_cached = sequence->group->num_cached_tokens;
    histogram_add(&stats->request_cached_tokens, num_cached);
    histogram_add(&stats->request_computed_tokens, request->num_prompt_tokens - num_cached);
    histogram_add(&stats->request_prompt_tokens, request->num_prompt_tokens);
    histogram_add(&stats->request_max_tokens, request->params.max_tokens);
    histogram_add(&stats->request_n, request->params.num_choices);
}

/* Counts in the last blocks, since all others are full, or will be by the steps in flight or from
 * the store; one that is shared counts in parts. */
static double num_empty_slots(const struct scheduler *scheduler, const struct sequence *sequence) {
    const struct block_table *table = &sequence->table;
    int32_t room = table->num_blocks * scheduler->config.kv.limits->block_size -
                   sequence_num_computed_ahead(sequence);
    if (table->num_awaited > 0)
        return 0;
    double count = 0;
    for (int32_t group = 0; room > 0 && group < table->num_groups; group++) {
        int32_t last = *block_table_at(table, group, table->num_blocks - 1);
        count += (double)room / scheduler->blocks.pool.blocks[last].references;
    }
    return count;
}

/* Counts in the first blocks of groups that have the window: what lies before it is not seen any
 * more. */
static double num_unseen_slots(const struct scheduler *scheduler, const struct sequence *sequence) {
    const struct serving_limits *limits = scheduler->config.kv.limits;
    const struct block_table *table = &sequence->table;
    int32_t num_there = max_int32(sequence->num_computed, table->num_awaited * limits->block_size);
    int32_t num_unseen = num_there - limits->window + 1;
    num_unseen =
        min_int32(num_unseen - table->num_dropped * limits->block_size, limits->block_size);
    double count = 0;
    if (limits->window == 0 || num_unseen <= 0 || table->num_dropped >= table->num_blocks)
        return 0;
    for (int32_t group = limits->num_full_groups; group < table->num_groups; group++) {
        int32_t first = *block_table_at(table, group, table->num_dropped);
        count += (double)num_unseen / scheduler->blocks.pool.blocks[first].references;
    }
    return count;
}

static void count_sequences(struct engine_stats *stats, const struct sequence_group *group) {
    int32_t swapped = sequence_group_count(group, SEQUENCE_SWAPPED);
    stats->num_running += sequence_group_count(group, SEQUENCE_RUNNING);
    stats->num_waiting += sequence_group_count(group, SEQUENCE_WAITING) + swapped;
    stats->num_swapped += swapped;
}

static int64_t num_held_tokens(const struct scheduler *scheduler) {
    double held = (double)scheduler->blocks.pool.num_used * scheduler->config.kv.limits->block_size;
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        for (int32_t i = 0; i < g->num_sequences; i++)
            if (g->sequences[i].status == SEQUENCE_RUNNING)
                held -= num_empty_slots(scheduler, &g->sequences[i]) +
                        num_unseen_slots(scheduler, &g->sequences[i]);
    return (int64_t)(held + 0.5);
}

void core_stats_gauges(struct engine_stats *stats, const struct scheduler *scheduler) {
    const struct block_manager *blocks = &scheduler->blocks;
    stats->num_running = 0;
    stats->num_waiting = 0;
    stats->num_swapped = 0;
    for (const struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next)
        count_sequences(stats, g);
    const struct sequence_group *g = NULL;
    while ((g = share_queue_next(&scheduler->waiting, g)) != NULL)
        count_sequences(stats, g);
    stats->block_size = scheduler->config.kv.limits->block_size;
    stats->num_blocks = blocks->pool.num_blocks;
    stats->num_used_blocks = blocks->pool.num_used;
    stats->num_cached_blocks = block_pool_num_cached(&blocks->pool);
    stats->num_known_blocks = blocks->cache.num_known;
    stats->num_host_blocks = blocks->host.num_blocks;
    stats->num_used_host_blocks = blocks->host.num_used;
    stats->num_kept_blocks = blocks->tiers.kept.num_known;
    stats->kept_blocks = blocks->tiers.num_kept;
    stats->promoted_blocks = blocks->tiers.num_promoted;
    stats->evicted_kept_blocks = blocks->tiers.num_evicted;
    stats->stored_reads = blocks->tiers.num_read;
    stats->num_held_tokens = num_held_tokens(scheduler);
    stats->prefix_queries = scheduler->num_queried_tokens;
    stats->prefix_hits = scheduler->num_hit_tokens;
    stats->preemptions_swap = scheduler->num_swaps;
    stats->preemptions_recompute = scheduler->num_recomputes;
    stats->preemptions = scheduler->num_swaps + scheduler->num_recomputes;
    stats->copied_blocks = blocks->num_copied_blocks;
    stats->swapped_out_blocks = blocks->num_swapped_out_blocks;
    stats->swapped_in_blocks = blocks->num_swapped_in_blocks;
}

void core_stats_step(struct engine_stats *stats, int32_t num_tokens, int64_t now_ns) {
    stats->step++;
    stats->last_step_ns = now_ns;
    histogram_add(&stats->iteration_tokens, num_tokens);
}

void core_stats_step_times(struct engine_stats *stats, const struct step_times *times) {
    histogram_add(&stats->step_gap, seconds(0, times->gap_ns));
    for (int i = 0; i < NUM_STEP_PARTS; i++)
        histogram_add(&stats->step_host[i], seconds(0, times->host_ns[i]));
}

/* --- Times of steps --- */

static int64_t read_clock(const struct step_timer *timer) {
    return timer->clock != NULL ? timer->clock(timer->context) : 0;
}

void step_timer_start(struct step_timer *timer) {
    if (timer->last_ns == 0)
        timer->last_ns = read_clock(timer);
}

void step_timer_stop(struct step_timer *timer) {
    timer->last_ns = 0;
    timer->empty_since_ns = 0;
    timer->next = (struct step_times){0};
}

void step_timer_end(struct step_timer *timer, enum step_part part, struct step_times *times) {
    int64_t now_ns = read_clock(timer);
    times->host_ns[part] += now_ns - timer->last_ns;
    timer->last_ns = now_ns;
}

void step_timer_launched(struct step_timer *timer, struct step_times *out) {
    step_timer_end(timer, STEP_PART_LAUNCH, &timer->next);
    if (timer->empty_since_ns != 0)
        timer->next.gap_ns = timer->last_ns - timer->empty_since_ns;
    timer->empty_since_ns = 0;
    *out = timer->next;
    timer->next = (struct step_times){0};
}

void step_timer_waited(struct step_timer *timer, struct step_times *times, bool is_empty) {
    step_timer_end(timer, STEP_PART_WAIT, times);
    if (is_empty)
        timer->empty_since_ns = timer->last_ns;
}
