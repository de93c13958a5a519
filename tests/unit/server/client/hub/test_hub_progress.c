/* What is said while a download runs, and when. */
#include "server/client/hub/hub_progress.h"

#include "config/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((int64_t)1 << 20)
#define START_NS (1000 * CLOCK_NS_PER_S)

/* After so many tenths of a second. */
static void check(struct hub_progress *progress, int64_t mib, int64_t tenths, enum hub_message kind,
                  const char *expected) {
    char line[HUB_PROGRESS_LINE_BYTES] = "";
    int64_t now_ns = START_NS + tenths * CLOCK_NS_PER_S / 10;
    assert_int_equal(hub_progress_update(progress, mib * MIB, 1000 * MIB, now_ns, line), kind);
    assert_string_equal(line, expected);
}

static void test_a_log_gets_a_line_every_five_seconds(void **state) {
    struct hub_progress progress;
    hub_progress_start(&progress, 0, START_NS, false);
    check(&progress, 40, 49, HUB_NONE, "");
    check(&progress, 50, 50, HUB_LINE, "fetching   5 % of 1000.0 MiB, 10.0 MiB/s, 95 s left");
    check(&progress, 90, 99, HUB_NONE, "");
    check(&progress, 100, 100, HUB_LINE, "fetching   10 % of 1000.0 MiB, 10.0 MiB/s, 90 s left");
}

static void test_a_terminal_gets_four_a_second(void **state) {
    struct hub_progress progress;
    hub_progress_start(&progress, 500 * MIB, START_NS, true);
    check(&progress, 500, 2, HUB_NONE, "");
    check(&progress, 500, 3, HUB_STATUS, "fetching   50 % of 1000.0 MiB, 0 bytes/s");
    check(&progress, 506, 6, HUB_STATUS, "fetching   50 % of 1000.0 MiB, 20.0 MiB/s, 25 s left");
}

static void test_the_rate_follows(void **state) {
    struct hub_progress progress;
    hub_progress_start(&progress, 0, START_NS, false);
    check(&progress, 50, 50, HUB_LINE, "fetching   5 % of 1000.0 MiB, 10.0 MiB/s, 95 s left");
    check(&progress, 50, 100, HUB_LINE, "fetching   5 % of 1000.0 MiB, 7.0 MiB/s, 2 min left");
    /* a server that begins anew brings nothing */
    check(&progress, 10, 150, HUB_LINE, "fetching   1 % of 1000.0 MiB, 4.9 MiB/s, 3 min left");
}

static void test_the_end(void **state) {
    struct hub_progress progress;
    char line[HUB_PROGRESS_LINE_BYTES];
    hub_progress_start(&progress, 500 * MIB, START_NS, false);
    hub_progress_end(&progress, 1000 * MIB, START_NS + 5 * CLOCK_NS_PER_S, line);
    assert_string_equal(line, "fetched    500.0 MiB in 5.0 s, 100.0 MiB/s");
    hub_progress_end(&progress, 500 * MIB, START_NS, line);
    assert_string_equal(line, "fetched    0 bytes in 0.0 s, 0 bytes/s");
}

static void test_sizes(void **state) {
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {{0, "0 bytes"},
                 {1023, "1023 bytes"},
                 {1024, "1.0 KiB"},
                 {3 * MIB / 2, "1.5 MiB"},
                 {INT64_MAX, "8388608.0 TiB"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[HUB_SIZE_BYTES];
        hub_progress_print_size(cases[i].bytes, text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_log_gets_a_line_every_five_seconds),
        cmocka_unit_test(test_a_terminal_gets_four_a_second),
        cmocka_unit_test(test_the_rate_follows),
        cmocka_unit_test(test_the_end),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
