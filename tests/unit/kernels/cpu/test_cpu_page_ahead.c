/* Which pages are ready, as the system tells it, after orders of use that are made up. Pages come
 * in whole huge pages where the system has them, so what is ready ends at the goal or within one
 * after it. */
#include "kernels/cpu/memory/cpu_memory.h"
#include "kernels/cpu/memory/cpu_page_ahead.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define HUGE_PAGE (2 * MIB)

static bool is_known;

/* An old system readies nothing. */
static int ask_system(void **state) {
#ifdef MADV_POPULATE_WRITE
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    is_known = page != MAP_FAILED && madvise(page, PAGE, MADV_POPULATE_WRITE) == 0;
    munmap(page, PAGE);
#endif
    return 0;
}

static struct buffer make_pool(size_t bytes) {
    struct buffer pool;
    assert_int_equal(cpu_memory_alloc(bytes, &pool, NULL), 0);
    return pool;
}

static struct cpu_page_ahead *make_ahead(void) {
    struct cpu_page_ahead *ahead = cpu_page_ahead_create(NULL);
    assert_non_null(ahead);
    return ahead;
}

static bool is_ready(const struct buffer *pool, size_t at) {
    unsigned char resident;
    uintptr_t page = ((uintptr_t)pool->data + at) / PAGE * PAGE;
    assert_int_equal(mincore((void *)page, PAGE, &resident), 0);
    return resident & 1;
}

static void wait_until_ready(const struct buffer *pool, size_t begin, size_t end) {
    for (size_t at = begin; at < end && is_known; at += PAGE)
        while (!is_ready(pool, at))
            sched_yield();
}

static void assert_untouched(const struct buffer *pool, size_t begin) {
    for (size_t at = begin; at < pool->bytes; at += PAGE)
        assert_false(is_ready(pool, at));
}

static void test_goal_follows_use(void **state) {
    const size_t huge = (size_t)1 << 40;
    assert_int_equal(cpu_page_ahead_goal(0, huge), 4 * MIB);
    assert_int_equal(cpu_page_ahead_goal(16 * MIB, huge), 20 * MIB);
    assert_int_equal(cpu_page_ahead_goal(80 * MIB, huge), 90 * MIB);
    assert_int_equal(cpu_page_ahead_goal(8192 * MIB, huge), 8256 * MIB);
    assert_int_equal(cpu_page_ahead_goal(16 * MIB, 17 * MIB), 17 * MIB);
    assert_int_equal(cpu_page_ahead_goal(16 * MIB, 16 * MIB), 16 * MIB);
    assert_int_equal(cpu_page_ahead_goal(0, 1), 1);
}

/* Blocks in rising order, going back to used ones in between; what is in them stays. */
static void test_rising_use(void **state) {
    static const size_t order[] = {1, 2, 1, 5, 3, 9, 0, 14, 20, 19};
    struct cpu_page_ahead *ahead = make_ahead();
    struct buffer pool = make_pool(64 * MIB);
    size_t most = 0;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        size_t used = order[i] * MIB + PAGE;
        memset((char *)pool.data + order[i] * MIB, 'x', PAGE);
        cpu_page_ahead_follow(ahead, &pool, used);
        most = used > most ? used : most;
    }
    size_t goal = cpu_page_ahead_goal(most, pool.bytes);
    wait_until_ready(&pool, most, goal - HUGE_PAGE);
    cpu_page_ahead_forget(ahead, &pool);
    assert_untouched(&pool, goal + HUGE_PAGE);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        assert_int_equal(((const char *)pool.data)[order[i] * MIB + PAGE - 1], 'x');
    for (size_t at = most; at < pool.bytes; at += PAGE)
        assert_int_equal(((const char *)pool.data)[at], 0);
    cpu_memory_free(&pool);
    cpu_page_ahead_destroy(ahead);
}

/* Use far beyond what was ready: what was left out stays so. */
static void test_use_that_jumps(void **state) {
    struct cpu_page_ahead *ahead = make_ahead();
    struct buffer pool = make_pool(128 * MIB);
    cpu_page_ahead_follow(ahead, &pool, 1);
    wait_until_ready(&pool, 1, 2 * MIB);
    cpu_page_ahead_follow(ahead, &pool, 80 * MIB);
    size_t goal = cpu_page_ahead_goal(80 * MIB, pool.bytes);
    wait_until_ready(&pool, 80 * MIB, goal - HUGE_PAGE);
    cpu_page_ahead_forget(ahead, &pool);
    for (size_t at = 4 * MIB + 2 * HUGE_PAGE; at < 80 * MIB - HUGE_PAGE; at += PAGE)
        assert_false(is_ready(&pool, at));
    assert_untouched(&pool, goal + HUGE_PAGE);
    cpu_memory_free(&pool);
    cpu_page_ahead_destroy(ahead);
}

/* To the end of the pool and not a page further: a guard page behind it is not touched. */
static void test_whole_pool(void **state) {
    struct cpu_page_ahead *ahead = make_ahead();
    struct buffer pool = make_pool(9 * MIB);
    for (size_t used = 1; used < pool.bytes; used += MIB)
        cpu_page_ahead_follow(ahead, &pool, used);
    cpu_page_ahead_follow(ahead, &pool, pool.bytes);
    cpu_page_ahead_forget(ahead, &pool);
    cpu_memory_free(&pool);
    cpu_page_ahead_destroy(ahead);
}

/* A pool is freed while its pages are being readied, and another takes its place. */
static void test_pools_come_and_go(void **state) {
    struct cpu_page_ahead *ahead = make_ahead();
    struct buffer small = make_pool(MIB), none = {0};
    for (int i = 0; i < 20; i++) {
        struct buffer pool = make_pool((size_t)(8 + i) * MIB);
        cpu_page_ahead_follow(ahead, &pool, 1);
        if (i % 2)
            cpu_page_ahead_follow(ahead, &pool, 3 * MIB);
        cpu_page_ahead_follow(ahead, &small, MIB);
        cpu_page_ahead_forget(ahead, &small);
        cpu_page_ahead_forget(ahead, &none);
        if (i % 4 == 0)
            wait_until_ready(&pool, 0, 2 * MIB);
        cpu_page_ahead_forget(ahead, &pool);
        cpu_memory_free(&pool);
    }
    cpu_page_ahead_destroy(ahead);
    cpu_page_ahead_destroy(NULL);
    cpu_memory_free(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goal_follows_use),  cmocka_unit_test(test_rising_use),
        cmocka_unit_test(test_use_that_jumps),    cmocka_unit_test(test_whole_pool),
        cmocka_unit_test(test_pools_come_and_go),
    };
    return cmocka_run_group_tests(tests, ask_system, NULL);
}
