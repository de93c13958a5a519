#include "server/queue_estimate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define TICK_MS 250

struct load {
    struct queue_estimate estimate;
    struct engine_stats stats;
    int64_t now_ms;
    double finished;
};

/* So many seconds with so many sequences running and waiting, and ending in each second. */
static void run(struct load *load, double seconds, int32_t num_running, int32_t num_waiting,
                double rate) {
    load->stats.num_running = num_running;
    load->stats.num_waiting = num_waiting;
    for (double t = 0; t < seconds; t += TICK_MS / 1e3) {
        load->now_ms += TICK_MS;
        load->finished += rate * TICK_MS / 1e3;
        load->stats.finished[FINISH_LENGTH] = (uint64_t)load->finished;
        queue_estimate_update(&load->estimate, &load->stats, load->now_ms);
    }
}

static void assert_wait(const struct load *load, int64_t ms) {
    assert_in_range(queue_estimate_wait_ms(&load->estimate), ms * 9 / 10, ms * 11 / 10);
}

static void test_wait_is_queue_over_rate(void **state) {
    struct load load = {.now_ms = 1};
    run(&load, 10, 8, 99, 5);
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

static void test_bounds(void **state) {
    struct load load = {.now_ms = 1};
    assert_int_equal(queue_estimate_wait_ms(&load.estimate), 1000);
    run(&load, 1, 8, 10, 0);
    assert_int_equal(queue_estimate_wait_ms(&load.estimate), 5000);
    run(&load, 10, 8, 100000, 1);
    assert_int_equal(queue_estimate_wait_ms(&load.estimate), 120000);
    run(&load, 10, 8, 1, 100);
    assert_int_equal(queue_estimate_wait_ms(&load.estimate), 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait_is_queue_over_rate),
        cmocka_unit_test(test_idle_time_says_nothing),
        cmocka_unit_test(test_recent_rate_counts),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
