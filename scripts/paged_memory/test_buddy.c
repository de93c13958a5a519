#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "scripts/paged_memory/buddy.h"

#include <stdbool.h>
#include <string.h>

#define NUM_SLOTS 15728 /* 8192 + 4096 + 2048 + 1024 + 256 + 64 + 32 + 16 */
#define MAX_RUNS 200

struct run {
    int32_t first, count;
};

static bool owned[NUM_SLOTS];

static void mark(const struct run *run, bool value) {
    int32_t size = buddy_round_up(run->count);
    assert_in_range(run->first, 0, NUM_SLOTS - size);
    assert_int_equal(run->first % size, 0);
    for (int32_t i = 0; i < size; i++) {
        assert_int_equal(owned[run->first + i], !value);
        owned[run->first + i] = value;
    }
}

static void test_round_up(void **state) {
    assert_int_equal(buddy_round_up(1), 1);
    assert_int_equal(buddy_round_up(25), 32);
    assert_int_equal(buddy_round_up(32), 32);
    assert_int_equal(buddy_round_up(2047), 2048);
}

static void test_seven_contexts_fit(void **state) {
    struct buddy buddy;
    buddy_init(&buddy, NUM_SLOTS);
    for (int i = 0; i < 7; i++)
        assert_true(buddy_alloc(&buddy, 2048) >= 0);
    assert_int_equal(buddy_alloc(&buddy, 2048), -1);
    assert_int_equal(buddy_alloc(&buddy, 1000), 14336); /* the lowest that is left */
    assert_int_equal(buddy_alloc(&buddy, 257), -1);     /* 368 slots are free, but not as 512 */
    assert_int_equal(buddy_alloc(&buddy, 256), 15360);
}

/* Runs never overlap; once all are back, the pool is what it was. */
static void test_random_runs(void **state) {
    struct buddy buddy, fresh;
    struct run runs[MAX_RUNS];
    int32_t num_runs = 0, num_refused = 0;
    uint64_t random = 1;
    memset(owned, 0, sizeof(owned));
    buddy_init(&buddy, NUM_SLOTS);
    buddy_init(&fresh, NUM_SLOTS);
    for (int i = 0; i < 20000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        int32_t draw = (int32_t)(random >> 40);
        if (draw % 5 < 3 && num_runs < MAX_RUNS) {
            struct run run = {.count = 1 + draw / 5 % 600};
            run.first = buddy_alloc(&buddy, run.count);
            num_refused += run.first < 0;
            if (run.first < 0)
                continue;
            mark(&run, true);
            runs[num_runs++] = run;
        } else if (num_runs > 0) {
            struct run *run = &runs[draw % num_runs];
            mark(run, false);
            buddy_free(&buddy, run->first, run->count);
            *run = runs[--num_runs];
        }
    }
    assert_true(num_refused > 100);
    while (num_runs-- > 0)
        buddy_free(&buddy, runs[num_runs].first, runs[num_runs].count);
    assert_memory_equal(&buddy, &fresh, sizeof(buddy));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_up),
        cmocka_unit_test(test_seven_contexts_fit),
        cmocka_unit_test(test_random_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
