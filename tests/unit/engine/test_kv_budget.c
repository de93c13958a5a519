#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/kv_budget.h"

#include <string.h>

#define GIB ((size_t)1 << 30)

static struct kv_budget base(void) {
    return (struct kv_budget){.block_bytes = 1000,
                              .block_size = 16,
                              .max_model_len = 100, /* 7 blocks */
                              .max_num_seqs = 10,
                              .available_bytes = 8 * GIB};
}

static int32_t blocks_of(const struct kv_budget *budget) {
    int32_t blocks = -1;
    struct error err;
    assert_int_equal(kv_budget_blocks(budget, &blocks, &err), 0);
    return blocks;
}

static void test_what_full_seats_need(void **state) {
    struct kv_budget budget = base();
    assert_int_equal(blocks_of(&budget), 70);
}

static void test_a_quarter_of_the_memory_at_hand(void **state) {
    struct kv_budget budget = base();
    budget.available_bytes = 40 * 1000;
    assert_int_equal(blocks_of(&budget), 10);
}

static void test_at_most_4_gib(void **state) {
    struct kv_budget budget = base();
    budget.block_bytes = GIB / 2;
    budget.available_bytes = 1024 * GIB;
    assert_int_equal(blocks_of(&budget), 8);
}

static void test_what_was_asked_for(void **state) {
    struct kv_budget budget = base();
    budget.memory_bytes = 12345;
    budget.available_bytes = 0;
    assert_int_equal(blocks_of(&budget), 12);
}

static void test_slots_stay_32_bit(void **state) {
    struct kv_budget budget = base();
    budget.block_bytes = 1;
    budget.memory_bytes = (size_t)1 << 40;
    assert_int_equal(blocks_of(&budget), INT32_MAX / 16);
}

static void test_too_small_names_both_flags(void **state) {
    struct kv_budget budget = base();
    budget.memory_bytes = 6999;
    int32_t blocks = -1;
    struct error err;
    assert_int_equal(kv_budget_blocks(&budget, &blocks, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "--kv-cache-memory-bytes"));
    assert_non_null(strstr(err.message, "--max-model-len 100"));
    assert_non_null(strstr(err.message, "7000 bytes"));
    assert_non_null(strstr(err.message, "96 tokens"));
    assert_int_equal(blocks, -1);

    budget.memory_bytes = 0;
    budget.available_bytes = 4 * 6999;
    assert_int_equal(kv_budget_blocks(&budget, &blocks, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_int_equal(blocks, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_full_seats_need),
        cmocka_unit_test(test_a_quarter_of_the_memory_at_hand),
        cmocka_unit_test(test_at_most_4_gib),
        cmocka_unit_test(test_what_was_asked_for),
        cmocka_unit_test(test_slots_stay_32_bit),
        cmocka_unit_test(test_too_small_names_both_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
