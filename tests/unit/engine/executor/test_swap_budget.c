#include "engine/executor/swap_budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static int32_t blocks_of(struct swap_budget budget) {
    struct error err = {0};
    int32_t num_blocks = -1;
    if (swap_budget_blocks(&budget, &num_blocks, &err) != 0)
        fail_msg("%s", err.message);
    return num_blocks;
}

static void assert_refused(struct swap_budget budget, const char *piece) {
    struct error err = {0};
    int32_t num_blocks = -1;
    assert_int_equal(swap_budget_blocks(&budget, &num_blocks, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_int_equal(num_blocks, -1);
    if (strstr(err.message, piece) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", err.message, piece);
}

static void test_chosen(void **state) {
    struct swap_budget budget = {.block_bytes = MIB,
                                 .memory_bytes = SIZE_MAX,
                                 .free_bytes = 100 * GIB,
                                 .kv_bytes = 40 * GIB,
                                 .is_card = true};
    assert_int_equal(blocks_of(budget), 4096);
    budget.free_bytes = 10 * GIB + 3;
    assert_int_equal(blocks_of(budget), 2560);
    budget.kv_bytes = 100 * MIB + 7;
    assert_int_equal(blocks_of(budget), 100);
    budget.free_bytes = 0;
    assert_int_equal(blocks_of(budget), 0);
    budget.free_bytes = SIZE_MAX;
    assert_int_equal(blocks_of(budget), 100);
    budget.is_card = false;
    assert_int_equal(blocks_of(budget), 0);
}

static void test_asked_for(void **state) {
    struct swap_budget budget = {.block_bytes = MIB, .free_bytes = 10 * MIB};
    assert_int_equal(blocks_of(budget), 0);
    budget.memory_bytes = MIB;
    assert_int_equal(blocks_of(budget), 1);
    budget.memory_bytes = 10 * MIB;
    assert_int_equal(blocks_of(budget), 10);
    budget.memory_bytes = 3 * MIB - 1;
    assert_int_equal(blocks_of(budget), 2);
    budget.is_card = true;
    budget.kv_bytes = MIB; /* bounds only what is chosen */
    assert_int_equal(blocks_of(budget), 2);
    budget.block_bytes = 1;
    budget.memory_bytes = budget.free_bytes = 8 * GIB;
    assert_int_equal(blocks_of(budget), INT32_MAX);
}

static void test_refused(void **state) {
    struct swap_budget budget = {.block_bytes = MIB, .memory_bytes = MIB - 1, .free_bytes = GIB};
    assert_refused(budget, "one KV block takes 1.000 MiB; must be 0 or at least that");
    budget.memory_bytes = GIB + MIB;
    assert_refused(budget, "--swap-space: 1025.0 MiB, but only 1024.0 MiB of the system's memory "
                           "are free, 1.0 MiB are missing; lower it or --kv-cache-memory-bytes");
    budget.is_card = true;
    assert_refused(budget, "1.0 MiB are missing; lower it");
    budget.free_bytes = 0;
    assert_refused(budget, "1025.0 MiB are missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_asked_for),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
