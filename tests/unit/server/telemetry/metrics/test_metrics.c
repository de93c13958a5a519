/* Reads the text back line by line, as a scraper does. */
#include "server/telemetry/metrics/metrics.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct executor_memory rank_memory[] = {
    {.weight_bytes = 6000000000,
     .adapter_bytes = 7,
     .draft_bytes = 9,
     .workspace_bytes = 12,
     .kv_bytes = 20,
     .swap_bytes = 160},
    {.weight_bytes = 4000000001, .workspace_bytes = 8, .kv_bytes = 21, .swap_bytes = 0}};

static struct metrics_facts facts = {.device = "a \"CPU\"",
                                     .cache_dtype = "f16",
                                     .has_prefix_caching = true,
                                     .num_ranks = 2,
                                     .are_waits_known = true,
                                     .rank_memory = rank_memory};

static char *format_server(struct metrics_server server) {
    struct byte_buffer out = {0};
    const struct process_stats process = {.cpu_seconds = 1.5,
                                          .start_seconds = 1795461892.25,
                                          .virtual_bytes = 3000000000,
                                          .resident_bytes = 1000000000,
                                          .num_files = 12,
                                          .max_files = 1024};
    server.prefix = "quire:";
    server.process = &process;
    metrics_format(&server, &out);
    byte_buffer_append(&out, "", 1);
    assert_false(out.failed);
    return out.data;
}

static char *format_model(const struct metrics_model *model, const struct http_stats *http) {
    return format_server((struct metrics_server){.models = model, .num_models = 1, .http = http});
}

static struct metrics_model model_with(const struct engine_stats *engine, const char *name) {
    return (struct metrics_model){.name = name, .facts = &facts, .engine = *engine};
}

static char *format(const struct engine_stats *engine, const struct http_stats *http,
                    const char *name) {
    const struct metrics_model model = model_with(engine, name);
    return format_model(&model, http);
}

/* The value of the sample that the line's start names exactly; labels included. */
static double sample(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, name, length) == 0 && line[length] == ' ')
            return strtod(line + length, NULL);
    }
    fail_msg("no sample %s in\n%s", name, text);
    return 0;
}

#define LABELS "{model_name=\"m\",engine=\"0\"}"
#define LABELS_AND(more) "{model_name=\"m\",engine=\"0\"," more "}"

static void counters_and_gauges_have_their_values(void **state) {
    struct engine_stats engine;
    engine_stats_init(&engine);
    engine.num_running = 3;
    engine.num_waiting = 4;
    engine.num_blocks = 200;
    engine.num_used_blocks = 50;
    engine.block_size = 16;
    engine.num_held_tokens = 780;
    engine.num_swapped = 2;
    engine.num_cached_blocks = 60;
    engine.num_known_blocks = 95;
    engine.num_host_blocks = 70;
    engine.num_used_host_blocks = 7;
    engine.prefix_queries = 1000;
    engine.prefix_hits = 640;
    engine.preemptions_swap = 3;
    engine.preemptions_recompute = 2;
    engine.copied_blocks = 9;
    engine.num_mask_jobs = 4;
    engine.mask_jobs = 55;
    engine.mask_job_seconds = 1.5;
    engine.swapped_out_blocks = 31;
    engine.swapped_in_blocks = 30;
    engine.step = 12345678901;
    engine.prompt_tokens = 11;
    engine.generation_tokens = 22;
    engine.preemptions = 5;
    engine.finished[FINISH_STOP] = 6;
    engine.finished[FINISH_LENGTH] = 7;
    engine.finished[FINISH_DEADLINE] = 8;
    engine.finished[FINISH_QUEUE_TIMEOUT] = 9;
    engine.finished[FINISH_ASLEEP] = 10;
    engine.finished[FINISH_ABORT] = 11;
    engine.finished[FINISH_CRASHED] = 12;
    engine.finished[FINISH_ERROR] = 13;
    engine.rank_restarts = 4;
    engine.idle = (struct engine_idle_stats){
        .num_sleeps = 60, .num_wakes = 59, .num_wake_failures = 3, .wake_seconds = 2.5};
    struct http_stats http = {
        .requests_by_class = {0, 0, 100, 0, 10, 1},
        .rejected = 2,
        .connections = 33,
        .held_bytes = 44,
        .responses = {.bytes = 3000, .num_entries = 2, .num_evicted = 5, .num_refused = 7},
        .planned_bytes = 5000000000,
        .log_lines_lost = 7};
    struct metrics_model model = model_with(&engine, "m");
    model.grammars = (struct grammar_cache_stats){.hits = 21, .misses = 22, .bytes = 23};
    model.kv_events = (struct kv_event_stats){.batches = 24, .lost_batches = 25};
    char *text = format_model(&model, &http);
    assert_true(sample(text, "quire:kv_event_batches_total" LABELS) == 24);
    assert_true(sample(text, "quire:kv_event_batches_lost_total" LABELS) == 25);
    assert_true(sample(text, "quire:num_requests_running" LABELS) == 3);
    assert_true(sample(text, "quire:num_requests_waiting" LABELS) == 4);
    assert_true(sample(text, "quire:kv_cache_usage_perc" LABELS) == 0.25);
    assert_true(sample(text, "quire:gpu_cache_usage_perc" LABELS) == 0.25);
    assert_true(sample(text, "quire:gpu_prefix_cache_queries_total" LABELS) == 1000);
    assert_true(sample(text, "quire:gpu_prefix_cache_hits_total" LABELS) == 640);
    assert_true(sample(text, "quire:kv_blocks_total" LABELS) == 200);
    assert_true(sample(text, "quire:kv_blocks_used" LABELS) == 50);
    assert_true(sample(text, "quire:kv_tokens_held" LABELS) == 780);
    assert_true(sample(text, "quire:kv_cache_waste_perc" LABELS) == 1 - 780.0 / 800);
    assert_true(sample(text, "quire:kv_block_size" LABELS) == 16);
    assert_true(sample(text, "quire:kv_blocks_cached" LABELS) == 60);
    assert_true(sample(text, "quire:kv_blocks_known" LABELS) == 95);
    assert_true(sample(text, "quire:num_requests_swapped" LABELS) == 2);
    assert_true(sample(text, "quire:swap_blocks_total" LABELS) == 70);
    assert_true(sample(text, "quire:swap_blocks_used" LABELS) == 7);
    assert_true(sample(text, "quire:prefix_cache_queries_total" LABELS) == 1000);
    assert_true(sample(text, "quire:prefix_cache_hits_total" LABELS) == 640);
    assert_true(sample(text, "quire:kv_blocks_copied_total" LABELS) == 9);
    assert_true(sample(text, "quire:grammar_cache_hits_total" LABELS) == 21);
    assert_true(sample(text, "quire:grammar_cache_misses_total" LABELS) == 22);
    assert_true(sample(text, "quire:grammar_cache_bytes" LABELS) == 23);
    assert_true(sample(text, "quire:grammar_mask_jobs_running" LABELS) == 4);
    assert_true(sample(text, "quire:grammar_mask_jobs_total" LABELS) == 55);
    assert_true(sample(text, "quire:grammar_mask_job_seconds_total" LABELS) == 1.5);
    assert_true(sample(text, "quire:kv_blocks_swapped_total" LABELS_AND("direction=\"out\"")) ==
                31);
    assert_true(sample(text, "quire:kv_blocks_swapped_total" LABELS_AND("direction=\"in\"")) == 30);
    assert_true(sample(text, "quire:preemptions_by_mode_total" LABELS_AND("mode=\"swap\"")) == 3);
    assert_true(sample(text, "quire:preemptions_by_mode_total" LABELS_AND("mode=\"recompute\"")) ==
                2);
    assert_true(sample(text, "quire:engine_steps_total" LABELS) == 12345678901);
    assert_true(sample(text, "quire:prompt_tokens_total" LABELS) == 11 + 640);
    assert_true(sample(text, "quire:generation_tokens_total" LABELS) == 22);
    assert_true(sample(text, "quire:num_preemptions_total" LABELS) == 5);
    assert_true(sample(text, "quire:rank_restarts_total" LABELS) == 4);
    assert_true(sample(text, "quire:idle_sleeps_total" LABELS) == 60);
    assert_true(sample(text, "quire:idle_wakes_total" LABELS) == 59);
    assert_true(sample(text, "quire:idle_wake_seconds_total" LABELS) == 2.5);
    assert_true(sample(text, "quire:idle_wake_failures_total" LABELS) == 3);
    static const char *const reasons[] = {"stop",   "length", "deadline", "queue_timeout",
                                          "asleep", "abort",  "crashed",  "error"};
    for (int i = 0; i < 8; i++) {
        char name[128];
        snprintf(name, sizeof(name), "quire:request_success_total" LABELS_AND("%s=\"%s\""),
                 "finished_reason", reasons[i]);
        assert_true(sample(text, name) == 6 + i);
    }
    assert_true(sample(text, "quire:http_requests_total" LABELS_AND("class=\"2xx\"")) == 100);
    assert_true(sample(text, "quire:http_requests_total" LABELS_AND("class=\"4xx\"")) == 10);
    assert_true(sample(text, "quire:http_requests_total" LABELS_AND("class=\"5xx\"")) == 1);
    assert_true(sample(text, "quire:http_requests_rejected_total" LABELS) == 2);
    assert_true(sample(text, "quire:http_connections" LABELS) == 33);
    assert_true(sample(text, "quire:http_held_bytes" LABELS) == 44);
    assert_true(sample(text, "quire:response_store_entries" LABELS) == 2);
    assert_true(sample(text, "quire:response_store_bytes" LABELS) == 3000);
    assert_true(sample(text, "quire:response_store_evicted_total" LABELS) == 5);
    assert_true(sample(text, "quire:response_store_refused_total" LABELS) == 7);
    assert_true(sample(text, "quire:memory_resident_bytes" LABELS) == 1e9);
    assert_true(sample(text, "quire:memory_planned_bytes" LABELS) == 5e9);
    assert_true(sample(text, "quire:log_lines_lost_total" LABELS) == 7);
    assert_true(sample(text, "quire:prompt_tokens_cached_total" LABELS) == 640);
    assert_true(sample(text, "quire:prompt_tokens_by_source_total" LABELS_AND(
                                 "source=\"local_compute\"")) == 11);
    assert_true(sample(text, "quire:prompt_tokens_by_source_total" LABELS_AND(
                                 "source=\"local_cache_hit\"")) == 640);
    assert_true(sample(text, "quire:num_requests_waiting_by_reason" LABELS_AND(
                                 "reason=\"capacity\"")) == 4);
    assert_true(sample(text, "quire:cache_config_info" LABELS_AND(
                                 "block_size=\"16\",num_gpu_blocks=\"200\","
                                 "num_cpu_blocks=\"70\",cache_dtype=\"f16\","
                                 "enable_prefix_caching=\"True\"")) == 1);
    assert_true(sample(text, "quire:build_info" LABELS_AND("version=\"" QUIRE_VERSION
                                                           "\",device=\"a \\\"CPU\\\"\"")) == 1);
    assert_true(sample(text, "process_cpu_seconds_total") == 1.5);
    assert_true(sample(text, "process_start_time_seconds") == 1795461892.25);
    assert_true(sample(text, "process_virtual_memory_bytes") == 3e9);
    assert_true(sample(text, "process_resident_memory_bytes") == 1e9);
    assert_true(sample(text, "process_open_fds") == 12);
    assert_true(sample(text, "process_max_fds") == 1024);
    free(text);
}

static void drafts_are_counted_where_they_are_configured(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    char *text = format(&engine, &http, "m");
    assert_null(strstr(text, "spec_decode"));
    free(text);
    engine.num_speculative_tokens = 3;
    text = format(&engine, &http, "m");
    assert_true(sample(text, "quire:spec_decode_draft_acceptance_rate" LABELS) == 0);
    free(text);
    engine_stats_add_draft(&engine, 3, 2);
    engine_stats_add_draft(&engine, 1, 1);
    text = format(&engine, &http, "m");
    assert_true(sample(text, "quire:spec_decode_num_drafts_total" LABELS) == 2);
    assert_true(sample(text, "quire:spec_decode_num_draft_tokens_total" LABELS) == 4);
    assert_true(sample(text, "quire:spec_decode_num_accepted_tokens_total" LABELS) == 3);
    assert_true(sample(text, "quire:spec_decode_draft_acceptance_rate" LABELS) == 0.75);
    static const double counts[] = {2, 1, 0};
    for (int i = 0; i < 3; i++) {
        char name[128];
        snprintf(name, sizeof(name),
                 "quire:spec_decode_num_accepted_tokens_per_pos_total" LABELS_AND("%s=\"%d\""),
                 "position", i);
        assert_true(sample(text, name) == counts[i]);
    }
    assert_null(strstr(text, "position=\"3\""));
    free(text);
}

static void histograms_are_cumulative(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    static const double seconds[] = {0.0005, 0.001, 0.003, 0.9, 1.0, 5000.0};
    for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++)
        histogram_add(&engine.time_to_first_token, seconds[i]);
    char *text = format(&engine, &http, "m");
    const char *name = "quire:time_to_first_token_seconds";
    static const struct {
        const char *bound;
        double count;
    } expected[] = {{"0.001", 2}, {"0.005", 3},  {"0.75", 3},
                    {"1.0", 5},   {"2560.0", 5}, {"+Inf", 6}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        char line[160];
        snprintf(line, sizeof(line), "%s_bucket" LABELS_AND("le=\"%s\""), name, expected[i].bound);
        assert_true(sample(text, line) == expected[i].count);
    }
    assert_true(sample(text, "quire:time_to_first_token_seconds_count" LABELS) == 6);
    assert_true(sample(text, "quire:time_to_first_token_seconds_sum" LABELS) > 5001.9);
    free(text);
}

static void steps_are_timed_by_part(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    histogram_add(&engine.step_gap, 0);
    histogram_add(&engine.step_gap, 18e-6);
    histogram_add(&engine.step_host[STEP_PART_BUILD], 3e-6);
    histogram_add(&engine.step_host[STEP_PART_COMMIT], 0.25);
    char *text = format(&engine, &http, "m");
    assert_true(sample(text, "quire:step_gap_seconds_bucket" LABELS_AND("le=\"0.0\"")) == 1);
    assert_true(sample(text, "quire:step_gap_seconds_bucket" LABELS_AND("le=\"1.5e-05\"")) == 1);
    assert_true(sample(text, "quire:step_gap_seconds_bucket" LABELS_AND("le=\"2e-05\"")) == 2);
    assert_true(sample(text, "quire:step_gap_seconds_bucket" LABELS_AND("le=\"1.0\"")) == 2);
    assert_true(sample(text, "quire:step_gap_seconds_count" LABELS) == 2);
#define OF_PART(part, more) LABELS_AND("part=\"" part "\"" more)
    assert_true(sample(text, "quire:step_host_seconds_bucket" OF_PART("build", ",le=\"2e-06\"")) ==
                0);
    assert_true(sample(text, "quire:step_host_seconds_bucket" OF_PART("build", ",le=\"5e-06\"")) ==
                1);
    assert_true(sample(text, "quire:step_host_seconds_sum" OF_PART("commit", "")) == 0.25);
    assert_true(sample(text, "quire:step_host_seconds_count" OF_PART("commit", "")) == 1);
    static const char *const others[] = {"loop", "schedule", "launch", "wait"};
    for (int i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof(name), "quire:step_host_seconds_count" LABELS_AND("part=\"%s\""),
                 others[i]);
        assert_true(sample(text, name) == 0);
    }
    free(text);
}

static void errors_are_counted_by_cause(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    static char codes[METRICS_HTTP_MAX_CAUSES + 10][8];
    engine_stats_init(&engine);
    metrics_http_count_error(&http, 429, "queue_full");
    metrics_http_count_error(&http, 429, "queue_full");
    metrics_http_count_error(&http, 503, "queue_full");
    metrics_http_count_error(&http, 500, NULL);
    char *text = format(&engine, &http, "m");
    assert_true(sample(text, "quire:http_errors_total" LABELS_AND(
                                 "status=\"429\",code=\"queue_full\"")) == 2);
    assert_true(sample(text, "quire:http_errors_total" LABELS_AND(
                                 "status=\"503\",code=\"queue_full\"")) == 1);
    assert_true(sample(text, "quire:http_errors_total" LABELS_AND("status=\"500\",code=\"\"")) ==
                1);
    free(text);
    for (int i = 0; i < METRICS_HTTP_MAX_CAUSES + 10; i++) {
        snprintf(codes[i], sizeof(codes[i]), "c%d", i);
        metrics_http_count_error(&http, 400, codes[i]);
    }
    assert_int_equal(http.num_causes, METRICS_HTTP_MAX_CAUSES);
    assert_string_equal(http.errors[METRICS_HTTP_MAX_CAUSES - 1].code, "other");
    assert_int_equal(http.errors[METRICS_HTTP_MAX_CAUSES - 1].count, 14);
}

static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == ':';
}

static void memory_of_a_rank_process_counts(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    struct metrics_model model = model_with(&engine, "m");
    model.has_rank_process = true;
    model.ranks = (struct process_stats){.cpu_seconds = 7.5, .resident_bytes = 500000000};
    char *text = format_model(&model, &http);
    assert_true(sample(text, "quire:memory_resident_bytes" LABELS) == 1.5e9);
    assert_true(sample(text, "quire:rank_process_resident_memory_bytes" LABELS) == 5e8);
    assert_true(sample(text, "quire:rank_process_cpu_seconds_total" LABELS) == 7.5);
    assert_true(sample(text, "process_resident_memory_bytes") == 1e9);
    free(text);
    text = format(&engine, &http, "m");
    assert_null(strstr(text, "rank_process_"));
    free(text);
}

static double sample_of_rank(const char *text, const char *name, int rank, const char *more) {
    char line[160];
    snprintf(line, sizeof(line), "quire:%s" LABELS_AND("rank=\"%d\"%s"), name, rank, more);
    return sample(text, line);
}

static void ranks_have_their_own(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    char *text = format(&engine, &http, "m");
    assert_null(strstr(text, "rank_compute_seconds_total"));
    for (int r = 0; r < 2; r++) {
        const struct executor_memory *memory = &rank_memory[r];
        const double expected[] = {(double)memory->weight_bytes, (double)memory->adapter_bytes,
                                   (double)memory->draft_bytes,  (double)memory->workspace_bytes,
                                   (double)memory->kv_bytes,     (double)memory->swap_bytes};
        static const char *const parts[] = {",part=\"weights\"",  ",part=\"adapters\"",
                                            ",part=\"draft\"",    ",part=\"workspace\"",
                                            ",part=\"kv_cache\"", ",part=\"swap\""};
        for (int i = 0; i < 6; i++)
            assert_true(sample_of_rank(text, "rank_memory_bytes", r, parts[i]) == expected[i]);
    }
    free(text);
    engine.num_ranks = 2;
    engine.ranks[0] = (struct rank_stats){1500000000, 250000000, 4096};
    engine.ranks[1] = (struct rank_stats){3000000000, 125000000, 8192};
    text = format(&engine, &http, "m");
    for (int r = 0; r < 2; r++) {
        assert_true(sample_of_rank(text, "rank_compute_seconds_total", r, "") == 1.5 * (r + 1));
        assert_true(sample_of_rank(text, "rank_communication_seconds_total", r, "") ==
                    0.25 / (r + 1));
        assert_true(sample_of_rank(text, "rank_sent_bytes_total", r, "") == 4096 * (r + 1));
    }
    free(text);
    facts.are_waits_known = false;
    text = format(&engine, &http, "m");
    facts.are_waits_known = true;
    assert_null(strstr(text, "rank_communication_seconds_total"));
    assert_true(sample_of_rank(text, "rank_sent_bytes_total", 1, "") == 8192);
    free(text);
}

/* The first word of the line: a sample with its labels, whose values have no spaces here. */
static bool is_in(const char *text, const char *line) {
    size_t length = strcspn(line, " ");
    for (const char *at = text; (at = strstr(at, "\n")) != NULL && at[1] != '\0'; at++)
        if (strncmp(at + 1, line, length) == 0 && at[1 + length] == ' ')
            return true;
    return false;
}

static void check_sample(const char *line, const char *announced) {
    size_t length = 0;
    char *value = strrchr(line, ' '), *end;
    while (is_name_char(line[length]))
        length++;
    assert_memory_equal(line, announced, strlen(announced));
    assert_int_equal(line[length], strncmp(line, "process_", 8) == 0 ? ' ' : '{');
    assert_true(line[length] == ' ' || (line[length + 1] != ',' && line[length + 1] != '}'));
    assert_non_null(value);
    strtod(value + 1, &end);
    assert_true(end > value + 1 && *end == '\n');
    if (strncmp(announced, "quire:build_info", 16) != 0) /* whose labels have spaces */
        assert_false(is_in(end, line));
}

/* Every line is HELP, TYPE or a sample of the metric they announced, which is announced once; every
 * number is one; and no sample is there twice. */
static void check_format(const char *text) {
    char announced[128] = "", name[128], type[32];
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (sscanf(line, "# HELP %127s", name) == 1) {
            char help[160];
            strcpy(announced, name);
            snprintf(help, sizeof(help), "# HELP %s ", name);
            assert_null(strstr(line + 1, help));
        } else if (sscanf(line, "# TYPE %127s %31s", name, type) == 2) {
            assert_string_equal(name, announced);
            assert_true(strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0 ||
                        strcmp(type, "histogram") == 0);
        } else {
            check_sample(line, announced);
        }
    }
}

static void text_follows_the_format(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    engine.num_speculative_tokens = MAX_SPECULATIVE_TOKENS;
    engine.num_ranks = BACKEND_MAX_RANKS;
    char *text = format(&engine, &http, "m");
    assert_null(strstr(text, "model_state"));
    check_format(text);
    free(text);
}

/* Two that are loaded, of which only the second has drafts and a rank process, one that is not, and
 * one that is hidden, except for its memory. */
static void several_models_share_families(void **state) {
    struct engine_stats engine;
    struct http_stats http = {.connections = 3, .requests_by_class = {0, 0, 7}};
    engine_stats_init(&engine);
    engine.num_running = 3;
    struct metrics_model models[] = {model_with(&engine, "m"),
                                     model_with(&engine, "n"),
                                     {.name = "o", .status = "unloaded", .num_waiting = 2},
                                     model_with(&engine, "p")};
    models[0].status = "sleeping";
    models[1].status = models[3].status = "loaded";
    models[1].engine.num_running = 4;
    models[1].engine.num_speculative_tokens = 1;
    models[1].has_rank_process = true;
    models[1].ranks.resident_bytes = 500;
    models[3].is_hidden = models[3].has_rank_process = true;
    models[3].ranks.resident_bytes = 6000;
    models[1].grammars.hits = 6;
    models[1].planned_bytes = 700;
    models[1].load_seconds = 1.5;
    models[1].num_loads = 8;
    models[1].num_sleeps = 9;
    models[1].num_waits = 10;
    char *text = format_server((struct metrics_server){.models = models,
                                                       .num_models = 4,
                                                       .has_several = true,
                                                       .memory_bytes = 900,
                                                       .used_bytes = 800,
                                                       .http = &http});
    check_format(text);
#define LABELS_OF(model) "{model_name=\"" model "\",engine=\"0\"}"
#define STATE_OF(model, name) "{model_name=\"" model "\",engine=\"0\",state=\"" name "\"}"
    assert_true(sample(text, "quire:num_requests_running" LABELS_OF("m")) == 3);
    assert_true(sample(text, "quire:num_requests_running" LABELS_OF("n")) == 4);
    assert_null(strstr(text, "quire:num_requests_running" LABELS_OF("o")));
    assert_null(strstr(text, "model_name=\"p\""));
    assert_null(strstr(text, "quire:spec_decode_num_drafts_total" LABELS_OF("m")));
    assert_true(sample(text, "quire:spec_decode_num_drafts_total" LABELS_OF("n")) == 0);
    assert_true(sample(text, "quire:grammar_cache_hits_total" LABELS_OF("n")) == 6);
    assert_true(sample(text, "quire:rank_process_resident_memory_bytes" LABELS_OF("n")) == 500);
    assert_true(sample(text, "quire:memory_resident_bytes{engine=\"0\"}") == 1e9 + 6500);
    assert_true(sample(text, "quire:http_connections{engine=\"0\"}") == 3);
    assert_true(sample(text, "quire:http_requests_total{engine=\"0\",class=\"2xx\"}") == 7);
    assert_true(sample(text, "quire:model_state" STATE_OF("m", "sleeping")) == 1);
    assert_true(sample(text, "quire:model_state" STATE_OF("m", "loaded")) == 0);
    assert_true(sample(text, "quire:model_state" STATE_OF("o", "unloaded")) == 1);
    assert_true(sample(text, "quire:model_requests_waiting" LABELS_OF("o")) == 2);
    assert_true(sample(text, "quire:model_planned_bytes" LABELS_OF("n")) == 700);
    assert_null(strstr(text, "quire:model_planned_bytes" LABELS_OF("o")));
    assert_true(sample(text, "quire:model_load_seconds" LABELS_OF("n")) == 1.5);
    assert_null(strstr(text, "quire:model_load_seconds" LABELS_OF("o")));
    assert_true(sample(text, "quire:models_loads_total" LABELS_OF("n")) == 8);
    assert_true(sample(text, "quire:models_sleeps_total" LABELS_OF("n")) == 9);
    assert_true(sample(text, "quire:models_waits_total" LABELS_OF("n")) == 10);
    assert_true(sample(text, "quire:models_memory_bytes{engine=\"0\"}") == 900);
    assert_true(sample(text, "quire:models_memory_used_bytes{engine=\"0\"}") == 800);
    free(text);
}

static void label_values_are_escaped(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    char *text = format(&engine, &http, "a\"b\\c\nd");
    assert_true(sample(text, "quire:num_requests_running{model_name=\"a\\\"b\\\\c\\nd\","
                             "engine=\"0\"}") == 0);
    free(text);
}

static void an_empty_pool_is_not_a_division_by_zero(void **state) {
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    char *text = format(&engine, &http, "m");
    assert_true(sample(text, "quire:kv_cache_usage_perc" LABELS) == 0);
    assert_true(sample(text, "quire:kv_cache_waste_perc" LABELS) == 0);
    free(text);
}

/* A name that the file of keys may give, and one it may not. */
static void keys_have_lines_of_their_own(void **state) {
    char plain[] = "a", what[KEY_WHAT_BYTES];
    char *fixed[] = {plain};
    struct error err;
    struct api_keys *keys = NULL, *none = NULL;
    struct engine_stats engine;
    struct http_stats http = {0};
    engine_stats_init(&engine);
    const struct metrics_model model = model_with(&engine, "m");
    struct metrics_server server = {.models = &model, .num_models = 1, .http = &http};
    struct key_file file = {.num_keys = 1, .keys = calloc(1, sizeof(*file.keys))};
    key_entry_init(&file.keys[0]);
    assert_int_equal(key_entry_set(&file.keys[0], key_field_find("name", 4), "team-a", what), 0);
    assert_int_equal(api_keys_create(NULL, 0, &none, &err), 0);
    server.keys = none;
    char *text = format_server(server);
    assert_null(strstr(text, "api_key"));
    free(text);
    assert_int_equal(api_keys_create(fixed, 1, &keys, &err), 0);
    assert_int_equal(api_keys_replace(keys, &file, &err), 0);
    struct api_key *key = api_keys_find(keys, "Bearer a", NULL);
    key->stats = (struct api_key_stats){.requests_by_class = {0, 0, 3, 0, 2, 1},
                                        .rate_limited = 4,
                                        .prompt_tokens = 500,
                                        .generation_tokens = 60,
                                        .num_running = 7};
    server.keys = keys;
    text = format_server(server);
    check_format(text);
#define OF(key) "{model_name=\"m\",engine=\"0\",key=\"" key "\"}"
#define OF_CLASS(key, class) "{model_name=\"m\",engine=\"0\",key=\"" key "\",class=\"" class "\"}"
    assert_true(sample(text, "quire:api_key_requests_total" OF_CLASS("#1", "2xx")) == 3);
    assert_true(sample(text, "quire:api_key_requests_total" OF_CLASS("#1", "4xx")) == 2);
    assert_true(sample(text, "quire:api_key_requests_total" OF_CLASS("#1", "5xx")) == 1);
    assert_true(sample(text, "quire:api_key_requests_total" OF_CLASS("team-a", "2xx")) == 0);
    assert_true(sample(text, "quire:api_key_rate_limited_total" OF("#1")) == 4);
    assert_true(sample(text, "quire:api_key_prompt_tokens_total" OF("#1")) == 500);
    assert_true(sample(text, "quire:api_key_generation_tokens_total" OF("#1")) == 60);
    assert_true(sample(text, "quire:api_key_requests_running" OF("#1")) == 7);
    assert_true(sample(text, "quire:api_key_requests_running" OF("team-a")) == 0);
    free(text);
    key_file_finish(&file);
    api_keys_destroy(keys);
    api_keys_destroy(none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_lines_of_their_own),
        cmocka_unit_test(counters_and_gauges_have_their_values),
        cmocka_unit_test(drafts_are_counted_where_they_are_configured),
        cmocka_unit_test(histograms_are_cumulative),
        cmocka_unit_test(steps_are_timed_by_part),
        cmocka_unit_test(errors_are_counted_by_cause),
        cmocka_unit_test(memory_of_a_rank_process_counts),
        cmocka_unit_test(ranks_have_their_own),
        cmocka_unit_test(text_follows_the_format),
        cmocka_unit_test(several_models_share_families),
        cmocka_unit_test(label_values_are_escaped),
        cmocka_unit_test(an_empty_pool_is_not_a_division_by_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
