#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/batch/sampler.h"
#include "tests/unit/engine/sequence_fixture.h"

#include <math.h>

static float bias_of(const struct token_bias *biases, int32_t count, int32_t token) {
    float found = 0;
    int times = 0;
    for (int32_t i = 0; i < count; i++) {
        if (biases[i].token == token) {
            found = biases[i].bias;
            times++;
        }
    }
    assert_in_range(times, 0, 1);
    return found;
}

static void test_draw_row(void **state) {
    struct sampling_params params = fixture_params(10);
    params.settings.temperature = 0.5f;
    params.settings.top_k = 7;
    params.num_logprobs = 3;
    params.num_choices = 2;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(sequence_append(&group->sequences[1], 9), 0);
    struct sample_row first = sampler_draw_row(&group->sequences[0]);
    struct sample_row second = sampler_draw_row(&group->sequences[1]);
    assert_int_equal(first.target, SAMPLE_NO_TARGET);
    assert_true(first.seed == 42);
    assert_true(second.seed != 42);
    assert_true(first.position == 4 && second.position == 5);
    assert_true(first.settings.temperature == 0.5f && first.settings.top_k == 7 &&
                first.num_logprobs == 3);
    sequence_group_destroy(group);
}

static void test_score_row_is_neutral(void **state) {
    struct sampling_params params = fixture_params(10);
    params.num_prompt_logprobs = 2;
    params.settings.repetition_penalty = 2;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    struct sample_row row = sampler_score_row(&group->sequences[0], 11);
    assert_int_equal(row.target, 11);
    assert_int_equal(row.num_logprobs, 2);
    assert_true(row.settings.repetition_penalty == 1);
    sequence_group_destroy(group);
}

static void test_min_tokens_bans_every_end(void **state) {
    int32_t stop_tokens[] = {8, 12};
    struct token_bias given[] = {{8, 2.0f}, {20, 1.0f}};
    struct sampling_params params = fixture_params(10);
    params.min_tokens = 1;
    params.num_stop_tokens = 2;
    params.stop_tokens = stop_tokens;
    params.num_biases = 2;
    params.biases = given;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    struct sequence *s = &group->sequences[0];
    struct token_bias *biases =
        malloc((size_t)sampler_max_biases(fake_tokenizer()) * sizeof(*biases));
    int32_t count = sampler_fill_biases(s, fake_tokenizer(), biases);
    assert_int_equal(count, 5);
    assert_true(isinf(bias_of(biases, count, 0)) && isinf(bias_of(biases, count, 1)));
    assert_true(isinf(bias_of(biases, count, 8)) && isinf(bias_of(biases, count, 12)));
    assert_true(bias_of(biases, count, 20) == 1.0f);
    assert_int_equal(sequence_append(s, 20), 0);
    count = sampler_fill_biases(s, fake_tokenizer(), biases);
    assert_int_equal(count, 2); /* now they may end it */
    assert_true(bias_of(biases, count, 8) == 2.0f);
    free(biases);
    sequence_group_destroy(group);
}

static int32_t fill(const struct sequence *sequence, struct token_bias *out) {
    return sampler_fill_biases(sequence, fake_tokenizer(), out);
}

static void test_bad_runs_ban_their_last_token(void **state) {
    static const int32_t one[] = {9}, three[] = {5, 6, 7}, from_prompt[] = {6, 11},
                         same[] = {4, 4, 9};
    const struct token_run runs[] = {{one, 1}, {three, 3}, {from_prompt, 2}, {same, 3}};
    struct token_bias given[] = {{7, 2.0f}};
    struct sampling_params params = fixture_params(10);
    params.num_bad_runs = 4;
    params.bad_runs = runs;
    params.num_biases = 1;
    params.biases = given;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4); /* 3, 4, 5, 6 */
    struct sequence *s = &group->sequences[0];
    struct token_bias *biases =
        malloc((size_t)sampler_max_biases(fake_tokenizer()) * sizeof(*biases));
    int32_t count = fill(s, biases);
    assert_int_equal(count, 2); /* the prompt's 5, 6 begin no run */
    assert_true(isinf(bias_of(biases, count, 9)) && bias_of(biases, count, 7) == 2.0f);
    assert_int_equal(sequence_append(s, 5), 0);
    assert_int_equal(fill(s, biases), 2);
    assert_int_equal(sequence_append(s, 6), 0);
    count = fill(s, biases);
    assert_int_equal(count, 3);
    assert_true(isinf(bias_of(biases, count, 7)) && isinf(bias_of(biases, count, 11)));
    assert_int_equal(sequence_append(s, 4), 0);
    assert_int_equal(sequence_append(s, 4), 0);
    count = fill(s, biases);
    assert_int_equal(count, 2); /* 9 for two reasons */
    assert_true(bias_of(biases, count, 7) == 2.0f);
    free(biases);
    sequence_group_destroy(group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw_row),
        cmocka_unit_test(test_score_row_is_neutral),
        cmocka_unit_test(test_min_tokens_bans_every_end),
        cmocka_unit_test(test_bad_runs_ban_their_last_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
