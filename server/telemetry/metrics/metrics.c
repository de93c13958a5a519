#include "server/telemetry/metrics/metrics.h"

#include "server/telemetry/metrics/metrics_text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* --- What the engine counts --- */

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
        struct metrics_text of_part = {.prefix = w->prefix, .families = w->families};
        byte_buffer_append(&of_part.labels, w->labels.data, w->labels.length);
        byte_buffer_printf(&of_part.labels, ",part=\"%s\"", step_part_name((enum step_part)i));
        metrics_text_histogram(&of_part, name, &s->step_host[i]);
        byte_buffer_finish(&of_part.labels);
    }
}

/* Returns the share of token slots without a token, or with one before the window, in blocks that
 * sequences hold: what PagedAttention's paper calls waste. */
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
                        "Token slots without a token that may still be read in KV blocks held by "
                        "sequences, 0 to 1.",
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
                        "Grammars whose masks take long and are being found outside the steps.",
                        s->num_mask_jobs);
    metrics_text_single(w, "grammar_mask_jobs_total", "counter",
                        "Times that masks of a grammar were found outside the steps.",
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
                      "Preemptions by what happened to the KV blocks.", "mode",
                      (const char *const[2]){"swap", "recompute"},
                      (const uint64_t[2]){s->preemptions_swap, s->preemptions_recompute});
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
    double rate =
        s->num_draft_tokens > 0 ? (double)s->num_accepted_tokens / (double)s->num_draft_tokens : 0;
    metrics_text_single(w, "spec_decode_draft_acceptance_rate", "gauge",
                        "Accepted of the drafted tokens, since the start.", rate);
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
                 {"adapters", offsetof(struct executor_memory, adapter_bytes)},
                 {"draft", offsetof(struct executor_memory, draft_bytes)},
                 {"workspace", offsetof(struct executor_memory, workspace_bytes)},
                 {"kv_cache", offsetof(struct executor_memory, kv_bytes)},
                 {"swap", offsetof(struct executor_memory, swap_bytes)}};
    metrics_text_header(w, name, "gauge", "Memory that a rank has allocated, by what it holds.");
    for (int32_t r = 0; r < facts->num_ranks; r++)
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            const char *memory = (const char *)&facts->rank_memory[r] + parts[i].offset;
            metrics_text_begin_sample(w, name, "");
            byte_buffer_printf(w->families->out, ",rank=\"%d\",part=\"%s\"} %zu\n", r,
                               parts[i].part, *(const size_t *)memory);
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

static void write_ranks(const struct metrics_text *w, const struct metrics_model *model) {
    const struct engine_stats *s = &model->engine;
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
        if (counters[i].value == communication_seconds && !model->facts->are_waits_known)
            continue;
        metrics_text_header(w, counters[i].name, "counter", counters[i].help);
        for (int32_t r = 0; r < s->num_ranks; r++) {
            char rank[16];
            snprintf(rank, sizeof(rank), "%d", r);
            metrics_text_sample(w, counters[i].name, "", "rank", rank,
                                counters[i].value(&s->ranks[r]));
        }
    }
}

static void write_engine_metrics(const struct metrics_text *w, const struct metrics_model *model) {
    const struct engine_stats *s = &model->engine;
    write_engine(w, s);
    write_memory(w, s);
    write_old_names(w, s);
    write_rank_memory(w, model->facts);
    write_ranks(w, model);
    write_masks(w, s);
    write_drafts(w, s);
    write_finished(w, s);
    for (size_t i = 0; i < sizeof(histograms) / sizeof(histograms[0]); i++)
        write_histogram(w, &histograms[i], s);
    write_step_parts(w, s);
}

/* Blocks that the device has lost, by where they are. */
static void write_tiers(const struct metrics_text *w, const struct metrics_model *model) {
    static const char *const tiers[2] = {"host", "store"}, *const ways[2] = {"write", "read"};
    const struct engine_stats *s = &model->engine;
    const struct kv_store_counts *store = &model->kv_store;
    metrics_text_pair(
        w, "kv_tier_blocks", "gauge", "KV blocks that can be found below the device.", "tier",
        tiers, (const uint64_t[2]){(uint64_t)s->num_kept_blocks, (uint64_t)store->num_blocks});
    metrics_text_pair(w, "kv_tier_hits_total", "counter",
                      "KV blocks that came back from a tier; those of the store pass the host.",
                      "tier", tiers, (const uint64_t[2]){s->promoted_blocks, s->stored_reads});
    metrics_text_pair(w, "kv_tier_stored_total", "counter", "KV blocks copied to a tier.", "tier",
                      tiers, (const uint64_t[2]){s->kept_blocks, store->num_written});
    metrics_text_pair(w, "kv_tier_evicted_total", "counter",
                      "KV blocks that a tier has lost to make room.", "tier", tiers,
                      (const uint64_t[2]){s->evicted_kept_blocks, store->num_evicted});
    metrics_text_pair(w, "kv_store_bytes_total", "counter", "Bytes of KV blocks, by direction.",
                      "direction", ways,
                      (const uint64_t[2]){store->bytes_written, store->bytes_read});
    metrics_text_single(w, "kv_store_read_seconds_total", "counter",
                        "Time that reading KV blocks took.", (double)store->read_ns * 1e-9);
    metrics_text_single(w, "kv_store_write_seconds_total", "counter",
                        "Time that writing KV blocks took.", (double)store->write_ns * 1e-9);
    metrics_text_single(w, "kv_store_max_blocks", "gauge", "KV blocks that the store has room for.",
                        store->max_blocks);
    metrics_text_single(w, "kv_store_damaged_total", "counter",
                        "KV blocks that were damaged in the store.", (double)store->num_damaged);
    metrics_text_single(w, "kv_store_failed_writes_total", "counter",
                        "KV blocks that could not be written.", (double)store->num_failed_writes);
}

/* Prompts that one server computes and another one continues. */
static void write_handovers(const struct metrics_text *w, const struct engine_stats *s) {
    static const char *const ways[2] = {"out", "in"};
    const struct handover_stats *out = &s->handed_over, *in = &s->taken_over;
    metrics_text_pair(w, "kv_handovers_total", "counter",
                      "Requests whose KV blocks were handed over to (out) or from (in) another "
                      "server.",
                      "direction", ways, (const uint64_t[2]){out->num_requests, in->num_requests});
    metrics_text_pair(w, "kv_handover_tokens_total", "counter",
                      "Prompt tokens whose KV blocks were handed over.", "direction", ways,
                      (const uint64_t[2]){out->num_tokens, in->num_tokens});
    metrics_text_pair(w, "kv_handover_missing_tokens_total", "counter",
                      "Prompt tokens whose KV blocks were not stored in time (out), or not found "
                      "and computed (in).",
                      "direction", ways,
                      (const uint64_t[2]){out->num_missing_tokens, in->num_missing_tokens});
}

static void write_caches(const struct metrics_text *w, const struct metrics_model *model) {
    const struct kv_event_stats *events = &model->kv_events;
    const struct grammar_cache_stats *grammars = &model->grammars;
    metrics_text_single(
        w, "kv_event_batches_total", "counter",
        "Batches of changes of the prefix cache that were numbered to be published.",
        (double)events->batches);
    metrics_text_single(w, "kv_event_batches_lost_total", "counter",
                        "Batches of them that nobody got, as the publisher's queue was full.",
                        (double)events->lost_batches);
    metrics_text_single(w, "grammar_cache_hits_total", "counter",
                        "Output formats whose grammar was in the cache.", (double)grammars->hits);
    metrics_text_single(w, "grammar_cache_misses_total", "counter",
                        "Output formats whose grammar was compiled, or not valid.",
                        (double)grammars->misses);
    metrics_text_single(w, "grammar_cache_bytes", "gauge",
                        "Memory of the grammars that are kept, with the masks that are known.",
                        (double)grammars->bytes);
    write_tiers(w, model);
    write_handovers(w, &model->engine);
}

static void write_recording(const struct metrics_text *w, const struct metrics_model *model) {
    const struct engine_stats *s = &model->engine;
    metrics_text_single(
        w, "recording", "gauge",
        "1 while requests are recorded (--record); 0 too when that pauses or has failed.",
        s->is_recording);
    metrics_text_single(w, "recorded_bytes_total", "counter", "Bytes that --record has written.",
                        (double)s->recorded_bytes);
}

/* --- What the HTTP layer counts --- */

void metrics_http_count_error(struct http_stats *http, int status, const char *code) {
    int i = 0;
    code = code != NULL ? code : "";
    while (i < http->num_causes &&
           (http->errors[i].status != status || strcmp(http->errors[i].code, code) != 0))
        i++;
    if (i == METRICS_HTTP_MAX_CAUSES)
        http->errors[--i].code = "other";
    else if (i == http->num_causes)
        http->errors[http->num_causes++] = (struct http_error_count){status, code, 0};
    http->errors[i].count++;
}

static void write_http(const struct metrics_text *w, const struct http_stats *http) {
    static const char *const classes[] = {NULL, "1xx", "2xx", "3xx", "4xx", "5xx"};
    metrics_text_header(w, "http_requests_total", "counter",
                        "Requests answered, by class of status.");
    for (int i = 1; i < 6; i++)
        metrics_text_sample(w, "http_requests_total", "", "class", classes[i],
                            (double)http->requests_by_class[i]);
    metrics_text_header(w, "http_errors_total", "counter",
                        "Requests answered with an error, by status and by the error's code.");
    for (int i = 0; i < http->num_causes; i++) {
        const struct http_error_count *error = &http->errors[i];
        metrics_text_begin_sample(w, "http_errors_total", "");
        byte_buffer_printf(w->families->out, ",status=\"%d\",code=\"%s\"} %llu\n", error->status,
                           error->code, (unsigned long long)error->count);
    }
    metrics_text_single(w, "http_requests_rejected_total", "counter",
                        "Requests refused at admission (429, 503).", (double)http->rejected);
    metrics_text_single(w, "http_connections", "gauge", "Open connections.",
                        (double)http->connections);
    metrics_text_single(w, "http_held_bytes", "gauge",
                        "Memory of bodies that arrive and of answers that wait.",
                        (double)http->held_bytes);
    metrics_text_single(w, "log_lines_lost_total", "counter",
                        "Lines of the log that could not be written at once.",
                        (double)http->log_lines_lost);
    metrics_text_single(w, "access_log_lines_lost_total", "counter",
                        "Lines of the access log that could not be written.",
                        (double)http->access_log_lines_lost);
    metrics_text_single(w, "trace_spans_lost_total", "counter",
                        "Spans that the collector of traces did not take.",
                        (double)http->trace_spans_lost);
}

static void write_memory_of_http(const struct metrics_text *w, const struct http_stats *http) {
    metrics_text_single(w, "response_store_entries", "gauge", "Responses that are kept.",
                        (double)http->responses.num_entries);
    metrics_text_single(w, "response_store_bytes", "gauge",
                        "Memory of the responses that are kept, and of the table that finds them.",
                        (double)http->responses.bytes);
    metrics_text_single(w, "response_store_evicted_total", "counter",
                        "Responses that went to make room for newer ones.",
                        (double)http->responses.num_evicted);
    metrics_text_single(w, "response_store_refused_total", "counter",
                        "Responses that were not kept, as they were too large or memory was short.",
                        (double)http->responses.num_refused);
    metrics_text_single(w, "memory_planned_bytes", "gauge",
                        "Memory that is used at most: the total printed at start.",
                        (double)http->planned_bytes);
}

/* class NULL: no such label. A key's name needs no escapes (key_entry.h). */
static void write_key_sample(const struct metrics_text *w, const char *name,
                             const struct api_key *key, const char *class, double value) {
    char number[METRICS_TEXT_NUMBER_CHARS];
    metrics_text_number(value, number);
    metrics_text_begin_sample(w, name, "");
    byte_buffer_printf(w->families->out, ",key=\"%s\"", key->entry.name);
    if (class != NULL)
        byte_buffer_printf(w->families->out, ",class=\"%s\"", class);
    byte_buffer_printf(w->families->out, "} %s\n", number);
}

static void write_key_requests(const struct metrics_text *w, const struct api_keys *keys) {
    static const char *const classes[] = {NULL, "1xx", "2xx", "3xx", "4xx", "5xx"};
    static const char name[] = "api_key_requests_total";
    const struct api_key *key = NULL;
    metrics_text_header(w, name, "counter", "Requests answered, by API key and class of status.");
    while ((key = api_keys_next(keys, key != NULL ? key->tenant : -1)) != NULL)
        for (int i = 2; i < 6; i++)
            write_key_sample(w, name, key, classes[i], (double)key->stats.requests_by_class[i]);
}

static double rate_limited(const struct api_key_stats *stats) {
    return (double)stats->rate_limited;
}

static double prompt_tokens(const struct api_key_stats *stats) {
    return (double)stats->prompt_tokens;
}

static double generation_tokens(const struct api_key_stats *stats) {
    return (double)stats->generation_tokens;
}

static double running(const struct api_key_stats *stats) {
    return (double)stats->num_running;
}

/* The samples of each key that is listed have its name in the label `key`. */
static void write_keys(const struct metrics_text *w, const struct api_keys *keys) {
    static const struct {
        const char *name, *type, *help;
        double (*read)(const struct api_key_stats *stats);
    } metrics[] = {
        {"api_key_rate_limited_total", "counter", "API calls refused for a limit of the API key.",
         rate_limited},
        {"api_key_prompt_tokens_total", "counter", "Prompt tokens of API calls, by API key.",
         prompt_tokens},
        {"api_key_generation_tokens_total", "counter", "Tokens generated, by API key.",
         generation_tokens},
        {"api_key_requests_running", "gauge", "API calls queued or running, by API key.", running},
    };
    write_key_requests(w, keys);
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        const struct api_key *key = NULL;
        metrics_text_header(w, metrics[i].name, metrics[i].type, metrics[i].help);
        while ((key = api_keys_next(keys, key != NULL ? key->tenant : -1)) != NULL)
            write_key_sample(w, metrics[i].name, key, NULL, metrics[i].read(&key->stats));
    }
}

/* --- The whole text --- */

/* What the configuration made of itself: gauges that are 1, with labels that say it (vLLM's
 * cache_config_info, Prometheus' convention for *_info). */
/* Names with commas between them; of those with running or waiting requests. */
static void write_adapter_names(const struct metrics_text *w, struct adapter *const *adapters,
                                int count, bool are_running) {
    bool is_first = true;
    for (int i = 0; i < count; i++) {
        const struct adapter *a = adapters[i];
        if (atomic_load(are_running ? &a->num_running : &a->num_waiting) == 0)
            continue;
        if (!is_first)
            byte_buffer_append_text(w->families->out, ",");
        metrics_text_label_value(w->families->out, a->name);
        is_first = false;
    }
}

/* vLLM's: its value is the time. */
static void write_adapters(const struct metrics_text *w, const struct metrics_model *model) {
    const struct metrics_facts *facts = model->facts;
    static const char info[] = "lora_requests_info", total[] = "lora_requests_total";
    struct adapter *adapters[LORA_MAX_SLOTS];
    if (facts->adapters == NULL)
        return;
    int count = served_adapters_list(facts->adapters, adapters);
    metrics_text_header(w, info, "gauge", "Adapters with running and waiting requests.");
    metrics_text_begin_sample(w, info, "");
    byte_buffer_printf(w->families->out, ",max_lora=\"%d\",running_lora_adapters=\"",
                       facts->max_adapters);
    write_adapter_names(w, adapters, count, true);
    byte_buffer_append_text(w->families->out, "\",waiting_lora_adapters=\"");
    write_adapter_names(w, adapters, count, false);
    byte_buffer_printf(w->families->out, "\"} %lld\n", (long long)time(NULL));
    metrics_text_header(w, total, "counter", "Accepted requests of each adapter.");
    for (int i = 0; i < count; i++) {
        metrics_text_begin_sample(w, total, "");
        byte_buffer_append_text(w->families->out, ",adapter=\"");
        metrics_text_label_value(w->families->out, adapters[i]->name);
        byte_buffer_printf(w->families->out, "\"} %llu\n",
                           (unsigned long long)atomic_load(&adapters[i]->num_submitted));
        adapter_unref(adapters[i]);
    }
}

static void write_info(const struct metrics_text *w, const struct metrics_model *model) {
    const struct metrics_facts *facts = model->facts;
    const struct engine_stats *s = &model->engine;
    metrics_text_header(w, "cache_config_info", "gauge", "The KV cache's configuration.");
    metrics_text_begin_sample(w, "cache_config_info", "");
    byte_buffer_printf(w->families->out,
                       ",block_size=\"%d\",num_gpu_blocks=\"%d\",num_cpu_blocks=\"%d\","
                       "cache_dtype=\"%s\",enable_prefix_caching=\"%s\"} 1.0\n",
                       s->block_size, s->num_blocks, s->num_host_blocks, facts->cache_dtype,
                       facts->has_prefix_caching ? "True" : "False");
    metrics_text_header(w, "build_info", "gauge", "The program, and where it computes.");
    metrics_text_begin_sample(w, "build_info", "");
    byte_buffer_append_text(w->families->out, ",version=\"" QUIRE_VERSION "\",device=\"");
    metrics_text_label_value(w->families->out, facts->device);
    byte_buffer_append_text(w->families->out, "\"} 1.0\n");
}

/* By the names and without the labels that Prometheus' client libraries give them:
 * prometheus.io/docs/instrumenting/writing_clientlibs, "Process metrics". */
static void write_process(struct byte_buffer *out, const struct process_stats *p) {
    const struct {
        const char *name, *type, *help;
        double value;
    } metrics[] = {
        {"process_cpu_seconds_total", "counter", "CPU time of the process.", p->cpu_seconds},
        {"process_resident_memory_bytes", "gauge", "Memory in use.", (double)p->resident_bytes},
        {"process_virtual_memory_bytes", "gauge", "Address space in use.",
         (double)p->virtual_bytes},
        {"process_start_time_seconds", "gauge", "Start, since 1970.", p->start_seconds},
        {"process_open_fds", "gauge", "Open file descriptors.", (double)p->num_files},
        {"process_max_fds", "gauge", "Most open file descriptors.", (double)p->max_files},
    };
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        char number[METRICS_TEXT_NUMBER_CHARS];
        metrics_text_number(metrics[i].value, number);
        byte_buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %s\n", metrics[i].name,
                           metrics[i].help, metrics[i].name, metrics[i].type, metrics[i].name,
                           number);
    }
}

/* The process metrics know nothing of rank processes, which hold weights and KV blocks. */
static void write_resident(const struct metrics_text *w, const struct metrics_server *server) {
    size_t bytes = server->process->resident_bytes;
    for (int i = 0; i < server->num_models; i++)
        if (server->models[i].has_rank_process)
            bytes += server->models[i].ranks.resident_bytes;
    metrics_text_single(w, "memory_resident_bytes", "gauge",
                        "Memory that is in use, of the rank process too.", (double)bytes);
}

static void write_rank_process(const struct metrics_text *w, const struct metrics_model *model) {
    if (!model->has_rank_process)
        return;
    metrics_text_single(w, "rank_process_resident_memory_bytes", "gauge",
                        "Memory of the rank process that is in use.",
                        (double)model->ranks.resident_bytes);
    metrics_text_single(w, "rank_process_cpu_seconds_total", "counter",
                        "CPU time of the rank process; begins at 0 when it is started again.",
                        model->ranks.cpu_seconds);
}

/* What is not known yet is left out. */
static void write_state(const struct metrics_text *w, const struct metrics_model *model) {
    static const char *const states[] = {"unloaded", "loading", "loaded", "sleeping"};
    metrics_text_header(w, "model_state", "gauge", "1 for the state that the model is in.");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        metrics_text_sample(w, "model_state", "", "state", states[i],
                            strcmp(states[i], model->status) == 0);
    metrics_text_single(w, "models_loads_total", "counter",
                        "Times that the model was loaded, or woke.", (double)model->num_loads);
    metrics_text_single(w, "models_sleeps_total", "counter",
                        "Times that the model was put to sleep.", (double)model->num_sleeps);
    metrics_text_single(w, "models_waits_total", "counter",
                        "Requests that had to wait for the model.", (double)model->num_waits);
    metrics_text_single(w, "model_requests_waiting", "gauge",
                        "Requests that wait until the model is loaded, or for its turn.",
                        (double)model->num_waiting);
    if (model->planned_bytes > 0)
        metrics_text_single(w, "model_planned_bytes", "gauge",
                            "Host memory that the model takes at most while it is loaded.",
                            (double)model->planned_bytes);
    if (model->load_seconds > 0)
        metrics_text_single(w, "model_load_seconds", "gauge",
                            "Time that the model took to be loaded or to wake, the last time.",
                            model->load_seconds);
}

static void
write_models(const struct metrics_server *server, struct metrics_text_families *families,
             void (*write)(const struct metrics_text *w, const struct metrics_model *model),
             bool only_loaded) {
    for (int i = 0; i < server->num_models; i++) {
        const struct metrics_model *model = &server->models[i];
        if (model->is_hidden || (only_loaded && model->facts == NULL))
            continue;
        struct metrics_text w = metrics_text_begin(server->prefix, model->name, families);
        write(&w, model);
        metrics_text_finish(&w);
    }
}

/* One model's are in this order since there is /metrics. */
void metrics_format(const struct metrics_server *server, struct byte_buffer *out) {
    struct metrics_text_families families = {0}, of_keys = {0};
    const char *name = server->has_several ? NULL : server->models[0].name;
    struct metrics_text w = metrics_text_begin(server->prefix, name, &families);
    write_models(server, &families, write_engine_metrics, true);
    write_models(server, &families, write_adapters, true);
    write_http(&w, server->http);
    write_models(server, &families, write_caches, true);
    write_memory_of_http(&w, server->http);
    write_models(server, &families, write_recording, true);
    write_resident(&w, server);
    write_models(server, &families, write_rank_process, true);
    write_models(server, &families, write_info, true);
    if (server->has_several) {
        write_models(server, &families, write_state, false);
        metrics_text_single(&w, "models_memory_bytes", "gauge",
                            "Host memory that all models together may take.",
                            (double)server->memory_bytes);
        metrics_text_single(&w, "models_memory_used_bytes", "gauge",
                            "Host memory that all models take at most, as they are now.",
                            (double)server->used_bytes);
    }
    metrics_text_families_finish(&families, out);
    write_process(out, server->process);
    w.families = &of_keys;
    if (server->keys != NULL && api_keys_are_needed(server->keys))
        write_keys(&w, server->keys);
    metrics_text_families_finish(&of_keys, out);
    metrics_text_finish(&w);
}
