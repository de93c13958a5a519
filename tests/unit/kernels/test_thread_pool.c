#include "kernels/thread_pool.h"

#include "config/base/cores.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_WORKERS 32
#define NUM_ITEMS 1000

static struct thread_pool *create(int num_threads) {
    struct error err = {0};
    struct thread_pool *pool = thread_pool_create(num_threads, &err);
    assert_non_null(pool);
    return pool;
}

/* A job in which nobody goes on before all workers are there. Plain ints: the pool itself must
 * order the workers' writes before the caller's reads. */
struct meeting {
    int size;
    atomic_int num_there;
    int calls[MAX_WORKERS];
};

static void meet(void *context, int64_t begin, int64_t end, int worker) {
    struct meeting *meeting = context;
    meeting->calls[worker]++;
    atomic_fetch_add(&meeting->num_there, 1);
    while (atomic_load(&meeting->num_there) < meeting->size)
        sched_yield();
}

static void run_meeting(struct thread_pool *pool) {
    struct meeting meeting = {.size = thread_pool_size(pool)};
    thread_pool_for(pool, meeting.size, 1, meet, &meeting);
    assert_int_equal(atomic_load(&meeting.num_there), meeting.size);
    for (int w = 0; w < MAX_WORKERS; w++)
        assert_int_equal(meeting.calls[w], w < meeting.size);
}

static void test_every_worker_takes_part(void **state) {
    static const int sizes[] = {1, 2, 3, 16};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct thread_pool *pool = create(sizes[s]);
        assert_int_equal(thread_pool_size(pool), sizes[s]);
        for (int job = 0; job < 200; job++)
            run_meeting(pool);
        thread_pool_destroy(pool);
    }
}

struct ranges {
    int64_t grain;
    int num_workers;
    atomic_int bad;
    int hits[NUM_ITEMS];
};

static void mark(void *context, int64_t begin, int64_t end, int worker) {
    struct ranges *ranges = context;
    if (begin >= end || end - begin > ranges->grain || worker < 0 || worker >= ranges->num_workers)
        atomic_fetch_add(&ranges->bad, 1);
    for (int64_t i = begin; i < end; i++)
        ranges->hits[i]++;
}

static void check_cover(struct thread_pool *pool, int64_t num_items, int64_t grain) {
    struct ranges ranges = {.grain = grain, .num_workers = thread_pool_size(pool)};
    thread_pool_for(pool, num_items, grain, mark, &ranges);
    assert_int_equal(atomic_load(&ranges.bad), 0);
    for (int64_t i = 0; i < NUM_ITEMS; i++)
        assert_int_equal(ranges.hits[i], i < num_items);
}

static void test_for_covers_every_item_once(void **state) {
    static const int sizes[] = {1, 2, 7};
    static const int64_t counts[] = {0, 1, 2, 31, 32, 33, NUM_ITEMS};
    static const int64_t grains[] = {1, 3, 32, 5000};
    for (int s = 0; s < 3; s++) {
        struct thread_pool *pool = create(sizes[s]);
        for (int c = 0; c < 7; c++)
            for (int g = 0; g < 4; g++)
                check_cover(pool, counts[c], grains[g]);
        thread_pool_destroy(pool);
    }
}

/* Pauses of many lengths between jobs, so that workers are met spinning, asleep and on their way
 * to sleep. */
static void test_jobs_reach_sleeping_workers(void **state) {
    struct thread_pool *pool = create(4);
    for (int job = 1; job <= 400; job++) {
        if (job % 3 == 0)
            usleep((useconds_t)(job % 40) * 5);
        run_meeting(pool);
    }
    thread_pool_destroy(pool);
}

/* The caller's wait ends by itself when the others take longer than it spins. */
struct slow_job {
    atomic_int num_begun, num_done;
};

static void slow_range(void *context, int64_t begin, int64_t end, int worker) {
    struct slow_job *job = context;
    atomic_fetch_add(&job->num_begun, 1);
    while (worker == 0 && atomic_load(&job->num_begun) < 3)
        sched_yield();
    if (worker > 0)
        usleep(3000);
    atomic_fetch_add(&job->num_done, 1);
}

static void test_for_waits_for_slow_workers(void **state) {
    struct thread_pool *pool = create(3);
    for (int i = 0; i < 5; i++) {
        struct slow_job job = {0};
        thread_pool_for(pool, 3, 1, slow_range, &job);
        assert_int_equal(atomic_load(&job.num_done), 3);
    }
    thread_pool_destroy(pool);
}

/* Short jobs, one after the other, of a memory that is gone after each: a worker that comes late to
 * one must not touch it, nor miss the items of the next. */
static void add_items(void *context, int64_t begin, int64_t end, int worker) {
    atomic_fetch_add((atomic_int *)context, (int)(end - begin));
}

static void test_workers_that_come_late(void **state) {
    struct thread_pool *pool = create(8);
    for (int job = 0; job < 5000; job++) {
        atomic_int sum = 0;
        thread_pool_for(pool, 2 + job % 7, 1, add_items, &sum);
        assert_int_equal(atomic_load(&sum), 2 + job % 7);
    }
    thread_pool_destroy(pool);
}

/* Of a job whose worker 1 keeps everybody waiting for long, once it takes part. */
struct late_job {
    bool waits; /* for worker 1 to begin */
    atomic_int num_late;
};

static void late_range(void *context, int64_t begin, int64_t end, int worker) {
    struct late_job *job = context;
    if (worker > 0) {
        atomic_fetch_add(&job->num_late, 1);
        usleep(50000);
    }
    while (job->waits && atomic_load(&job->num_late) == 0)
        sched_yield();
}

/* Returns whether worker 1 took part in a step of one such job. */
static bool run_late_step(struct thread_pool *pool, bool waits) {
    struct late_job job = {.waits = waits};
    thread_pool_step_begin(pool);
    thread_pool_for(pool, NUM_ITEMS, 1, late_range, &job);
    thread_pool_step_end(pool);
    return atomic_load(&job.num_late) > 0;
}

/* The range of worker 1 takes thousands of times as long as the caller's. The next jobs are too
 * short to tell anything about it; a thread that was left out comes again. */
static void test_late_worker_is_left_out_for_a_while(void **state) {
    struct thread_pool *pool = create(2);
    assert_true(run_late_step(pool, true));
    assert_false(run_late_step(pool, false));
    while (!run_late_step(pool, false))
        usleep(1000);
    thread_pool_destroy(pool);
}

/* Also one that is left out when it is destroyed. */
static void test_late_worker_is_joined(void **state) {
    struct thread_pool *pool = create(2);
    run_late_step(pool, true);
    thread_pool_destroy(pool);
}

static void test_create_and_destroy(void **state) {
    for (int i = 0; i < 50; i++)
        thread_pool_destroy(create(1 + i % 4));
    thread_pool_destroy(NULL);
}

static void test_default_size_follows_affinity(void **state) {
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    struct thread_pool *pool = create(0);
    assert_int_equal(thread_pool_size(pool), cores_available());
    thread_pool_destroy(pool);

    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    pool = create(0);
    assert_int_equal(thread_pool_size(pool), 1);
    thread_pool_destroy(pool);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void test_bad_sizes_are_refused(void **state) {
    struct error err = {0};
    assert_null(thread_pool_create(-1, &err));
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "-1"));
    assert_null(thread_pool_create(100000, &err));
    assert_non_null(strstr(err.message, "1024"));
}

/* A run of its own, which skips as a whole: tests/unit/config/base/test_log.c says why. */
static int run_with_two_cores(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_late_worker_is_left_out_for_a_while)};
    if (cores_available() >= 2)
        return cmocka_run_group_tests(tests, NULL, NULL);
    puts("1..0 # SKIP there is one core only");
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "late") == 0)
        return run_with_two_cores();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_worker_takes_part),
        cmocka_unit_test(test_for_covers_every_item_once),
        cmocka_unit_test(test_jobs_reach_sleeping_workers),
        cmocka_unit_test(test_for_waits_for_slow_workers),
        cmocka_unit_test(test_workers_that_come_late),
        cmocka_unit_test(test_late_worker_is_joined),
        cmocka_unit_test(test_create_and_destroy),
        cmocka_unit_test(test_default_size_follows_affinity),
        cmocka_unit_test(test_bad_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
