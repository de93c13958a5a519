#include "server/client/top_view.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define HISTOGRAM(a, b, c, d)                                                                      \
    "vllm:t_bucket{engine=\"0\",le=\"0.1\"} " a "\nvllm:t_bucket{engine=\"0\",le=\"1.0\"} " b      \
    "\nvllm:t_bucket{engine=\"0\",le=\"10.0\"} " c "\nvllm:t_bucket{engine=\"0\",le=\"+Inf\"} " d  \
    "\nvllm:t_sum{engine=\"0\"} 9\n"

static const char text[] = "# HELP quire:a Something a{b=\"c\"} 1\n"
                           "# TYPE quire:a gauge\n"
                           "quire:a{m=\"x}\\\"y\",key=\"one\"} 1.5\n"
                           "quire:a{m=\"x\",key=\"two\"} 2\n"
                           "quire:a_b{key=\"one\"} 40\n"
                           "plain 7e2\n"
                           "quire:last{}  8";

static void test_sums(void **state) {
    assert_true(metrics_sample_sum(text, "a", NULL) == 3.5);
    assert_true(metrics_sample_sum(text, "a", "key=\"one\"") == 1.5);
    assert_true(metrics_sample_sum(text, "a", "key=\"none\"") == 0);
    assert_true(metrics_sample_sum(text, "a_b", NULL) == 40);
    assert_true(metrics_sample_sum(text, "plain", NULL) == 700);
    assert_true(metrics_sample_sum(text, "last", NULL) == 8);
    assert_true(metrics_sample_sum(text, "nothing", NULL) == 0);
    assert_true(metrics_sample_sum("", "a", NULL) == 0);
}

static void test_labels(void **state) {
    char name[4];
    const char *at = text;
    assert_true(metrics_sample_next(&at, "a", "key", name, sizeof(name)));
    assert_string_equal(name, "one");
    assert_true(metrics_sample_next(&at, "a", "key", name, sizeof(name)));
    assert_string_equal(name, "two");
    assert_false(metrics_sample_next(&at, "a", "key", name, sizeof(name)));
    at = "a{key=\"longer\"} 1";
    assert_true(metrics_sample_next(&at, "a", "key", name, sizeof(name)));
    assert_string_equal(name, "lon");
}

static void test_quantiles(void **state) {
    struct metrics_sample_histogram h, earlier;
    metrics_sample_histogram(HISTOGRAM("0", "10", "20", "20"), "t", &h);
    assert_int_equal(h.num_bounds, 4);
    assert_true(fabs(metrics_sample_quantile(&h, 0.25) - 0.55) < 1e-9);
    assert_true(fabs(metrics_sample_quantile(&h, 0.75) - 5.5) < 1e-9);
    metrics_sample_histogram(HISTOGRAM("0", "10", "10", "10"), "t", &earlier);
    metrics_sample_subtract(&h, &earlier);
    assert_true(metrics_sample_quantile(&h, 0.1) > 1);
    metrics_sample_histogram(HISTOGRAM("0", "0", "0", "4"), "t", &h);
    assert_true(metrics_sample_quantile(&h, 0.5) == 10); /* as far as is known */
    metrics_sample_subtract(&h, &earlier);               /* a server that began anew */
    assert_true(metrics_sample_quantile(&h, 0.5) == 10);
    metrics_sample_histogram(HISTOGRAM("0", "0", "0", "0"), "t", &h);
    assert_true(isnan(metrics_sample_quantile(&h, 0.5)));
    metrics_sample_histogram("", "t", &h);
    assert_true(isnan(metrics_sample_quantile(&h, 0.5)));
}

/* Whatever a server sends is read without harm. */
static void test_broken_text(void **state) {
    static const char *const broken[] = {
        "a{",       "a{key=\"",      "a{key=\"x\\",  "a{}", "a", ":", "a:b:c 1", "t_bucket{le=\"",
        "t_bucket", "t_bucket{le=}", "a{\"}\" 1\n{", "\n\n"};
    char name[8];
    struct metrics_sample_histogram h;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        const char *at = broken[i];
        metrics_sample_sum(broken[i], "a", "key=\"x\"");
        metrics_sample_histogram(broken[i], "t", &h);
        while (metrics_sample_next(&at, "a", "key", name, sizeof(name)))
            assert_true(strlen(name) < sizeof(name));
        assert_true(isnan(metrics_sample_quantile(&h, 0.5)));
    }
}

static void shows(const char *metrics, const char *earlier, const char *line) {
    struct byte_buffer view = {0};
    top_view_write(metrics, earlier, 2, &view);
    byte_buffer_append(&view, "", 1);
    assert_false(view.failed);
    if (strstr(view.data, line) == NULL)
        fail_msg("no line %s in\n%s", line, view.data);
    byte_buffer_finish(&view);
}

#define OF(model) "{model_name=\"" model "\",engine=\"0\"} "
#define IN(model, state) "quire:model_state{model_name=\"" model "\",state=\"" state "\"} "
#define SERVER(tokens)                                                                             \
    "quire:num_requests_running" OF("a") "3\nquire:num_requests_waiting" OF(                       \
        "a") "1\n"                                                                                 \
             "quire:kv_blocks_total" OF("a") "200\nquire:kv_blocks_used" OF(                       \
                 "a") "25\n"                                                                       \
                      "quire:generation_tokens_total" OF("a") tokens "\n"

static void test_models(void **state) {
    static const char one[] = SERVER("70");
    static const char several[] = SERVER("70")
        IN("a", "loaded") "1\n" IN("a", "loading") "0\n" IN("b\x1b", "loaded") "0\n" IN(
            "b\x1b",
            "loading") "1\n"
                       "quire:models_loads_total" OF("a") "1\nquire:models_loads_total" OF(
                           "b\x1b") "0\n"
                                    "quire:model_requests_waiting" OF(
                                        "a") "4\nquire:model_requests_waiting" OF("b\x1b") "6\n";
    shows(several, SERVER("50"), "2 models, up ");
    shows(several, SERVER("50"),
          "\nmodel                           state       running  waiting   out tok/s    in tok/s"
          "     KV %\n"
          "a                               loaded            3        5        10.0         0.0"
          "     12.5\n"
          "b?                              loading           0        6         0.0         0.0"
          "      0.0\n");
    shows(one, NULL, "a, up ");
    struct byte_buffer view = {0};
    top_view_write(one, NULL, 0, &view);
    byte_buffer_append(&view, "", 1);
    assert_null(strstr(view.data, "\nmodel "));
    byte_buffer_finish(&view);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),      cmocka_unit_test(test_labels),
        cmocka_unit_test(test_quantiles), cmocka_unit_test(test_broken_text),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
