#include "server/http/prep_workers.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

struct square_job {
    struct prep_job job;
    int input, output;
};

static void square(struct prep_job *job) {
    struct square_job *self = (struct square_job *)job;
    self->output = self->input * self->input;
}

static atomic_int num_dropped;

static void drop(struct prep_job *job) {
    num_dropped++;
}

static int collect(struct prep_workers *workers, int *sum) {
    struct pollfd readable = {.fd = prep_workers_fd(workers), .events = POLLIN};
    int count = 0;
    assert_true(poll(&readable, 1, 10000) == 1);
    for (struct prep_job *job = prep_workers_take_done(workers); job; job = job->next) {
        *sum += ((struct square_job *)job)->output;
        count++;
    }
    return count;
}

static void test_all_jobs_come_back_done(void **state) {
    enum { COUNT = 1000 };
    struct square_job *jobs = calloc(COUNT, sizeof(*jobs));
    struct prep_workers *workers;
    struct error err;
    int sum = 0, expected = 0, done = 0;
    assert_int_equal(prep_workers_create(&workers, &err), 0);
    for (int i = 0; i < COUNT; i++) {
        jobs[i] = (struct square_job){{(enum prep_queue)(i % PREP_NUM_QUEUES), square}, i % 10, 0};
        expected += (i % 10) * (i % 10);
        prep_workers_push(workers, &jobs[i].job);
    }
    while (done < COUNT)
        done += collect(workers, &sum);
    assert_int_equal(sum, expected);
    assert_null(prep_workers_take_done(workers));
    prep_workers_destroy(workers, drop);
    free(jobs);
}

static void test_order_is_kept_in_a_queue(void **state) {
    struct square_job jobs[3] = {
        {{PREP_LONG, square}, 1, 0}, {{PREP_LONG, square}, 2, 0}, {{PREP_LONG, square}, 3, 0}};
    struct prep_workers *workers;
    struct error err;
    assert_int_equal(prep_workers_create(&workers, &err), 0);
    for (int i = 0; i < 3; i++)
        prep_workers_push(workers, &jobs[i].job);
    struct pollfd readable = {.fd = prep_workers_fd(workers), .events = POLLIN};
    int next = 0;
    while (next < 3) {
        assert_true(poll(&readable, 1, 10000) == 1);
        for (struct prep_job *job = prep_workers_take_done(workers); job; job = job->next)
            assert_ptr_equal(job, &jobs[next++].job);
    }
    prep_workers_destroy(workers, drop);
}

static atomic_bool may_end;

static void wait_for_leave(struct prep_job *job) {
    while (!may_end)
        ;
}

static void test_long_jobs_do_not_hold_up_short_ones(void **state) {
    struct square_job held[4] = {{{PREP_LONG, wait_for_leave}, 0, 0},
                                 {{PREP_BULK, wait_for_leave}, 0, 0},
                                 {{PREP_LONG, wait_for_leave}, 0, 0},
                                 {{PREP_BULK, wait_for_leave}, 0, 0}};
    struct square_job quick = {{PREP_SHORT, square}, 7, 0};
    struct prep_workers *workers;
    struct error err;
    int sum = 0;
    may_end = false;
    assert_int_equal(prep_workers_create(&workers, &err), 0);
    for (int i = 0; i < 4; i++)
        prep_workers_push(workers, &held[i].job);
    prep_workers_push(workers, &quick.job);
    assert_int_equal(collect(workers, &sum), 1);
    assert_int_equal(sum, 49);
    may_end = true;
    for (int done = 0; done < 4;)
        done += collect(workers, &sum);
    prep_workers_destroy(workers, drop);
}

static void test_destroy_hands_back_every_job(void **state) {
    enum { COUNT = 50 };
    struct square_job jobs[COUNT];
    struct prep_workers *workers;
    struct error err;
    num_dropped = 0;
    assert_int_equal(prep_workers_create(&workers, &err), 0);
    for (int i = 0; i < COUNT; i++) {
        jobs[i] = (struct square_job){{.run = square}, i, 0};
        prep_workers_push(workers, &jobs[i].job);
    }
    prep_workers_destroy(workers, drop);
    assert_int_equal(num_dropped, COUNT);
    prep_workers_destroy(NULL, drop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_jobs_come_back_done),
        cmocka_unit_test(test_order_is_kept_in_a_queue),
        cmocka_unit_test(test_long_jobs_do_not_hold_up_short_ones),
        cmocka_unit_test(test_destroy_hands_back_every_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
