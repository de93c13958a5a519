#include "server/telemetry/metrics/metrics_engine.h"

#include <stddef.h>
#include <stdio.h>

struct histogram_metric {
    const char *name, *help;
    size_t offset; /* of the histogram in struct engine_stats */
};

#define HISTOGRAM(name, member, help)                                                              \
    { name, help, offsetof(struct engine_stats, member) }

static const struct histogram_metric histograms[] = {
    HISTOGRAM("time_to_first_token_seconds", time_to_first_token,
              "Time from arrival to the first token."),
    HISTOGRAM("inter_token_latency_seconds", inter_token_latency,
              "Time between two tokens of a sequence."),
    HISTOGRAM("request_time_per_output_token_seconds", time_per_output_token,
              "Mean time per token after the first, per request."),
    HISTOGRAM("e2e_request_latency_seconds", e2e_latency, "Time from arrival to the end."),
    HISTOGRAM("request_queue_time_seconds", queue_time,
              "Time from arrival to being scheduled first."),
    HISTOGRAM("request_inference_time_seconds", inference_time,
              "Time from being scheduled first to the end."),
    HISTOGRAM("request_prefill_time_seconds", prefill_time,
              "Time from being scheduled first to the first token."),
    HISTOGRAM("request_decode_time_seconds", decode_time, "Time from the first token to the end."),
    HISTOGRAM("request_prompt_tokens", request_prompt_tokens, "Prompt tokens of a request."),
    HISTOGRAM("request_generation_tokens", request_generation_tokens,
              "Generated tokens of a request."),
    HISTOGRAM("request_max_num_generation_tokens", request_max_generation_tokens,
              "Generated tokens of the choice of a request that got the most."),
    HISTOGRAM("request_prefill_kv_computed_tokens", request_computed_tokens,
              "Prompt tokens of a request that were computed, not found in the prefix cache."),
    HISTOGRAM("request_prefix_cached_tokens", request_cached_tokens,
              "Prompt tokens of a request that were found in the prefix cache."),
    HISTOGRAM("request_params_max_tokens", request_max_tokens, "max_tokens of a request."),
    HISTOGRAM("request_params_n", request_n, "n of a request."),
    HISTOGRAM("iteration_tokens_total", iteration_tokens, "Tokens of an engine step."),
    HISTOGRAM("step_gap_seconds", step_gap,
              "Time without a step in flight before a step, though requests could run, as the host "
              "sees it."),
};

static void write_histogram(const struct metrics_text *w, const struct histogram_metric *metric,
                            const struct engine_stats *s) {
    metrics_text_header(w, metric->name, "histogram", metric->help);
    metrics_text_histogram(w, metric->name,
                           (const struct histogram *)((const char *)s + metric->offset));
}

static void write_step_parts(const struct metrics_text *w, const struct engine_stats *s) {
    static const char name[] = "step_host_seconds";
    metrics_text_header(w, name, "histogram",
                        "Time of the engine's thread for a step, by what it did.");
    for (int i = 0; i < NUM_STEP_PARTS; i++) {
        struct metrics_text of_part = {.prefix = w->prefix, .out = w->out};
        byte_buffer_append(&of_part.labels, w->labels.data, w->labels.length);
        byte_buffer_printf(&of_part.labels, ",part=\"%s\"", step_part_name((enum step_part)i));
        metrics_text_histogram(&of_part, name, &s->step_host[i]);
        byte_buffer_finish(&of_part.labels);
    }
}

/* Returns the share of token slots without a token in blocks that sequences hold: what
 * PagedAttention's paper calls waste. */
static double wasted_share(const struct engine_stats *s) {
    double places = (double)s->num_used_blocks * s->block_size;
    return places > 0 ? 1 - (double)s->num_held_tokens / places : 0;
}

static double usage(const struct engine_stats *s) {
    return s->num_blocks > 0 ? (double)s->num_used_blocks / s->num_blocks : 0;
}

static void write_memory(const struct metrics_text *w, const struct engine_stats *s) {
    metrics_text_single(w, "kv_cache_usage_perc", "gauge", "KV blocks in use, 0 to 1.", usage(s));
    metrics_text_single(w, "kv_cache_waste_perc", "gauge",
                        "Token slots without a token in KV blocks held by sequences, 0 to 1.",
                        wasted_share(s));
    metrics_text_single(w, "kv_block_size", "gauge", "Tokens in a KV block.", s->block_size);
    metrics_text_single(w, "kv_blocks_total", "gauge", "KV blocks of the pool.", s->num_blocks);
    metrics_text_single(w, "kv_blocks_used", "gauge", "KV blocks held by sequences.",
                        s->num_used_blocks);
    metrics_text_single(w, "kv_blocks_cached", "gauge",
                        "Free KV blocks whose prefix can still be found.", s->num_cached_blocks);
    metrics_text_single(w, "kv_blocks_known", "gauge",
                        "KV blocks whose prefix can be found, held by sequences or not.",
                        s->num_known_blocks);
    metrics_text_single(w, "kv_tokens_held", "gauge",
                        "Tokens whose keys and values those blocks hold, shared ones once.",
                        (double)s->num_held_tokens);
    metrics_text_single(w, "swap_blocks_total", "gauge", "Blocks of the swap space.",
                        s->num_host_blocks);
    metrics_text_single(w, "swap_blocks_used", "gauge", "Blocks of the swap space in use.",
                        s->num_used_host_blocks);
    metrics_text_single(w, "prefix_cache_queries_total", "counter",
                        "Prompt tokens searched for in the prefix cache.",
                        (double)s->prefix_queries);
    metrics_text_single(w, "prefix_cache_hits_total", "counter",
                        "Prompt tokens found in the prefix cache.", (double)s->prefix_hits);
    metrics_text_single(w, "kv_blocks_copied_total", "counter",
                        "Shared KV blocks copied because one of their sequences wrote.",
                        (double)s->copied_blocks);
    metrics_text_pair(w, "kv_blocks_swapped_total", "counter",
                      "KV blocks moved to and from swap space.", "direction",
                      (const char *const[2]){"out", "in"},
                      (const uint64_t[2]){s->swapped_out_blocks, s->swapped_in_blocks});
}

/* By the names that vLLM had for these until 0.9, which the router of its production stack reads
 * (src/vllm_router/stats/engine_stats.py). */
static void write_old_names(const struct metrics_text *w, const struct engine_stats *s) {
    metrics_text_single(w, "gpu_cache_usage_perc", "gauge", "As kv_cache_usage_perc.", usage(s));
    metrics_text_single(w, "gpu_prefix_cache_queries_total", "counter",
                        "As prefix_cache_queries_total.", (double)s->prefix_queries);
    metrics_text_single(w, "gpu_prefix_cache_hits_total", "counter", "As prefix_cache_hits_total.",
                        (double)s->prefix_hits);
}

static void write_masks(const struct metrics_text *w, const struct engine_stats *s) {
    metrics_text_single(w, "grammar_jump_forward_tokens_total", "counter",
                        "Generated tokens that a grammar forced, and no step sampled.",
                        (double)s->jump_forward_tokens);
    metrics_text_single(w, "grammar_mask_jobs_running", "gauge",
                        "Grammars whose masks take long and are being found beside the steps.",
                        s->num_mask_jobs);
    metrics_text_single(w, "grammar_mask_jobs_total", "counter",
                        "Times that masks of a grammar were found beside the steps.",
                        (double)s->mask_jobs);
    metrics_text_single(w, "grammar_mask_job_seconds_total", "counter",
                        "Time from the beginning of each of them to its end.", s->mask_job_seconds);
}

static void write_rest(const struct metrics_text *w, const struct engine_stats *s) {
    static const char name[] = "engine_sleep_state";
    bool is_asleep = s->rest == ENGINE_ASLEEP || s->rest == ENGINE_WAKING;
    metrics_text_header(
        w, name, "gauge",
        "1 for the state that the engine is in: awake, asleep with weights, or without.");
    metrics_text_sample(w, name, "", "sleep_state", "awake", !is_asleep);
    metrics_text_sample(w, name, "", "sleep_state", "weights_offloaded",
                        is_asleep && !s->discards_weights);
    metrics_text_sample(w, name, "", "sleep_state", "discard_all",
                        is_asleep && s->discards_weights);
    metrics_text_single(w, "idle_sleeps_total", "counter",
                        "Times that the engine fell asleep as there was no request.",
                        (double)s->idle.num_sleeps);
    metrics_text_single(w, "idle_wakes_total", "counter", "Times that it woke from that.",
                        (double)s->idle.num_wakes);
    metrics_text_single(w, "idle_wake_seconds_total", "counter",
                        "Time from the request that woke it until it was awake.",
                        s->idle.wake_seconds);
    metrics_text_single(w, "idle_wake_failures_total", "counter",
                        "Times that it was to wake from that, and could not.",
                        (double)s->idle.num_wake_failures);
}

static void write_engine(const struct metrics_text *w, const struct engine_stats *s) {
    write_rest(w, s);
    metrics_text_single(w, "num_requests_running", "gauge", "Running sequences.", s->num_running);
    metrics_text_single(w, "num_requests_waiting", "gauge", "Waiting sequences.", s->num_waiting);
    metrics_text_pair(w, "num_requests_waiting_by_reason", "gauge",
                      "Waiting sequences by what they wait for; none is ever deferred.", "reason",
                      (const char *const[2]){"capacity", "deferred"},
                      (const uint64_t[2]){(uint64_t)s->num_waiting, 0});
    metrics_text_single(w, "num_requests_swapped", "gauge",
                        "Waiting sequences whose KV blocks are in swap space.", s->num_swapped);
    metrics_text_single(w, "engine_steps_total", "counter", "Engine steps.", (double)s->step);
    metrics_text_single(w, "prompt_tokens_total", "counter",
                        "Prompt tokens, those found in the prefix cache too.",
                        (double)(s->prompt_tokens + s->prefix_hits));
    metrics_text_single(w, "prompt_tokens_cached_total", "counter",
                        "Prompt tokens found in the prefix cache.", (double)s->prefix_hits);
    metrics_text_pair(w, "prompt_tokens_by_source_total", "counter",
                      "Prompt tokens by where their keys and values come from.", "source",
                      (const char *const[2]){"local_compute", "local_cache_hit"},
                      (const uint64_t[2]){s->prompt_tokens, s->prefix_hits});
    metrics_text_single(w, "generation_tokens_total", "counter", "Tokens generated.",
                        (double)s->generation_tokens);
    metrics_text_single(w, "num_preemptions_total", "counter",
                        "Sequences preempted for lack of KV blocks.", (double)s->preemptions);
    metrics_text_single(w, "rank_restarts_total", "counter",
                        "Times that ranks which crashed, hung or failed were started again.",
                        (double)s->rank_restarts);
    metrics_text_pair(w, "preemptions_by_mode_total", "counter",
                      "Preemptions by what became of the KV blocks.", "mode",
                      (const char *const[2]){"swap", "recompute"},
                      (const uint64_t[2]){s->preemptions_swap, s->preemptions_recompute});
}

static double acceptance_rate(const struct engine_stats *s) {
    return s->num_draft_tokens > 0 ? (double)s->num_accepted_tokens / (double)s->num_draft_tokens
                                   : 0;
}

/* Only where drafts are configured, as in vLLM: one label for each of their positions. */
static void write_drafts(const struct metrics_text *w, const struct engine_stats *s) {
    static const char per_position[] = "spec_decode_num_accepted_tokens_per_pos_total";
    char position[16];
    if (s->num_speculative_tokens == 0)
        return;
    metrics_text_single(w, "spec_decode_num_drafts_total", "counter",
                        "Steps of a sequence that had drafted tokens.", (double)s->num_drafts);
    metrics_text_single(w, "spec_decode_num_draft_tokens_total", "counter", "Drafted tokens.",
                        (double)s->num_draft_tokens);
    metrics_text_single(w, "spec_decode_num_accepted_tokens_total", "counter",
                        "Drafted tokens that were accepted.", (double)s->num_accepted_tokens);
    metrics_text_header(w, per_position, "counter",
                        "Drafted tokens that were accepted, by their position in the draft.");
    for (int32_t i = 0; i < s->num_speculative_tokens; i++) {
        snprintf(position, sizeof(position), "%d", i);
        metrics_text_sample(w, per_position, "", "position", position,
                            (double)s->num_accepted_at[i]);
    }
    metrics_text_single(w, "spec_decode_draft_acceptance_rate", "gauge",
                        "Accepted of the drafted tokens, since the start.", acceptance_rate(s));
}

static void write_finished(const struct metrics_text *w, const struct engine_stats *s) {
    static const char *const reasons[] = {
        [FINISH_STOP] = "stop",         [FINISH_LENGTH] = "length",
        [FINISH_DEADLINE] = "deadline", [FINISH_QUEUE_TIMEOUT] = "queue_timeout",
        [FINISH_ASLEEP] = "asleep",     [FINISH_ABORT] = "abort",
        [FINISH_CRASHED] = "crashed",   [FINISH_ERROR] = "error",
    };
    metrics_text_header(w, "request_success_total", "counter", "Sequences ended, by reason.");
    for (int i = FINISH_STOP; i <= FINISH_ERROR; i++)
        metrics_text_sample(w, "request_success_total", "", "finished_reason", reasons[i],
                            (double)s->finished[i]);
}

static void write_rank_memory(const struct metrics_text *w, const struct metrics_facts *facts) {
    static const char name[] = "rank_memory_bytes";
    static const struct {
        const char *part;
        size_t offset;
    } parts[] = {{"weights", offsetof(struct executor_memory, weight_bytes)},
                 {"workspace", offsetof(struct executor_memory, workspace_bytes)},
                 {"kv_cache", offsetof(struct executor_memory, kv_bytes)},
                 {"swap", offsetof(struct executor_memory, swap_bytes)}};
    metrics_text_header(w, name, "gauge", "Memory that a rank has allocated, by what it holds.");
    for (int32_t r = 0; r < facts->num_ranks; r++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            const char *memory = (const char *)&facts->rank_memory[r] + parts[i].offset;
            metrics_text_begin_sample(w, name, "");
            byte_buffer_printf(w->out, ",rank=\"%d\",part=\"%s\"} %zu\n", r, parts[i].part,
                               *(const size_t *)memory);
        }
}

static double compute_seconds(const struct rank_stats *stats) {
    return (double)stats->compute_ns / 1e9;
}

static double communication_seconds(const struct rank_stats *stats) {
    return (double)stats->communication_ns / 1e9;
}

static double sent_bytes(const struct rank_stats *stats) {
    return (double)stats->bytes_sent;
}

static void write_ranks(const struct metrics_text *w, const struct engine_stats *s) {
    static const struct {
        const char *name, *help;
        double (*value)(const struct rank_stats *stats);
    } counters[] = {
        {"rank_compute_seconds_total", "Time of a rank in steps, without communication.",
         compute_seconds},
        {"rank_communication_seconds_total",
         "Time of a rank in communication with the others, waiting for them included.",
         communication_seconds},
        {"rank_sent_bytes_total", "Bytes a rank has sent to others to add up what each computes.",
         sent_bytes},
    };
    for (size_t i = 0; s->num_ranks > 0 && i < sizeof(counters) / sizeof(counters[0]); i++) {
        metrics_text_header(w, counters[i].name, "counter", counters[i].help);
        for (int32_t r = 0; r < s->num_ranks; r++) {
            char rank[16];
            snprintf(rank, sizeof(rank), "%d", r);
            metrics_text_sample(w, counters[i].name, "", "rank", rank,
                                counters[i].value(&s->ranks[r]));
        }
    }
}

void metrics_engine_write(const struct metrics_text *w, const struct metrics_facts *facts,
                          const struct engine_stats *s) {
    write_engine(w, s);
    write_memory(w, s);
    write_old_names(w, s);
    write_rank_memory(w, facts);
    write_ranks(w, s);
    write_masks(w, s);
    write_drafts(w, s);
    write_finished(w, s);
    for (size_t i = 0; i < sizeof(histograms) / sizeof(histograms[0]); i++)
        write_histogram(w, &histograms[i], s);
    write_step_parts(w, s);
}

void metrics_engine_write_recording(const struct metrics_text *w, const struct engine_stats *s) {
    metrics_text_single(
        w, "recording", "gauge",
        "1 while requests are recorded (--record); 0 too when that pauses or has failed.",
        s->is_recording);
    metrics_text_single(w, "recorded_bytes_total", "counter", "Bytes that --record has written.",
                        (double)s->recorded_bytes);
}
