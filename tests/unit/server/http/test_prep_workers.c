#include "server/http/prep_workers.h"

#include "config/base/clock.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ONE, NUM_OWNERS = 16 }; /* of most jobs */

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
    assert_int_equal(prep_workers_create(NUM_OWNERS, &workers, &err), 0);
    for (int i = 0; i < COUNT; i++) {
        jobs[i] =
            (struct square_job){{(enum prep_queue)(i % PREP_NUM_QUEUES), square, ONE}, i % 10, 0};
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
    struct square_job jobs[3] = {{{PREP_LONG, square, ONE}, 1, 0},
                                 {{PREP_LONG, square, ONE}, 2, 0},
                                 {{PREP_LONG, square, ONE}, 3, 0}};
    struct prep_workers *workers;
    struct error err;
    assert_int_equal(prep_workers_create(NUM_OWNERS, &workers, &err), 0);
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
    struct square_job held[4] = {{{PREP_LONG, wait_for_leave, ONE}, 0, 0},
                                 {{PREP_BULK, wait_for_leave, ONE}, 0, 0},
                                 {{PREP_LONG, wait_for_leave, ONE}, 0, 0},
                                 {{PREP_BULK, wait_for_leave, ONE}, 0, 0}};
    struct square_job quick = {{PREP_SHORT, square, ONE}, 7, 0};
    struct prep_workers *workers;
    struct error err;
    int sum = 0;
    may_end = false;
    assert_int_equal(prep_workers_create(NUM_OWNERS, &workers, &err), 0);
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

/* A job that takes a millisecond of processor time and notes which one it was. */
static atomic_int num_spent;

struct spending_job {
    struct prep_job job;
    int place;
};

static void spend(struct prep_job *job) {
    int64_t begin_ns = clock_thread_ns();
    while (clock_thread_ns() - begin_ns < CLOCK_NS_PER_MS)
        ;
    ((struct spending_job *)job)->place = num_spent++;
}

static void wait_for(struct prep_workers *workers, int count) {
    struct pollfd readable = {.fd = prep_workers_fd(workers), .events = POLLIN};
    while (count > 0) {
        assert_true(poll(&readable, 1, 10000) == 1);
        for (struct prep_job *job = prep_workers_take_done(workers); job; job = job->next)
            count--;
    }
}

/* Three owners fill a queue, and the jobs of others that come then are next. In a queue that one
 * worker alone serves, the order is exact. */
static void test_owners_take_turns(void **state) {
    enum { GREEDY = 3, EACH = 50, OTHERS = 4 };
    struct spending_job jobs[GREEDY * EACH + OTHERS];
    struct square_job held = {{PREP_HUGE, wait_for_leave, ONE}, 0, 0};
    struct prep_workers *workers;
    struct error err;
    int count = 0;
    may_end = false;
    num_spent = 0;
    assert_int_equal(prep_workers_create(NUM_OWNERS, &workers, &err), 0);
    prep_workers_push(workers, &held.job);
    for (; count < GREEDY * EACH; count++)
        jobs[count] = (struct spending_job){{PREP_HUGE, spend, 1 + count / EACH}, -1};
    for (; count < GREEDY * EACH + OTHERS; count++)
        jobs[count] =
            (struct spending_job){{PREP_HUGE, spend, 1 + GREEDY + count - GREEDY * EACH}, -1};
    for (int i = 0; i < count; i++)
        prep_workers_push(workers, &jobs[i].job);
    may_end = true;
    wait_for(workers, count + 1);
    for (int i = GREEDY * EACH; i < count; i++)
        assert_true(jobs[i].place < GREEDY + OTHERS);
    int most = 0; /* turns that one of the greedy ones was ahead of another */
    for (int i = 0; i < EACH; i++) {
        int ahead = jobs[i].place - jobs[EACH + i].place;
        most = abs(ahead) > most ? abs(ahead) : most;
    }
    assert_true(most < 10);
    prep_workers_destroy(workers, drop);
}

/* Whoever was idle for long has no credit: it does not keep others waiting until it has had as
 * much. */
static void test_idle_owners_gain_no_credit(void **state) {
    enum { BEFORE = 30, EACH = 10, BUSY = 1, IDLE = 2 };
    struct spending_job jobs[BEFORE + 2 * EACH];
    struct square_job held = {{PREP_HUGE, wait_for_leave, ONE}, 0, 0};
    struct prep_workers *workers;
    struct error err;
    assert_int_equal(prep_workers_create(NUM_OWNERS, &workers, &err), 0);
    for (int i = 0; i < BEFORE + 2 * EACH; i++)
        jobs[i] = (struct spending_job){{PREP_HUGE, spend, i < BEFORE + EACH ? BUSY : IDLE}, -1};
    for (int i = 0; i < BEFORE; i++)
        prep_workers_push(workers, &jobs[i].job);
    wait_for(workers, BEFORE);
    may_end = false;
    num_spent = 0;
    prep_workers_push(workers, &held.job);
    for (int i = 2 * EACH; i > 0; i--) /* those of the idle one first */
        prep_workers_push(workers, &jobs[BEFORE + i - 1].job);
    may_end = true;
    wait_for(workers, 2 * EACH + 1);
    int first = 2 * EACH;
    for (int i = BEFORE; i < BEFORE + EACH; i++)
        first = jobs[i].place < first ? jobs[i].place : first;
    assert_true(first <= 3);
    prep_workers_destroy(workers, drop);
}

static void test_destroy_hands_back_every_job(void **state) {
    enum { COUNT = 50 };
    struct square_job jobs[COUNT];
    struct prep_workers *workers;
    struct error err;
    num_dropped = 0;
    assert_int_equal(prep_workers_create(NUM_OWNERS, &workers, &err), 0);
    for (int i = 0; i < COUNT; i++) {
        jobs[i] = (struct square_job){{.run = square, .owner = ONE}, i, 0};
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
        cmocka_unit_test(test_owners_take_turns),
        cmocka_unit_test(test_idle_owners_gain_no_credit),
        cmocka_unit_test(test_destroy_hands_back_every_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
