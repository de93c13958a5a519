#include "server/http/engine_monitor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_idle_engine_is_alive(void **state) {
    struct engine_monitor monitor = {0};
    struct engine_stats stats = {.step = 7};
    engine_monitor_update(&monitor, &stats, 1000);
    engine_monitor_update(&monitor, &stats, 100000);
    assert_true(engine_monitor_is_alive(&monitor, 100000));
}

static void test_working_engine_is_alive(void **state) {
    struct engine_monitor monitor = {0};
    struct engine_stats stats = {.num_running = 1, .has_work = true};
    for (int64_t now_ms = 1000; now_ms < 60000; now_ms += 4000) {
        stats.step++;
        engine_monitor_update(&monitor, &stats, now_ms);
        assert_true(engine_monitor_is_alive(&monitor, now_ms + 3999));
    }
}

static void test_engine_that_waits_for_readers_is_alive(void **state) {
    struct engine_monitor monitor = {0};
    struct engine_stats stats = {.step = 3, .num_running = 1};
    engine_monitor_update(&monitor, &stats, 1000);
    engine_monitor_update(&monitor, &stats, 60000);
    assert_true(engine_monitor_is_alive(&monitor, 60000));
    assert_int_equal(engine_monitor_stuck_ms(&monitor, 60700), 700);
}

static void test_stuck_engine_is_not(void **state) {
    struct engine_monitor monitor = {0};
    struct engine_stats stats = {.step = 3};
    engine_monitor_update(&monitor, &stats, 1000);
    stats.has_work = true; /* nobody counts it as running or waiting before its first step */
    engine_monitor_update(&monitor, &stats, 1250);
    engine_monitor_update(&monitor, &stats, 1000 + ENGINE_STUCK_MS + 1);
    assert_false(engine_monitor_is_alive(&monitor, 1000 + ENGINE_STUCK_MS + 1));
    stats.step++;
    engine_monitor_update(&monitor, &stats, 7000);
    assert_true(engine_monitor_is_alive(&monitor, 7000));
    stats.is_restarting = true; /* which takes its time */
    engine_monitor_update(&monitor, &stats, 8000 + ENGINE_STUCK_MS);
    assert_true(engine_monitor_is_alive(&monitor, 8000 + ENGINE_STUCK_MS));
}

#define TICK_MS 250

struct load {
    struct engine_monitor monitor;
    struct engine_stats stats;
    int64_t now_ms;
    double finished;
};

/* Lets so many sequences run and wait for so many seconds, and `rate` of them end in each. */
static void run(struct load *load, double seconds, int32_t num_running, int32_t num_waiting,
                double rate) {
    load->stats.num_running = num_running;
    load->stats.num_waiting = num_waiting;
    for (double t = 0; t < seconds; t += TICK_MS / 1e3) {
        load->now_ms += TICK_MS;
        load->finished += rate * TICK_MS / 1e3;
        load->stats.finished[FINISH_LENGTH] = (uint64_t)load->finished;
        engine_monitor_update(&load->monitor, &load->stats, load->now_ms);
    }
}

static void assert_wait(const struct load *load, int64_t ms) {
    assert_in_range(engine_monitor_wait_ms(&load->monitor), ms * 9 / 10, ms * 11 / 10);
}

static void test_wait_is_queue_over_rate(void **state) {
    struct load load = {.now_ms = 1};
    run(&load, 10, 8, 99, 5);
    assert_wait(&load, 20000);
}

static void test_time_of_some(void **state) {
    struct load load = {.now_ms = 1};
    assert_int_equal(engine_monitor_time_ms(&load.monitor, 1000), 0);
    run(&load, 10, 8, 99, 5);
    assert_in_range(engine_monitor_time_ms(&load.monitor, 1), 180, 220);
    assert_in_range(engine_monitor_time_ms(&load.monitor, 1000000), 180000000, 220000000);
}

/* Who leaves the queue for its timeout was not served. */
static void test_queue_timeouts_are_no_rate(void **state) {
    struct load load = {.now_ms = 1};
    run(&load, 10, 8, 99, 5);
    load.stats.finished[FINISH_QUEUE_TIMEOUT] = 1000;
    run(&load, 1, 8, 99, 5);
    assert_wait(&load, 20000);
}

static void test_idle_time_says_nothing(void **state) {
    struct load load = {.now_ms = 1};
    run(&load, 10, 8, 0, 5);
    run(&load, 1000, 0, 0, 0);
    run(&load, 1, 8, 99, 5);
    assert_wait(&load, 20000);
}

static void test_recent_rate_counts(void **state) {
    struct load load = {.now_ms = 1};
    run(&load, 100, 8, 49, 50);
    run(&load, 100, 8, 49, 5);
    assert_wait(&load, 10000);
}

static void test_wait_has_bounds(void **state) {
    struct load load = {.now_ms = 1};
    assert_int_equal(engine_monitor_wait_ms(&load.monitor), 1000);
    run(&load, 1, 8, 10, 0);
    assert_int_equal(engine_monitor_wait_ms(&load.monitor), 5000);
    run(&load, 10, 8, 100000, 1);
    assert_int_equal(engine_monitor_wait_ms(&load.monitor), 120000);
    run(&load, 10, 8, 1, 100);
    assert_int_equal(engine_monitor_wait_ms(&load.monitor), 1000);
}

/* --- The pace of one client's queue --- */

/* Ends one request each period, while so many wait. */
static int64_t run_pace(struct queue_pace *pace, int count, int64_t period_ms, int64_t num_waiting,
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
    int64_t now_ms = run_pace(&pace, 1, 100, 5, 1000);
    assert_int_equal(queue_pace_wait_ms(&pace, 5, now_ms), -1);
    now_ms = run_pace(&pace, 4, 100, 5, now_ms);
    assert_in_range(queue_pace_wait_ms(&pace, 5, now_ms), 450, 550);
}

static void test_the_wait_is_what_waits_at_the_clients_own_rate(void **state) {
    struct queue_pace fast = {0}, slow = {0};
    int64_t now_ms = run_pace(&fast, 1000, 10, 50, 1000);
    assert_in_range(queue_pace_wait_ms(&fast, 50, now_ms), 490, 510);
    now_ms = run_pace(&slow, 100, 1000, 9, 1000);
    assert_in_range(queue_pace_wait_ms(&slow, 9, now_ms), 8500, 9500);
    assert_in_range(queue_pace_wait_ms(&slow, 0, now_ms), 950, 1050);
}

static void test_time_without_a_queue_does_not_count(void **state) {
    struct queue_pace pace = {0};
    int64_t now_ms = run_pace(&pace, 20, 100, 3, 1000);
    queue_pace_update(&pace, 1, 0, now_ms + 100);
    now_ms += 3600 * 1000;
    queue_pace_update(&pace, 0, 4, now_ms);
    assert_in_range(queue_pace_wait_ms(&pace, 4, now_ms), 350, 450);
}

static void test_a_client_whose_requests_stop_ending_waits_longer(void **state) {
    struct queue_pace pace = {0};
    int64_t now_ms = run_pace(&pace, 20, 100, 3, 1000);
    assert_in_range(queue_pace_wait_ms(&pace, 3, now_ms + 18000), 2600, 3400);
}

static void test_a_new_rate_is_learned(void **state) {
    struct queue_pace pace = {0};
    int64_t now_ms = run_pace(&pace, 500, 100, 10, 1000);
    now_ms = run_pace(&pace, 60, 1000, 10, now_ms);
    assert_in_range(queue_pace_wait_ms(&pace, 9, now_ms), 7200, 9450);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_engine_is_alive),
        cmocka_unit_test(test_working_engine_is_alive),
        cmocka_unit_test(test_engine_that_waits_for_readers_is_alive),
        cmocka_unit_test(test_stuck_engine_is_not),
        cmocka_unit_test(test_wait_is_queue_over_rate),
        cmocka_unit_test(test_time_of_some),
        cmocka_unit_test(test_queue_timeouts_are_no_rate),
        cmocka_unit_test(test_idle_time_says_nothing),
        cmocka_unit_test(test_recent_rate_counts),
        cmocka_unit_test(test_wait_has_bounds),
        cmocka_unit_test(test_unknown_until_some_ended),
        cmocka_unit_test(test_the_wait_is_what_waits_at_the_clients_own_rate),
        cmocka_unit_test(test_time_without_a_queue_does_not_count),
        cmocka_unit_test(test_a_client_whose_requests_stop_ending_waits_longer),
        cmocka_unit_test(test_a_new_rate_is_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
