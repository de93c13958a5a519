#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/sizing.h"

#include <string.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void assert_says(const struct error *err, enum error_code code, const char *const *pieces) {
    assert_int_equal(err->code, code);
    for (; *pieces != NULL; pieces++)
        if (strstr(err->message, *pieces) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err->message, *pieces);
}

/* --- The size of a step --- */

static void assert_step_with(size_t memory_bytes, const char *device, int32_t requested_seqs,
                             int32_t requested_tokens, int32_t seqs, int32_t tokens,
                             int32_t logit_rows) {
    const struct serving_limits requested = {.max_num_seqs = requested_seqs,
                                             .max_num_batched_tokens = requested_tokens,
                                             .max_model_len = 77};
    struct serving_limits limits;
    assert_int_equal(sizing_choose_step(device, memory_bytes, &requested, &limits, NULL), 0);
    assert_int_equal(limits.max_num_seqs, seqs);
    assert_int_equal(limits.max_num_batched_tokens, tokens);
    assert_int_equal(limits.max_logit_rows, logit_rows);
    assert_int_equal(limits.max_model_len, 77);
}

static void assert_step(const char *device, int32_t requested_seqs, int32_t requested_tokens,
                        int32_t seqs, int32_t tokens, int32_t logit_rows) {
    assert_step_with(70 * GIB - 1, device, requested_seqs, requested_tokens, seqs, tokens,
                     logit_rows);
}

static void test_by_memory(void **state) {
    assert_step_with(0, "cuda", 0, 0, 256, 2048, 256);
    assert_step_with(70 * GIB, "cuda", 0, 0, 1024, 8192, 256);
    assert_step_with(140 * GIB, "cuda-sim", 0, 0, 1024, 8192, 256);
    assert_step_with(70 * GIB, "cpu", 0, 0, 64, 512, 64);
    assert_step_with(70 * GIB, "cuda", 100, 0, 100, 8192, 100);
    assert_step_with(70 * GIB, "cuda", 0, 2048, 1024, 2048, 256);
    assert_step_with(70 * GIB, "cuda", 0, 512, 512, 512, 256);
}

static void test_by_device(void **state) {
    assert_step("cpu", 0, 0, 64, 512, 64);
    assert_step("cpu-ref", 0, 0, 64, 512, 64);
    assert_step("cuda", 0, 0, 256, 2048, 256);
    assert_step("cuda-sim", 0, 0, 256, 2048, 256);
}

static void test_one_pulls_the_other_along(void **state) {
    assert_step("cpu", 1000, 0, 1000, 1000, 64);
    assert_step("cpu", 3, 0, 3, 512, 3);
    assert_step("cpu", 0, 16, 16, 16, 16);
    assert_step("cpu", 0, 4096, 64, 4096, 64);
    assert_step("cuda", 1024, 0, 1024, 2048, 256);
    assert_step("cuda", 0, 100, 100, 100, 100);
    assert_step("cuda", 8, 32, 8, 32, 8);
}

static void test_contradiction(void **state) {
    const struct serving_limits requested = {.max_num_seqs = 33, .max_num_batched_tokens = 32};
    struct serving_limits limits = {.max_num_seqs = -1};
    struct error err;
    assert_int_equal(sizing_choose_step("cpu", 0, &requested, &limits, &err), -1);
    assert_says(&err, ERROR_CONFIG,
                PIECES("max-num-batched-tokens is 32", "max-num-seqs, which is 33"));
    assert_int_equal(limits.max_num_seqs, -1);
}

/* --- The KV block pool --- */

static struct serving_limits limits;

static struct kv_budget base(void) {
    limits = (struct serving_limits){.block_size = 16,
                                     .max_model_len = 100, /* 7 blocks */
                                     .max_num_seqs = 10,
                                     .num_blocks = -1};
    return (struct kv_budget){.block_bytes = 1000, .free_bytes = 8 * GIB};
}

static int32_t blocks_of(const struct kv_budget *budget) {
    struct error err;
    assert_int_equal(sizing_choose_blocks(budget, &limits, &err), 0);
    return limits.num_blocks;
}

static void assert_refused(const struct kv_budget *budget, enum error_code code,
                           const char *const *pieces) {
    struct error err;
    limits.num_blocks = -1;
    assert_int_equal(sizing_choose_blocks(budget, &limits, &err), -1);
    assert_int_equal(limits.num_blocks, -1);
    assert_says(&err, code, pieces);
}

static void test_what_full_slots_need(void **state) {
    struct kv_budget budget = base();
    assert_int_equal(blocks_of(&budget), 70);
}

/* One sequence needs 7000. */
static void test_others_get_a_quarter(void **state) {
    struct kv_budget budget = base();
    budget.free_bytes = 40 * 1000;
    assert_int_equal(blocks_of(&budget), 17);
    budget.free_bytes = 28 * 1000;
    assert_int_equal(blocks_of(&budget), 14);
}

static void test_others_get_at_most_4_gib(void **state) {
    struct kv_budget budget = base();
    budget.block_bytes = GIB / 2;
    budget.free_bytes = 1024 * GIB;
    assert_int_equal(blocks_of(&budget), 7 + 8);
    budget.free_bytes = 24 * GIB;
    assert_int_equal(blocks_of(&budget), 7 + 8);
    budget.free_bytes = 14 * GIB; /* half */
    assert_int_equal(blocks_of(&budget), 14);
}

static void test_half_for_a_length_that_is_sought(void **state) {
    struct kv_budget budget = base();
    budget.free_bytes = 14 * 1000;
    assert_int_equal(blocks_of(&budget), 7);
    budget.free_bytes--;
    assert_refused(&budget, ERROR_MEMORY, PIECES("room for 96 tokens"));
}

/* 7 of 8 parts for one that is requested, all for one that was checked when more was available. */
static void test_more_for_a_length_that_is_fixed(void **state) {
    struct kv_budget budget = base();
    budget.length = KV_LENGTH_REQUESTED;
    budget.free_bytes = 8 * 1000;
    assert_int_equal(blocks_of(&budget), 7);
    budget.free_bytes = 28 * 1000;
    assert_int_equal(blocks_of(&budget), 14);
    budget.block_bytes = MIB;
    budget.free_bytes = 7 * MIB;
    assert_refused(&budget, ERROR_MEMORY,
                   PIECES("one sequence of --max-model-len 100 needs 7.0 MiB",
                          "7.0 MiB of the system's memory are available", "room for 96 tokens",
                          "--kv-cache-dtype int8"));
    budget.length = KV_LENGTH_KEPT;
    assert_int_equal(blocks_of(&budget), 7);
    budget.free_bytes--;
    assert_refused(&budget, ERROR_MEMORY, PIECES("room for 96 tokens"));
}

/* Bytes that were requested are not checked against what is available now, because that changes. */
static void test_more_than_there_is(void **state) {
    struct kv_budget budget = base();
    budget.memory_bytes = 60 * MIB;
    budget.free_bytes = MIB;
    budget.system_bytes = 60 * MIB;
    assert_true(blocks_of(&budget) > 60000);
    budget.system_bytes--;
    assert_refused(&budget, ERROR_CONFIG,
                   PIECES("--kv-cache-memory-bytes: 60.0 MiB", "the system has 60.0 MiB at most"));
}

static struct kv_budget gpu(void) {
    struct kv_budget budget = base();
    budget.total_bytes = 100 * 1000;
    budget.free_bytes = 60 * 1000;
    budget.utilization = 0.9;
    return budget;
}

static void test_a_gpu_is_filled_to_its_share(void **state) {
    struct kv_budget budget = gpu();
    assert_int_equal(blocks_of(&budget), 50); /* 90 less the 40 in use */
    limits.max_num_seqs = 1;
    assert_int_equal(blocks_of(&budget), 50);
    budget.utilization = 1;
    assert_int_equal(blocks_of(&budget), 60);
    budget.free_bytes = 60999;
    budget.total_bytes = 61000;
    budget.utilization = 0.5; /* 30500 less 1 */
    assert_int_equal(blocks_of(&budget), 30);
}

static void test_a_share_that_is_too_small(void **state) {
    struct kv_budget budget = gpu();
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

static void test_requested_of_a_gpu(void **state) {
    struct kv_budget budget = gpu();
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

static void test_requested_bytes(void **state) {
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
    assert_refused(
        &budget, ERROR_CONFIG,
        PIECES("--kv-cache-memory-bytes", "--max-model-len 100", "7000 bytes", "96 tokens"));
}

/* --- The host block pool --- */

static int32_t host_blocks_of(struct swap_budget budget) {
    struct error err = {0};
    limits.num_host_blocks = -1;
    if (sizing_choose_host_blocks(&budget, &limits, &err) != 0)
        fail_msg("%s", err.message);
    return limits.num_host_blocks;
}

static void assert_swap_refused(struct swap_budget budget, const char *piece) {
    struct error err = {0};
    limits.num_host_blocks = -1;
    assert_int_equal(sizing_choose_host_blocks(&budget, &limits, &err), -1);
    assert_int_equal(limits.num_host_blocks, -1);
    assert_says(&err, ERROR_CONFIG, PIECES(piece));
}

static void test_host_blocks_are_chosen(void **state) {
    struct swap_budget budget = {.block_bytes = MIB,
                                 .memory_bytes = SIZE_MAX,
                                 .free_bytes = 100 * GIB,
                                 .kv_bytes = 40 * GIB,
                                 .has_dedicated_memory = true};
    assert_int_equal(host_blocks_of(budget), 4096);
    budget.free_bytes = 10 * GIB + 3;
    assert_int_equal(host_blocks_of(budget), 2560);
    budget.kv_bytes = 100 * MIB + 7;
    assert_int_equal(host_blocks_of(budget), 100);
    budget.free_bytes = 0;
    assert_int_equal(host_blocks_of(budget), 0);
    budget.free_bytes = SIZE_MAX;
    assert_int_equal(host_blocks_of(budget), 100);
    budget.has_dedicated_memory = false;
    assert_int_equal(host_blocks_of(budget), 0);
}

static void test_host_blocks_are_requested(void **state) {
    struct swap_budget budget = {.block_bytes = MIB, .free_bytes = 10 * MIB};
    assert_int_equal(host_blocks_of(budget), 0);
    budget.memory_bytes = MIB;
    assert_int_equal(host_blocks_of(budget), 1);
    budget.memory_bytes = 10 * MIB;
    assert_int_equal(host_blocks_of(budget), 10);
    budget.memory_bytes = 3 * MIB - 1;
    assert_int_equal(host_blocks_of(budget), 2);
    budget.has_dedicated_memory = true;
    budget.kv_bytes = MIB; /* bounds only what is chosen */
    assert_int_equal(host_blocks_of(budget), 2);
    budget.block_bytes = 1;
    budget.memory_bytes = budget.free_bytes = 8 * GIB;
    assert_int_equal(host_blocks_of(budget), INT32_MAX);
}

static void test_host_blocks_are_refused(void **state) {
    struct swap_budget budget = {.block_bytes = MIB, .memory_bytes = MIB - 1, .free_bytes = GIB};
    assert_swap_refused(budget, "one KV block takes 1.000 MiB; must be 0 or at least that");
    budget.memory_bytes = GIB + MIB;
    assert_swap_refused(budget,
                        "--swap-space: 1025.0 MiB, but only 1024.0 MiB of the system's memory are "
                        "free, 1.0 MiB are missing; lower it or --kv-cache-memory-bytes");
    budget.has_dedicated_memory = true;
    assert_swap_refused(budget, "1.0 MiB are missing; lower it");
    budget.free_bytes = 0;
    assert_swap_refused(budget, "1025.0 MiB are missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_memory),
        cmocka_unit_test(test_by_device),
        cmocka_unit_test(test_one_pulls_the_other_along),
        cmocka_unit_test(test_contradiction),
        cmocka_unit_test(test_what_full_slots_need),
        cmocka_unit_test(test_others_get_a_quarter),
        cmocka_unit_test(test_half_for_a_length_that_is_sought),
        cmocka_unit_test(test_more_for_a_length_that_is_fixed),
        cmocka_unit_test(test_others_get_at_most_4_gib),
        cmocka_unit_test(test_more_than_there_is),
        cmocka_unit_test(test_a_gpu_is_filled_to_its_share),
        cmocka_unit_test(test_a_share_that_is_too_small),
        cmocka_unit_test(test_requested_of_a_gpu),
        cmocka_unit_test(test_requested_bytes),
        cmocka_unit_test(test_slots_stay_32_bit),
        cmocka_unit_test(test_too_small_names_both_flags),
        cmocka_unit_test(test_host_blocks_are_chosen),
        cmocka_unit_test(test_host_blocks_are_requested),
        cmocka_unit_test(test_host_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
