/* Quantiles, and a load that nobody answers. What servers do:
 * tests/e2e/operation/test_bench_command.py. */
#include "server/client/bench_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_quantiles(void **state) {
    float values[100];
    struct bench_samples samples = {values, 0, 100};
    assert_true(bench_samples_quantile(&samples, 0.5) == 0);
    for (int i = 0; i < 100; i++)
        values[i] = (float)((i * 37) % 100); /* 0 to 99, mixed */
    samples.count = 100;
    assert_true(bench_samples_quantile(&samples, 0) == 0);
    assert_true(bench_samples_quantile(&samples, 0.5) == 50);
    assert_true(bench_samples_quantile(&samples, 0.99) == 99);
    assert_true(bench_samples_quantile(&samples, 1) == 99);
    samples.count = 1;
    assert_true(bench_samples_quantile(&samples, 0.99) == 0);
}

static bool is_never_interrupted(void) {
    return false;
}

static void test_nobody_listens(void **state) {
    struct http_url url;
    struct error err;
    struct bench_figures figures;
    assert_int_equal(http_url_parse("http://127.0.0.1:1", &url, &err), 0);
    const struct bench_load load = {.url = &url,
                                    .key_field = "",
                                    .model = "m",
                                    .num_streams = 3,
                                    .requests_per_stream = 2,
                                    .input_tokens = 4,
                                    .output_tokens = 4,
                                    .is_interrupted = is_never_interrupted};
    assert_int_equal(bench_load_run(&load, &figures, &err), 0);
    assert_int_equal(figures.num_failed, 6);
    assert_int_equal(figures.num_answered, 0);
    assert_int_equal(figures.num_causes, 1);
    assert_int_equal(figures.causes[0].count, 6);
    assert_non_null(strstr(figures.causes[0].text, "cannot connect"));
    bench_figures_finish(&figures);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_nobody_listens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
