#include "server/telemetry/traffic_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char line[TRAFFIC_LOG_LINE_BYTES];

static void test_traffic_is_described(void **state) {
    struct traffic_log log = {0};
    struct engine_stats stats = {.prompt_tokens = 1, .generation_tokens = 1, .num_blocks = 200};
    assert_false(traffic_log_update(&log, &stats, 5000, line));
    stats.prompt_tokens += 1000;
    stats.generation_tokens += 455;
    stats.prefix_queries = 1500;
    stats.prefix_hits = 500;
    stats.num_running = 3;
    stats.num_waiting = 2;
    stats.num_used_blocks = 25;
    assert_false(traffic_log_update(&log, &stats, 14999, line));
    assert_true(traffic_log_update(&log, &stats, 15000, line));
    assert_string_equal(line,
                        "traffic    prompt 100.0 tokens/s, generation 45.5 tokens/s; 3 running, 2 "
                        "waiting; KV cache 12.5 % used; prefix cache had 33.3 % of the prompts");
    stats.generation_tokens += 10;
    assert_true(traffic_log_update(&log, &stats, 25000, line));
    assert_string_equal(line, "traffic    prompt 0.0 tokens/s, generation 1.0 tokens/s; 3 running, "
                              "2 waiting; KV cache 12.5 % used");
}

static void test_idle_time_has_no_line(void **state) {
    struct traffic_log log = {0};
    struct engine_stats stats = {.prompt_tokens = 1, .num_used_blocks = 1, .num_blocks = 2};
    for (int64_t now_ms = 250; now_ms < 60000; now_ms += 250)
        assert_false(traffic_log_update(&log, &stats, now_ms, line));
    stats.num_waiting = 1;
    assert_true(traffic_log_update(&log, &stats, 80000, line));
    stats.num_waiting = 0;
    assert_false(traffic_log_update(&log, &stats, 90000, line));
    stats.prompt_tokens++; /* came and went between two looks */
    assert_true(traffic_log_update(&log, &stats, 100000, line));
}

static const struct access_record record = {.method = "POST",
                                            .route = "/v1/completions",
                                            .key = "team",
                                            .client = "10.0.0.7",
                                            .request_id = "req-1"};

static void test_refusal(void **state) {
    struct traffic_log log = {0};
    struct api_error error;
    bad_request(&error, "out_of_range", "n", "n must be at least 1, not 0");
    assert_true(traffic_log_refused(&log, &record, &error, 1, line));
    assert_string_equal(line, "refused    POST /v1/completions: 400 out_of_range: n must be at "
                              "least 1, not 0 (param n, key team, from 10.0.0.7, req-1)");
    const struct access_record bare = {.request_id = "req-2"};
    api_error_set(&error, 431, "invalid_request_error", NULL, NULL, "too large");
    assert_true(traffic_log_refused(&log, &bare, &error, 1, line));
    assert_string_equal(line, "refused    431: too large (req-2)");
}

static void test_values_of_clients_are_not_shown(void **state) {
    static const struct {
        const char *code, *message, *shown;
    } cases[] = {
        {"invalid_type", "stop must be a or \"b\", not \"my \\\"secret\\\"\"...",
         ": stop must be a or \"b\", not \"...\"... ("},
        {"unsupported_value", "it has a trigger: \"<secret \" of it>\" here",
         ": it has a trigger: \"...\" here ("},
        {"unsupported_value", "an odd \"secret", ": an odd \"...\" ("},
        {"chat_template_error", "the template refuses the messages: secret",
         ": the template refuses the messages ("},
        {"model_not_found", "The model \"llama\" does not exist", ": The model \"llama\" does not"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct traffic_log log = {0};
        struct api_error error;
        bad_request(&error, cases[i].code, NULL, "%s", cases[i].message);
        assert_true(traffic_log_refused(&log, &record, &error, 1, line));
        assert_non_null(strstr(line, cases[i].shown));
        assert_null(strstr(line, "secret"));
    }
}

/* Every part has its longest value. */
static void test_long_parts_are_cut(void **state) {
    struct traffic_log log = {0};
    struct api_error error = {.status = 400, .code = "invalid_type"};
    char text[400];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    memset(error.param, 'p', sizeof(error.param) - 1);
    memset(error.message, 'm', sizeof(error.message) - 1);
    const struct access_record longest = {.method = "POST",
                                          .route = "/v1/completions",
                                          .key = text,
                                          .client = text,
                                          .request_id = text};
    assert_true(traffic_log_refused(&log, &longest, &error, 1, line));
    assert_int_equal(line[strlen(line) - 1], ')');
}

static int count_lines(struct traffic_log *log, const char *code, int count, int64_t now_ms) {
    struct api_error error;
    int num_lines = 0;
    api_error_set(&error, 429, "requests", code, NULL, "too many");
    for (int i = 0; i < count; i++)
        num_lines += traffic_log_refused(log, &record, &error, now_ms, line);
    return num_lines;
}

static void test_many_refusals_are_counted(void **state) {
    struct traffic_log log = {0};
    assert_int_equal(count_lines(&log, "queue_full", 12, 1000), TRAFFIC_LOG_MAX_LINES);
    assert_int_equal(count_lines(&log, "other", 1, 1000), 1);
    assert_false(traffic_log_withheld(&log, 10999, line));
    assert_true(traffic_log_withheld(&log, 11000, line));
    assert_string_equal(line, "refused    7 more with 429 queue_full, not shown one by one");
    assert_false(traffic_log_withheld(&log, 11000, line));
    assert_int_equal(count_lines(&log, "queue_full", 1, 11000), 1);
}

static void test_causes_are_bounded(void **state) {
    static char codes[TRAFFIC_LOG_MAX_CAUSES + 9][16];
    struct traffic_log log = {0};
    int num_lines = 0, num_codes = TRAFFIC_LOG_MAX_CAUSES + 9;
    for (int i = 0; i < num_codes; i++) {
        snprintf(codes[i], sizeof(codes[i]), "code_%d", i);
        num_lines += count_lines(&log, codes[i], 1, 1000);
    }
    assert_int_equal(num_lines, TRAFFIC_LOG_MAX_CAUSES + TRAFFIC_LOG_MAX_LINES - 1);
    assert_true(traffic_log_withheld(&log, 20000, line));
    assert_non_null(strstr(line, "5 more with 429 code_31 and other causes,"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traffic_is_described),
        cmocka_unit_test(test_idle_time_has_no_line),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_values_of_clients_are_not_shown),
        cmocka_unit_test(test_long_parts_are_cut),
        cmocka_unit_test(test_many_refusals_are_counted),
        cmocka_unit_test(test_causes_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
