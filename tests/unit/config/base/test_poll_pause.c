#include "config/base/poll_pause.h"

#include "config/base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>

#include <cmocka.h>

static void test_naps(void **state) {
    const struct poll_pace pace = {.spin_ns = 200000, .longest_nap_ns = CLOCK_NS_PER_MS};
    assert_int_equal(poll_nap_ns(&pace, 0), 0);
    assert_int_equal(poll_nap_ns(&pace, 199999), 0);
    assert_int_equal(poll_nap_ns(&pace, 200000), POLL_LEAST_NAP_NS);
    assert_int_equal(poll_nap_ns(&pace, 64 * POLL_LEAST_NAP_NS), POLL_LEAST_NAP_NS);
    assert_int_equal(poll_nap_ns(&pace, 128 * POLL_LEAST_NAP_NS), 2 * POLL_LEAST_NAP_NS);
    assert_int_equal(poll_nap_ns(&pace, CLOCK_NS_PER_S), CLOCK_NS_PER_MS);
}

static void test_naps_of_one_length(void **state) {
    const struct poll_pace pace = {.spin_ns = CLOCK_NS_PER_MS, .longest_nap_ns = POLL_LEAST_NAP_NS};
    assert_int_equal(poll_nap_ns(&pace, CLOCK_NS_PER_MS - 1), 0);
    assert_int_equal(poll_nap_ns(&pace, CLOCK_NS_PER_MS), POLL_LEAST_NAP_NS);
    assert_int_equal(poll_nap_ns(&pace, 100 * CLOCK_NS_PER_S), POLL_LEAST_NAP_NS);
}

/* It sleeps as long as it says. */
static void test_pauses(void **state) {
    const struct poll_pace pace = {.spin_ns = 1000, .longest_nap_ns = CLOCK_NS_PER_MS};
    int64_t start_ns = clock_now_ns();
    poll_pause(&pace, 0);
    poll_pause(&pace, CLOCK_NS_PER_S);
    assert_true(clock_now_ns() - start_ns >= CLOCK_NS_PER_MS);
}

/* Of the thread that sleeps, and not before. */
static void test_sleeps_end_in_time(void **state) {
    const struct poll_pace pace = {.spin_ns = 1000, .longest_nap_ns = POLL_LEAST_NAP_NS};
    assert_int_equal(prctl(PR_SET_TIMERSLACK, 40000), 0);
    poll_pause(&pace, 0);
    assert_int_equal(prctl(PR_GET_TIMERSLACK), 40000);
    poll_pause(&pace, CLOCK_NS_PER_S);
    assert_int_equal(prctl(PR_GET_TIMERSLACK), 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sleeps_end_in_time),
        cmocka_unit_test(test_naps),
        cmocka_unit_test(test_naps_of_one_length),
        cmocka_unit_test(test_pauses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
