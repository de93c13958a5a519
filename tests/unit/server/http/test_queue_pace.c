#include "server/http/queue_pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Ends one request each period, while so many wait. */
static int64_t run(struct queue_pace *pace, int count, int64_t period_ms, int64_t num_waiting,
                   int64_t now_ms) {
    queue_pace_update(pace, 0, num_waiting, now_ms);
    for (int i = 0; i < count; i++) {
        now_ms += period_ms;
        queue_pace_update(pace, 1, num_waiting, now_ms);
    }
    return now_ms;
}

static void test_unknown_until_some_ended(void **state) {
    struct queue_pace pace = {0};
    assert_int_equal(queue_pace_wait_ms(&pace, 5, 1000), -1);
    int64_t now_ms = run(&pace, 1, 100, 5, 1000);
    assert_int_equal(queue_pace_wait_ms(&pace, 5, now_ms), -1);
    now_ms = run(&pace, 4, 100, 5, now_ms);
    assert_in_range(queue_pace_wait_ms(&pace, 5, now_ms), 450, 550);
}

static void test_the_wait_is_what_waits_at_the_clients_own_rate(void **state) {
    struct queue_pace fast = {0}, slow = {0};
    int64_t now_ms = run(&fast, 1000, 10, 50, 1000);
    assert_in_range(queue_pace_wait_ms(&fast, 50, now_ms), 490, 510);
    now_ms = run(&slow, 100, 1000, 9, 1000);
    assert_in_range(queue_pace_wait_ms(&slow, 9, now_ms), 8500, 9500);
    assert_in_range(queue_pace_wait_ms(&slow, 0, now_ms), 950, 1050);
}

static void test_time_without_a_queue_does_not_count(void **state) {
    struct queue_pace pace = {0};
    int64_t now_ms = run(&pace, 20, 100, 3, 1000);
    queue_pace_update(&pace, 1, 0, now_ms + 100);
    now_ms += 3600 * 1000;
    queue_pace_update(&pace, 0, 4, now_ms);
    assert_in_range(queue_pace_wait_ms(&pace, 4, now_ms), 350, 450);
}

static void test_a_client_whose_requests_stop_ending_waits_longer(void **state) {
    struct queue_pace pace = {0};
    int64_t now_ms = run(&pace, 20, 100, 3, 1000);
    assert_in_range(queue_pace_wait_ms(&pace, 3, now_ms + 18000), 2600, 3400);
}

static void test_a_new_rate_is_learned(void **state) {
    struct queue_pace pace = {0};
    int64_t now_ms = run(&pace, 500, 100, 10, 1000);
    now_ms = run(&pace, 60, 1000, 10, now_ms);
    assert_in_range(queue_pace_wait_ms(&pace, 9, now_ms), 7200, 9450);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_until_some_ended),
        cmocka_unit_test(test_the_wait_is_what_waits_at_the_clients_own_rate),
        cmocka_unit_test(test_time_without_a_queue_does_not_count),
        cmocka_unit_test(test_a_client_whose_requests_stop_ending_waits_longer),
        cmocka_unit_test(test_a_new_rate_is_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
