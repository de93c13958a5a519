#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/request/request.h"

#include <string.h>

static struct sampling_params basic_params(void) {
    return (struct sampling_params){.num_choices = 1,
                                    .max_tokens = 4,
                                    .settings.top_p = 1,
                                    .settings.repetition_penalty = 1,
                                    .seed = 7};
}

static void test_copies_prompt_and_arrays(void **state) {
    int32_t prompt[] = {5, 6, 7};
    char first[] = "END", second[] = "\n\n";
    struct stop_string stops[] = {{first, 3}, {second, 2}};
    int32_t stop_tokens[] = {11, 12};
    struct token_bias biases[] = {{3, 1.5f}};
    struct sampling_params params = basic_params();
    params.num_stop_strings = 2;
    params.stop_strings = stops;
    params.num_stop_tokens = 2;
    params.stop_tokens = stop_tokens;
    params.num_biases = 1;
    params.biases = biases;

    struct request *request = request_create(prompt, 3, &params);
    assert_non_null(request);
    memset(prompt, 0, sizeof(prompt));
    memset(first, 'x', 3);
    memset(second, 'x', 2);
    memset(stops, 0, sizeof(stops));
    memset(stop_tokens, 0, sizeof(stop_tokens));
    memset(biases, 0, sizeof(biases));

    assert_int_equal(request->num_prompt_tokens, 3);
    assert_int_equal(request->prompt[2], 7);
    assert_int_equal(request->params.stop_strings[0].length, 3);
    assert_memory_equal(request->params.stop_strings[0].data, "END", 3);
    assert_memory_equal(request->params.stop_strings[1].data, "\n\n", 2);
    assert_int_equal(request->params.stop_tokens[1], 12);
    assert_int_equal(request->params.biases[0].token, 3);
    assert_true(request->params.seed == 7);
    request_unref(request);
}

static void test_copies_allowed_tokens_and_bad_runs(void **state) {
    int32_t prompt[] = {5}, allowed[] = {4, 9, 4}, one[] = {7}, three[] = {1, 2, 3};
    struct token_run runs[] = {{three, 3}, {one, 1}};
    struct sampling_params params = basic_params();
    params.num_allowed_tokens = 3;
    params.allowed_tokens = allowed;
    params.num_bad_runs = 2;
    params.bad_runs = runs;

    struct request *request = request_create(prompt, 1, &params);
    assert_non_null(request);
    memset(allowed, 0, sizeof(allowed));
    memset(one, 0, sizeof(one));
    memset(three, 0, sizeof(three));
    memset(runs, 0, sizeof(runs));

    static const int32_t three_tokens[] = {1, 2, 3};
    assert_int_equal(request->params.allowed_tokens[1], 9);
    assert_int_equal(request->params.bad_runs[0].count, 3);
    assert_memory_equal(request->params.bad_runs[0].tokens, three_tokens, sizeof(three_tokens));
    assert_int_equal(request->params.bad_runs[1].count, 1);
    assert_int_equal(request->params.bad_runs[1].tokens[0], 7);
    request_unref(request);
}

static void test_counts_to_a_share(void **state) {
    int32_t prompt[] = {5};
    struct sampling_params params = basic_params();
    struct request *request = request_create(prompt, 1, &params);
    assert_non_null(request);
    assert_int_equal(request->share, 0);
    assert_int_equal(request->weight, 1);
    request_set_share(request, 7, REQUEST_MAX_WEIGHT);
    assert_int_equal(request->share, 7);
    assert_int_equal(request->weight, REQUEST_MAX_WEIGHT);
    request_unref(request);
}

static void test_last_reference_frees(void **state) {
    int32_t prompt[] = {1};
    struct sampling_params params = basic_params();
    struct request *request = request_create(prompt, 1, &params);
    assert_ptr_equal(request_ref(request), request);
    request_unref(request);
    assert_int_equal(request->prompt[0], 1); /* still there: one reference is left */
    assert_null(request->params.stop_strings);
    request_unref(request); /* the leak checker sees to the rest */
    request_unref(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_prompt_and_arrays),
        cmocka_unit_test(test_copies_allowed_tokens_and_bad_runs),
        cmocka_unit_test(test_counts_to_a_share),
        cmocka_unit_test(test_last_reference_frees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
