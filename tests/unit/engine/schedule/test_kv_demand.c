#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/schedule/kv_demand.h"
#include "tests/unit/engine/sequence_fixture.h"

static const struct serving_limits limits = {
    .num_blocks = 20, .block_size = 4, .max_num_seqs = 3, .max_model_len = 40};

static struct request *make(int32_t num_prompt_tokens, const struct sampling_params *params) {
    static const int32_t prompt[64];
    return request_create(prompt, num_prompt_tokens, params);
}

static void expect(int32_t num_prompt_tokens, const struct sampling_params *params,
                   struct kv_demand demand, bool fits, int32_t max_running) {
    struct request *request = make(num_prompt_tokens, params);
    struct kv_demand found = kv_demand_of(request, &limits);
    assert_int_equal(found.num_tokens, demand.num_tokens);
    assert_int_equal(found.num_seqs, demand.num_seqs);
    assert_int_equal(found.num_blocks, demand.num_blocks);
    assert_int_equal(kv_demand_fits(&found, &limits), fits);
    if (fits)
        assert_int_equal(kv_demand_max_running(request, &limits), max_running);
    request_unref(request);
}

/* 9 prompt tokens and 8 more, the last of which is never fed back: 16 tokens, 4 blocks. */
static void test_one_choice(void **state) {
    struct sampling_params params = fixture_params(8);
    expect(9, &params, (struct kv_demand){10, 1, 4}, true, 1);
    params = fixture_params(INT32_MAX);
    expect(9, &params, (struct kv_demand){10, 1, 10}, true, 1); /* the context ends it */
    params = fixture_params(0);
    expect(40, &params, (struct kv_demand){40, 1, 10}, true, 1); /* nothing is generated */
    params = fixture_params(1);
    expect(40, &params, (struct kv_demand){41, 1, 0}, false, 0);
}

/* Choices wait for each other, so one that fits is enough; two blocks of the prompt are shared. */
static void test_choices_take_the_lanes_there_are(void **state) {
    struct sampling_params params = fixture_params(8);
    params.num_choices = 2;
    expect(9, &params, (struct kv_demand){10, 1, 4}, true, 2);
    params.num_choices = 16;
    expect(9, &params, (struct kv_demand){10, 1, 4}, true, 3); /* running slots */
    params = fixture_params(INT32_MAX);
    params.num_choices = 3;
    expect(9, &params, (struct kv_demand){10, 1, 10}, true, 2); /* 2 + 2 * 8 blocks of 20 */
}

/* Beams run all or none. */
static void test_beams_run_together(void **state) {
    struct sampling_params params = fixture_params(8);
    params.beam_width = 3;
    expect(9, &params, (struct kv_demand){10, 3, 2 + 3 * 2}, true, 3);
    params.beam_width = 4;
    expect(9, &params, (struct kv_demand){10, 4, 2 + 4 * 2}, false, 0); /* running slots */
    params = fixture_params(INT32_MAX);
    params.beam_width = 3;
    expect(9, &params, (struct kv_demand){10, 3, 2 + 3 * 8}, false, 0); /* blocks */
}

/* The block in which a late choice computes the prompt's last token again is its own. */
static void test_a_prompt_of_whole_blocks(void **state) {
    struct sampling_params params = fixture_params(1);
    params.beam_width = 3;
    expect(8, &params, (struct kv_demand){9, 3, 1 + 3 * 1}, true, 3);
}

/* A late choice, or beams that come back, may find nothing of the prompt left. */
static void test_a_window_leaves_nothing_to_share(void **state) {
    struct sampling_params params = fixture_params(8);
    const struct serving_limits windowed = {
        .num_blocks = 20, .block_size = 4, .max_num_seqs = 9, .max_model_len = 40, .window = 5};
    params.num_choices = 9;
    struct request *request = make(9, &params);
    assert_int_equal(kv_demand_max_running(request, &windowed), 5); /* of 4 blocks each */
    request_unref(request);
    params.beam_width = 5;
    params.num_choices = 5;
    request = make(9, &params);
    assert_int_equal(kv_demand_of(request, &windowed).num_blocks, 5 * 4);
    request_unref(request);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_choice),
        cmocka_unit_test(test_choices_take_the_lanes_there_are),
        cmocka_unit_test(test_beams_run_together),
        cmocka_unit_test(test_a_prompt_of_whole_blocks),
        cmocka_unit_test(test_a_window_leaves_nothing_to_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
