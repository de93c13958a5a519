/* A token bucket by a clock that the test sets. */
#include "server/keys/rate_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_no_limit(void **state) {
    struct rate_limit limit = {0};
    assert_int_equal(rate_limit_wait_ms(&limit, INT64_MAX / 2, 5), 0);
    rate_limit_take(&limit, 1000, 5);
    assert_int_equal(rate_limit_wait_ms(&limit, 1, 5), 0);
    assert_int_equal(rate_limit_remaining(&limit, 5), 0);
    assert_int_equal(rate_limit_reset_ms(&limit, 5), 0);
}

static void test_fills_evenly(void **state) {
    struct rate_limit limit = {0};
    int64_t now = 1000;
    rate_limit_set(&limit, 60, now);
    assert_int_equal(rate_limit_remaining(&limit, now), 60);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(rate_limit_wait_ms(&limit, 1, now), 0);
        rate_limit_take(&limit, 1, now);
    }
    assert_int_equal(rate_limit_remaining(&limit, now), 0);
    assert_int_equal(rate_limit_wait_ms(&limit, 1, now), 1000);
    assert_int_equal(rate_limit_wait_ms(&limit, 1, now + 400), 600);
    assert_int_equal(rate_limit_wait_ms(&limit, 1, now + 999), 1);
    assert_int_equal(rate_limit_wait_ms(&limit, 1, now + 1000), 0);
    assert_int_equal(rate_limit_reset_ms(&limit, now), 60000);
    assert_int_equal(rate_limit_remaining(&limit, now + 59999), 59);
    assert_int_equal(rate_limit_remaining(&limit, now + 60000), 60);
    assert_int_equal(rate_limit_remaining(&limit, now + INT64_C(1) * 86400000 * 365), 60);
}

/* An hour of as much as is allowed: neither a unit more nor one less. */
static void test_nothing_drifts(void **state) {
    struct rate_limit limit = {0};
    int64_t taken = 0, wait;
    rate_limit_set(&limit, 7, 0);
    for (int64_t now = 0; now<3600000; now += wait> 0 ? wait : 1) {
        wait = rate_limit_wait_ms(&limit, 1, now);
        if (wait == 0) {
            rate_limit_take(&limit, 1, now);
            taken++;
        }
    }
    assert_int_equal(taken, 7 + 7 * 60 - 1);
}

static void test_more_than_a_minute_allows(void **state) {
    struct rate_limit limit = {0};
    rate_limit_set(&limit, 100, 0);
    assert_int_equal(rate_limit_wait_ms(&limit, 101, 0), -1);
    assert_int_equal(rate_limit_wait_ms(&limit, 100, 0), 0);
}

/* An output longer than what was left is paid off before anything else is allowed. */
static void test_debt(void **state) {
    struct rate_limit limit = {0};
    rate_limit_set(&limit, 600, 0);
    rate_limit_take(&limit, 1200, 0);
    assert_int_equal(rate_limit_remaining(&limit, 0), 0);
    assert_int_equal(rate_limit_wait_ms(&limit, 1, 0), 60100);
    assert_int_equal(rate_limit_wait_ms(&limit, 0, 0), 60000);
    assert_int_equal(rate_limit_wait_ms(&limit, 0, 60000), 0);
    assert_int_equal(rate_limit_reset_ms(&limit, 0), 120000);
}

static void test_another_limit_keeps_what_was_used(void **state) {
    struct rate_limit limit = {0};
    rate_limit_set(&limit, 100, 0);
    rate_limit_take(&limit, 90, 0);
    rate_limit_set(&limit, 200, 0);
    assert_int_equal(rate_limit_remaining(&limit, 0), 110);
    rate_limit_set(&limit, 50, 0);
    assert_int_equal(rate_limit_remaining(&limit, 0), 0);
    assert_int_equal(rate_limit_wait_ms(&limit, 0, 0), 48000);
    rate_limit_set(&limit, 50, 48000);
    assert_int_equal(rate_limit_wait_ms(&limit, 0, 48000), 0);
    rate_limit_set(&limit, 0, 48000);
    assert_int_equal(rate_limit_wait_ms(&limit, 1000, 48000), 0);
    rate_limit_set(&limit, 5, 50000);
    assert_int_equal(rate_limit_remaining(&limit, 50000), 5);
}

/* The largest limit and the longest debt stay within what an int64_t holds. */
static void test_extremes(void **state) {
    struct rate_limit limit = {0};
    rate_limit_set(&limit, RATE_LIMIT_MAX, 0);
    for (int i = 0; i < 10; i++)
        rate_limit_take(&limit, INT64_MAX / 2, i);
    assert_int_equal(rate_limit_remaining(&limit, 10), 0);
    assert_true(rate_limit_wait_ms(&limit, RATE_LIMIT_MAX, 10) > 0);
    assert_int_equal(rate_limit_remaining(&limit, INT64_MAX), RATE_LIMIT_MAX);
    rate_limit_set(&limit, 1, 20);
    rate_limit_take(&limit, INT64_MAX, 20);
    assert_true(rate_limit_wait_ms(&limit, 1, 20) > 0);
    assert_int_equal(rate_limit_wait_ms(&limit, 1, 10), rate_limit_wait_ms(&limit, 1, 20));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_limit),
        cmocka_unit_test(test_fills_evenly),
        cmocka_unit_test(test_nothing_drifts),
        cmocka_unit_test(test_more_than_a_minute_allows),
        cmocka_unit_test(test_debt),
        cmocka_unit_test(test_another_limit_keeps_what_was_used),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
