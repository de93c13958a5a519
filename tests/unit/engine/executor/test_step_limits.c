#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/executor/step_limits.h"

#include <string.h>

static void assert_limits(const char *device, int32_t asked_seqs, int32_t asked_tokens,
                          int32_t seqs, int32_t tokens, int32_t logit_rows) {
    struct step_limits limits;
    assert_int_equal(step_limits_choose(device, asked_seqs, asked_tokens, &limits, NULL), 0);
    assert_int_equal(limits.max_num_seqs, seqs);
    assert_int_equal(limits.max_num_batched_tokens, tokens);
    assert_int_equal(limits.max_logit_rows, logit_rows);
}

static void test_by_device(void **state) {
    assert_limits("cpu", 0, 0, 64, 512, 64);
    assert_limits("cpu-ref", 0, 0, 64, 512, 64);
    assert_limits("cuda", 0, 0, 256, 2048, 256);
    assert_limits("cuda-sim", 0, 0, 256, 2048, 256);
}

static void test_one_pulls_the_other_along(void **state) {
    assert_limits("cpu", 1000, 0, 1000, 1000, 64);
    assert_limits("cpu", 3, 0, 3, 512, 3);
    assert_limits("cpu", 0, 16, 16, 16, 16);
    assert_limits("cpu", 0, 4096, 64, 4096, 64);
    assert_limits("cuda", 1024, 0, 1024, 2048, 256);
    assert_limits("cuda", 0, 100, 100, 100, 100);
    assert_limits("cuda", 8, 32, 8, 32, 8);
}

static void test_contradiction(void **state) {
    struct step_limits limits = {.max_num_seqs = -1};
    struct error err;
    assert_int_equal(step_limits_choose("cpu", 33, 32, &limits, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_non_null(strstr(err.message, "max-num-batched-tokens is 32"));
    assert_non_null(strstr(err.message, "max-num-seqs, which is 33"));
    assert_int_equal(limits.max_num_seqs, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_device),
        cmocka_unit_test(test_one_pulls_the_other_along),
        cmocka_unit_test(test_contradiction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
