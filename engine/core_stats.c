#include "engine/core_stats.h"

static double seconds(int64_t from_ns, int64_t to_ns) {
    return (double)(to_ns - from_ns) * 1e-9;
}

void core_stats_scheduled(struct engine_stats *stats, const struct planned_sequence *entry,
                          int64_t now_ns) {
    struct sequence *sequence = entry->sequence;
    if (sequence->first_scheduled_ns != 0)
        return;
    sequence->first_scheduled_ns = now_ns;
    histogram_add(&stats->queue_time, seconds(sequence->group->request->arrival_ns, now_ns));
}

void core_stats_computed(struct engine_stats *stats, const struct planned_sequence *entry) {
    const struct sequence *sequence = entry->sequence;
    int32_t begin = sequence->num_computed, end = begin + entry->num_tokens;
    int32_t num_prompt = sequence->group->request->num_prompt_tokens;
    if (begin < sequence->most_computed)
        begin = sequence->most_computed;
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
}

static void observe_times(struct engine_stats *stats, const struct sequence *sequence,
                          int64_t now_ns) {
    int64_t arrival_ns = sequence->group->request->arrival_ns;
    int64_t first_token_ns = sequence->first_token_ns != 0 ? sequence->first_token_ns : now_ns;
    int32_t num_generated = sequence_num_generated(sequence);
    histogram_add(&stats->e2e_latency, seconds(arrival_ns, now_ns));
    histogram_add(&stats->inference_time, seconds(sequence->first_scheduled_ns, now_ns));
    histogram_add(&stats->prefill_time, seconds(sequence->first_scheduled_ns, first_token_ns));
    histogram_add(&stats->decode_time, seconds(first_token_ns, now_ns));
    histogram_add(&stats->request_generation_tokens, num_generated);
    if (num_generated > 1)
        histogram_add(&stats->time_per_output_token,
                      seconds(first_token_ns, now_ns) / (num_generated - 1));
}

void core_stats_finished(struct engine_stats *stats, const struct sequence *sequence,
                         int64_t now_ns) {
    const struct request *request = sequence->group->request;
    stats->finished[sequence->finish]++;
    if (sequence->finish != FINISH_STOP && sequence->finish != FINISH_LENGTH)
        return;
    observe_times(stats, sequence, now_ns);
    if (sequence->choice > 0)
        return;
    histogram_add(&stats->request_prompt_tokens, request->num_prompt_tokens);
    histogram_add(&stats->request_max_tokens, request->params.max_tokens);
    histogram_add(&stats->request_n, request->params.num_choices);
}

void core_stats_gauges(struct engine_stats *stats, const struct scheduler *scheduler) {
    stats->num_running = scheduler->running.count;
    stats->num_waiting = scheduler->waiting.count;
    stats->num_blocks = scheduler->pool.num_blocks;
    stats->num_used_blocks = scheduler->pool.num_used;
    stats->num_held_tokens = 0;
    for (const struct sequence *s = scheduler->running.first; s != NULL; s = s->next)
        stats->num_held_tokens += s->num_computed;
}

void core_stats_step(struct engine_stats *stats, const struct scheduler *scheduler,
                     int64_t now_ns) {
    stats->step++;
    stats->last_step_ns = now_ns;
    stats->preemptions += (uint64_t)scheduler->plan.num_preempted;
    histogram_add(&stats->iteration_tokens, scheduler->plan.num_tokens);
}
