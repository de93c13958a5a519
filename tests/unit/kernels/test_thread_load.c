#include "kernels/thread_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WINDOW_NS THREAD_LOAD_WINDOW_NS

/* Adds a window of work that lost `percent` of its time; the clock goes on by so much. */
static void work(struct thread_load *load, int64_t *now_ns, int64_t percent) {
    *now_ns += WINDOW_NS;
    thread_load_add(load, *now_ns, WINDOW_NS, WINDOW_NS * percent / 100);
}

static void test_quiet_work_uses_all_threads(void **state) {
    struct thread_load load;
    int64_t now_ns = 0;
    thread_load_init(&load, 4);
    for (int i = 0; i < 100; i++) {
        work(&load, &now_ns, i % 10);
        assert_int_equal(load.num_active, 4);
    }
}

static void test_a_thread_that_costs_more_than_it_does_is_left_out(void **state) {
    static const struct {
        int num_threads, percent, num_active;
    } cases[] = {{1, 90, 1}, {2, 35, 2}, {2, 45, 1}, {4, 15, 4}, {4, 25, 3}, {16, 8, 15}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct thread_load load;
        int64_t now_ns = 0;
        thread_load_init(&load, cases[i].num_threads);
        work(&load, &now_ns, cases[i].percent);
        assert_int_equal(load.num_active, cases[i].num_active);
    }
}

static void test_a_short_stall_is_not_judged_alone(void **state) {
    struct thread_load load;
    thread_load_init(&load, 2);
    thread_load_add(&load, 1, WINDOW_NS / 4, WINDOW_NS / 4);
    assert_int_equal(load.num_active, 2);
    thread_load_add(&load, 2, WINDOW_NS * 3 / 4, 0);
    assert_int_equal(load.num_active, 2);
}

/* Returns how long a thread is left out, when each trial goes as badly. */
static int64_t pause_of(struct thread_load *load, int64_t *now_ns) {
    work(load, now_ns, 60);
    assert_int_equal(load->num_active, 1);
    int64_t begin_ns = *now_ns;
    while (load->num_active == 1)
        work(load, now_ns, 0);
    assert_int_equal(load->num_active, 2);
    return *now_ns - begin_ns;
}

static void test_trials_become_rare_and_frequent_again(void **state) {
    struct thread_load load;
    int64_t now_ns = 0, expected_ns = THREAD_LOAD_MIN_PAUSE_NS;
    thread_load_init(&load, 2);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pause_of(&load, &now_ns), expected_ns);
        if (expected_ns < THREAD_LOAD_MAX_PAUSE_NS)
            expected_ns *= 2;
    }
    assert_int_equal(expected_ns, THREAD_LOAD_MAX_PAUSE_NS);
    for (int i = 0; i < 8; i++)
        work(&load, &now_ns, 0);
    assert_int_equal(pause_of(&load, &now_ns), THREAD_LOAD_MIN_PAUSE_NS);
}

static void test_threads_go_and_come_one_by_one(void **state) {
    struct thread_load load;
    int64_t now_ns = 0;
    thread_load_init(&load, 3);
    work(&load, &now_ns, 90);
    assert_int_equal(load.num_active, 2);
    work(&load, &now_ns, 90);
    assert_int_equal(load.num_active, 1);
    work(&load, &now_ns, 90);
    assert_int_equal(load.num_active, 1);
    int before = 1;
    while (load.num_active < 3) {
        work(&load, &now_ns, 0);
        assert_true(load.num_active - before <= 1);
        before = load.num_active;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quiet_work_uses_all_threads),
        cmocka_unit_test(test_a_thread_that_costs_more_than_it_does_is_left_out),
        cmocka_unit_test(test_a_short_stall_is_not_judged_alone),
        cmocka_unit_test(test_trials_become_rare_and_frequent_again),
        cmocka_unit_test(test_threads_go_and_come_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
