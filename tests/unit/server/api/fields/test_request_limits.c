#include "server/api/fields/request_limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct serving_limits limits = {
    .num_blocks = 20, .block_size = 16, .max_num_seqs = 4, .max_model_len = 256};

static struct request *make(int32_t num_prompt_tokens, int32_t max_tokens, int32_t num_choices,
                            int32_t beam_width) {
    static const int32_t prompt[300];
    const struct sampling_params params = {
        .num_choices = num_choices,
        .beam_width = beam_width,
        .max_tokens = max_tokens,
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
    };
    struct request *request = request_create(prompt, num_prompt_tokens, &params);
    assert_non_null(request);
    return request;
}

static void expect(struct request *request, const char *param, const char *code,
                   const char *const pieces[3]) {
    struct kv_demand demand = kv_demand_of(request, &limits);
    struct api_error err = {0};
    assert_false(kv_demand_fits(&demand, &limits));
    assert_int_equal(request_limits_refuse(request, &limits, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
    assert_string_equal(err.code, code);
    for (int i = 0; i < 3; i++)
        if (strstr(err.message, pieces[i]) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", err.message, pieces[i]);
    request_unref(request);
}

static void too_long_a_prompt_names_the_context(void **state) {
    expect(make(256, 10, 1, 0), "prompt", "context_length_exceeded",
           (const char *const[3]){"257", "256", "--max-model-len"});
}

static void too_wide_a_search_names_the_slots(void **state) {
    expect(make(5, 10, 2, 6), "best_of", "out_of_range",
           (const char *const[3]){"width 6", "at most 4", "--max-num-seqs"});
    expect(make(5, 10, 6, 6), "n", "out_of_range",
           (const char *const[3]){"width 6", "at most 4", "--max-num-seqs"});
}

/* Of 33 tokens two blocks are shared; each beam has (200 + 33 - 1) / 16 up minus those: 13. */
static void too_large_a_search_names_the_pool(void **state) {
    expect(make(33, 200, 1, 4), "best_of", "out_of_range",
           (const char *const[3]){"54 KV blocks of 16", "has 20", "--kv-cache-memory-bytes"});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_long_a_prompt_names_the_context),
        cmocka_unit_test(too_wide_a_search_names_the_slots),
        cmocka_unit_test(too_large_a_search_names_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
