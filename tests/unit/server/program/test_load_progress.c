#include "server/program/load_progress.h"

#include "config/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((size_t)1 << 30)
#define START_NS (1000 * CLOCK_NS_PER_S)

/* After so many tenths of a second. */
static void check(struct load_progress *progress, size_t bytes_read, int64_t tenths,
                  enum load_progress_kind kind, const char *expected) {
    char line[LOAD_PROGRESS_LINE_BYTES] = "";
    int64_t now_ns = START_NS + tenths * CLOCK_NS_PER_S / 10;
    assert_int_equal(load_progress_update(progress, bytes_read, 8 * GIB, now_ns, line), kind);
    assert_string_equal(line, expected);
}

static void test_nothing_of_a_short_load(void **state) {
    struct load_progress progress;
    load_progress_start(&progress, START_NS, true);
    check(&progress, 1 * GIB, 1, LOAD_PROGRESS_NONE, "");
    check(&progress, 7 * GIB, 19, LOAD_PROGRESS_NONE, "");
    check(&progress, 8 * GIB, 25, LOAD_PROGRESS_NONE, "");
}

static void test_a_terminal_gets_four_a_second(void **state) {
    struct load_progress progress;
    load_progress_start(&progress, START_NS, true);
    check(&progress, 1 * GIB, 10, LOAD_PROGRESS_NONE, "");
    check(&progress, 2 * GIB, 20, LOAD_PROGRESS_STATUS,
          "loading    25 % of 8.0 GiB, 1.00 GiB/s, 6.0 s left");
    check(&progress, 3 * GIB, 22, LOAD_PROGRESS_NONE, "");
    check(&progress, 6 * GIB, 23, LOAD_PROGRESS_STATUS,
          "loading    75 % of 8.0 GiB, 2.61 GiB/s, 0.8 s left");
    check(&progress, 8 * GIB, 24, LOAD_PROGRESS_LOG, "loaded     8.0 GiB in 2.4 s, 3.33 GiB/s");
}

static void test_a_log_gets_one_every_five_seconds(void **state) {
    struct load_progress progress;
    load_progress_start(&progress, START_NS, false);
    check(&progress, 1 * GIB, 19, LOAD_PROGRESS_NONE, "");
    check(&progress, 1 * GIB, 20, LOAD_PROGRESS_LOG,
          "loading    12 % of 8.0 GiB, 0.50 GiB/s, 14.0 s left");
    check(&progress, 4 * GIB, 69, LOAD_PROGRESS_NONE, "");
    check(&progress, 4 * GIB, 80, LOAD_PROGRESS_LOG,
          "loading    50 % of 8.0 GiB, 0.50 GiB/s, 8.0 s left");
    check(&progress, 5 * GIB, 120, LOAD_PROGRESS_NONE, "");
    check(&progress, 8 * GIB, 160, LOAD_PROGRESS_LOG, "loaded     8.0 GiB in 16.0 s, 0.50 GiB/s");
}

static void test_a_late_first_read_says_nothing_of_the_rate(void **state) {
    struct load_progress progress;
    load_progress_start(&progress, START_NS, true);
    check(&progress, 0, 30, LOAD_PROGRESS_NONE, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_of_a_short_load),
        cmocka_unit_test(test_a_terminal_gets_four_a_second),
        cmocka_unit_test(test_a_log_gets_one_every_five_seconds),
        cmocka_unit_test(test_a_late_first_read_says_nothing_of_the_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
