#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/kv_budget.h"

#include <string.h>

#define GIB ((size_t)1 << 30)

static struct kv_budget base(void) {
    return (struct kv_budget){.block_bytes = 1000,
                              .block_size = 16,
                              .max_model_len = 100, /* 7 blocks */
                              .max_num_seqs = 10,
                              .free_bytes = 8 * GIB};
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
    budget.free_bytes = 40 * 1000;
    assert_int_equal(blocks_of(&budget), 10);
}

static void test_at_most_4_gib(void **state) {
    struct kv_budget budget = base();
    budget.block_bytes = GIB / 2;
    budget.free_bytes = 1024 * GIB;
    assert_int_equal(blocks_of(&budget), 8);
}

static struct kv_budget card(void) {
    struct kv_budget budget = base();
    budget.total_bytes = 100 * 1000;
    budget.free_bytes = 60 * 1000;
    budget.utilization = 0.9;
    return budget;
}

static void test_a_card_is_filled_to_its_share(void **state) {
    struct kv_budget budget = card();
    assert_int_equal(blocks_of(&budget), 50); /* 90 less the 40 in use */
    budget.max_num_seqs = 1;
    assert_int_equal(blocks_of(&budget), 50);
    budget.utilization = 1;
    assert_int_equal(blocks_of(&budget), 60);
    budget.free_bytes = 60999;
    budget.total_bytes = 61000;
    budget.utilization = 0.5; /* 30500 less 1 */
    assert_int_equal(blocks_of(&budget), 30);
}

static void assert_refused(const struct kv_budget *budget, enum error_code code,
                           const char *const *pieces) {
    int32_t blocks = -1;
    struct error err;
    assert_int_equal(kv_budget_blocks(budget, &blocks, &err), -1);
    assert_int_equal(err.code, code);
    assert_int_equal(blocks, -1);
    for (; *pieces != NULL; pieces++)
        if (strstr(err.message, *pieces) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.message, *pieces);
}

#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_a_share_that_is_too_small(void **state) {
    struct kv_budget budget = card();
    budget.block_bytes = 1 << 20;
    budget.total_bytes = 100 << 20;
    budget.free_bytes = 15 << 20;
    assert_refused(&budget, ERROR_MEMORY,
                   PIECES("KV cache", "--gpu-memory-utilization 0.9 of 100.0 MiB", "leaves 5.0 MiB",
                          "--max-model-len 100 needs 7.0 MiB", "2.0 MiB are missing",
                          "--max-num-batched-tokens"));
    budget.free_bytes = 0;
    assert_refused(&budget, ERROR_MEMORY, PIECES("leaves 0.0 MiB", "7.0 MiB are missing"));
}

static void test_asked_of_a_card(void **state) {
    struct kv_budget budget = card();
    budget.utilization = 0.1;
    budget.memory_bytes = 60 * 1000; /* all that is free, whatever the share */
    assert_int_equal(blocks_of(&budget), 60);
    budget.memory_bytes = 61 << 20;
    budget.free_bytes = 50 << 20;
    budget.total_bytes = 100 << 20;
    assert_refused(&budget, ERROR_CONFIG,
                   PIECES("--kv-cache-memory-bytes: 61.0 MiB", "50.0 MiB", "11.0 MiB are missing"));
    budget.memory_bytes = 6999;
    assert_refused(&budget, ERROR_CONFIG, PIECES("--kv-cache-memory-bytes", "7000 bytes"));
}

static void test_what_was_asked_for(void **state) {
    struct kv_budget budget = base();
    budget.memory_bytes = 12345;
    budget.free_bytes = 0;
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
    budget.free_bytes = 4 * 6999;
    assert_int_equal(kv_budget_blocks(&budget, &blocks, &err), -1);
    assert_int_equal(err.code, ERROR_MEMORY);
    assert_int_equal(blocks, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_full_seats_need),
        cmocka_unit_test(test_a_quarter_of_the_memory_at_hand),
        cmocka_unit_test(test_at_most_4_gib),
        cmocka_unit_test(test_a_card_is_filled_to_its_share),
        cmocka_unit_test(test_a_share_that_is_too_small),
        cmocka_unit_test(test_asked_of_a_card),
        cmocka_unit_test(test_what_was_asked_for),
        cmocka_unit_test(test_slots_stay_32_bit),
        cmocka_unit_test(test_too_small_names_both_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
