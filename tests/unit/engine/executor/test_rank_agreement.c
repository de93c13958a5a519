/* What rank 0 decides from what the ranks report, and what each option that differs is called. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/rank_agreement.h"

#include <string.h>

enum { NUM_RANKS = 3 };

static void fill(struct rank_report *reports) {
    memset(reports, 0, NUM_RANKS * sizeof(*reports));
    for (int32_t r = 0; r < NUM_RANKS; r++) {
        strcpy(reports[r].build, "abc");
        strcpy(reports[r].device, "cpu");
        reports[r].config.num_ranks = NUM_RANKS;
        reports[r].config.transport = (struct transport *)&reports[r]; /* means nothing elsewhere */
        reports[r].config.limits.block_size = 16;
        reports[r].max_model_len = r == 2 ? 640 : 800;
        reports[r].num_blocks = 100 + (r == 1 ? -7 : r);
        reports[r].num_host_blocks = 50 - r;
        reports[r].swap_block_ns = 1000 * r;
        reports[r].memory.weight_bytes = 10 + (size_t)r;
    }
}

static void test_all_have_room(void **state) {
    struct rank_report reports[NUM_RANKS];
    fill(reports);
    struct rank_decision decision = rank_agreement_decide(reports, NUM_RANKS);
    assert_int_equal(decision.error.code, ERROR_NONE);
    assert_int_equal(decision.max_model_len, 640);
    assert_int_equal(decision.num_blocks, 93);
    assert_int_equal(decision.num_host_blocks, 48);
    assert_int_equal(decision.swap_block_ns, 2000);
    for (size_t r = 0; r < NUM_RANKS; r++)
        assert_int_equal(decision.memory[r].weight_bytes, 10 + r);
}

static void assert_refused(const struct rank_report *reports, enum error_code code,
                           const char *message) {
    struct rank_decision decision = rank_agreement_decide(reports, NUM_RANKS);
    assert_int_equal(decision.error.code, code);
    assert_string_equal(decision.error.message, message);
}

static void test_a_rank_cannot_go_on(void **state) {
    struct rank_report reports[NUM_RANKS];
    fill(reports);
    error_set(&reports[2].error, ERROR_MEMORY, "KV cache: too much");
    assert_refused(reports, ERROR_MEMORY, "rank 2: KV cache: too much");
    strcpy(reports[2].build, "abd"); /* what it could not do comes first */
    assert_refused(reports, ERROR_MEMORY, "rank 2: KV cache: too much");
    error_set(&reports[0].error, ERROR_CONFIG, "no");
    assert_refused(reports, ERROR_CONFIG, "rank 0: no");
}

static void test_differences(void **state) {
    struct rank_report reports[NUM_RANKS];
    fill(reports);
    strcpy(reports[1].build, "abd");
    assert_refused(reports, ERROR_CONFIG, "rank 1 runs another build of quire than rank 0");
    fill(reports);
    reports[2].model.settings[CONTENT_HASH_BYTES - 1] = 1;
    assert_refused(reports, ERROR_CONFIG, "model: the files of rank 2 differ from those of rank 0");
    fill(reports);
    reports[1].model.samples[0] = 1;
    assert_refused(reports, ERROR_CONFIG, "model: the files of rank 1 differ from those of rank 0");
    fill(reports);
    reports[1].model.num_pieces = 7;
    assert_refused(reports, ERROR_CONFIG, "model: the files of rank 1 differ from those of rank 0");
    fill(reports);
    reports[2].config.load_mode = WEIGHTS_LOAD_BROADCAST;
    assert_refused(reports, ERROR_CONFIG, "load-mode: rank 2 has another value than rank 0");
    fill(reports);
    strcpy(reports[1].device, "cpu-ref");
    assert_refused(reports, ERROR_CONFIG, "device: rank 1 has another value than rank 0");
    fill(reports);
    reports[1].config.limits.block_size = 32;
    reports[2].config.dtype = 1;
    assert_refused(reports, ERROR_CONFIG, "block-size: rank 1 has another value than rank 0");
    fill(reports);
    reports[1].config.fp8_activations = true;
    assert_refused(reports, ERROR_CONFIG, "fp8-activations: rank 1 has another value than rank 0");
    fill(reports);
    reports[2].config.fast_sums = true;
    assert_refused(reports, ERROR_CONFIG, "fast-sums: rank 2 has another value than rank 0");
    fill(reports);
    reports[1].config.num_stages = 2;
    assert_refused(reports, ERROR_CONFIG,
                   "pipeline-parallel-size: rank 1 has another value than rank 0");
    fill(reports);
    reports[2].config.kv_memory_bytes = 1;
    assert_refused(reports, ERROR_CONFIG,
                   "kv-cache-memory-bytes: rank 2 has another value than rank 0");
    fill(reports);
    reports[1].config.lora.num_slots = 2;
    assert_refused(reports, ERROR_CONFIG, "max-loras: rank 1 has another value than rank 0");
    fill(reports);
    reports[2].config.lora.max_rank = 64;
    assert_refused(reports, ERROR_CONFIG, "max-lora-rank: rank 2 has another value than rank 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_have_room),
                                       cmocka_unit_test(test_a_rank_cannot_go_on),
                                       cmocka_unit_test(test_differences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
