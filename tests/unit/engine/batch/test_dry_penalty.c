/* DRY's penalties: by hand, and for random texts against an oracle that compares every place with
 * the end. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/batch/dry_penalty.h"
#include "engine/batch/sampling_inputs.h"
#include "tests/sim/dry_oracle.h"
#include "tests/sim/random.h"
#include "tests/unit/engine/sequence_fixture.h"

#include <math.h>

enum { MAX_LEN = 200, A = 3, B = 4, C = 8, SPACE = 12, LINE = 26, HELLO = 30 };

static struct sequence_group *group_of(const int32_t *tokens, int32_t count,
                                       const struct sampling_params *params) {
    struct request *request = request_create(tokens, count, params);
    const struct serving_limits limits = {.max_model_len = MAX_LEN, .block_size = 4};
    const struct group_shape shape = {.limits = &limits};
    struct sequence_group *group = sequence_group_create(request, &shape);
    request_unref(request);
    return group;
}

static struct sampling_params params_of(int32_t allowed_length, int32_t last_n) {
    struct sampling_params params = fixture_params(50);
    params.settings.dry_multiplier = 0.5f;
    params.settings.dry_base = 2;
    params.settings.dry_allowed_length = allowed_length;
    params.settings.dry_penalty_last_n = last_n;
    return params;
}

static void find(const struct sequence *sequence, const int32_t *drafts, int32_t num_drafts,
                 int32_t max_len, float penalties[FAKE_VOCAB_SIZE]) {
    struct dry_scratch scratch;
    struct token_bias biases[DRY_MAX_TOKENS];
    assert_int_equal(dry_scratch_init(&scratch, max_len), 0);
    int32_t count =
        dry_penalty_find(sequence, drafts, num_drafts, fake_tokenizer(), &scratch, biases);
    memset(penalties, 0, FAKE_VOCAB_SIZE * sizeof(*penalties));
    for (int32_t i = 0; i < count; i++) {
        assert_true(penalties[biases[i].token] == 0 && biases[i].bias < 0);
        penalties[biases[i].token] = -biases[i].bias;
    }
    dry_scratch_finish(&scratch);
}

#define FIND(params, penalties, ...)                                                               \
    do {                                                                                           \
        const int32_t tokens[] = {__VA_ARGS__};                                                    \
        struct sequence_group *group =                                                             \
            group_of(tokens, sizeof(tokens) / sizeof(tokens[0]), params);                          \
        find(&group->sequences[0], NULL, 0, MAX_LEN, penalties);                                   \
        sequence_group_destroy(group);                                                             \
    } while (false)

static void expect_only(const float *penalties, int32_t token, float penalty) {
    for (int32_t i = 0; i < FAKE_VOCAB_SIZE; i++)
        if (penalties[i] != (i == token ? penalty : 0))
            fail_msg("token %d has %g", (int)i, (double)penalties[i]);
}

static void test_by_hand(void **state) {
    float penalties[FAKE_VOCAB_SIZE];
    struct sampling_params params = params_of(2, -1);
    FIND(&params, penalties, A, B, C, HELLO, B, A, B); /* "A B" was followed by C */
    expect_only(penalties, C, 0.5f);
    FIND(&params, penalties, SPACE, A, B, C, SPACE, A, B); /* as was " A B" */
    expect_only(penalties, C, 1);
    FIND(&params, penalties, A, A, A, A, A); /* four that overlap */
    expect_only(penalties, A, 2);
    FIND(&params, penalties, A, B, C, HELLO, B); /* only one token is repeated */
    expect_only(penalties, C, 0);
    /* "A B" was followed by C and by HELLO; the longer one counts for each. */
    FIND(&params, penalties, SPACE, A, B, C, A, B, HELLO, SPACE, A, B);
    assert_true(penalties[C] == 1 && penalties[HELLO] == 0.5f);
    params = params_of(2, 6);
    FIND(&params, penalties, SPACE, A, B, C, SPACE, A, B); /* a window of six lacks the first */
    expect_only(penalties, C, 0.5f);
    params = params_of(2, 4);
    FIND(&params, penalties, SPACE, A, B, C, SPACE, A, B);
    expect_only(penalties, C, 0);
}

static void test_breakers(void **state) {
    static const struct stop_string breakers[] = {{"\n", 1}, {"ca", 2}};
    float penalties[FAKE_VOCAB_SIZE];
    struct sampling_params params = params_of(1, -1);
    params.dry_breakers = breakers;
    params.num_dry_breakers = 2;
    FIND(&params, penalties, LINE, B, HELLO, LINE, B); /* not over the line's end */
    expect_only(penalties, HELLO, 0.5f);
    FIND(&params, penalties, B, LINE, HELLO, B, LINE); /* which is itself the end here */
    expect_only(penalties, HELLO, 0);
    FIND(&params, penalties, C, A, B, HELLO, C, A, B); /* over two tokens */
    expect_only(penalties, HELLO, 0.5f);
    params.num_dry_breakers = 1;
    FIND(&params, penalties, C, A, B, HELLO, C, A, B);
    expect_only(penalties, HELLO, 2);
}

static void test_added_to_biases(void **state) {
    const struct token_bias given[] = {{C, 3}, {B, 1}};
    const int32_t tokens[] = {A, B, C, A, B};
    struct token_bias *biases =
        malloc((size_t)sampling_inputs_max_biases(fake_tokenizer()) * sizeof(*biases));
    struct sampling_params params = params_of(2, -1);
    struct dry_scratch scratch;
    params.num_biases = 2;
    params.biases = given;
    struct sequence_group *group = group_of(tokens, 5, &params);
    struct sequence *sequence = &group->sequences[0];
    const struct sampling_position at = {sequence, 5, NULL};
    assert_int_equal(dry_scratch_init(&scratch, MAX_LEN), 0);
    assert_true(sampling_inputs_need_tokens(sequence));
    assert_int_equal(sampling_inputs_fill_biases(&at, fake_tokenizer(), &scratch, biases), 2);
    assert_true(biases[0].token == C && biases[0].bias == 2.5f);
    assert_true(biases[1].token == B && biases[1].bias == 1);
    dry_scratch_finish(&scratch);
    free(biases);
    sequence_group_destroy(group);
}

/* A penalty has a largest value, and so has the window. */
static void test_bounds(void **state) {
    int32_t tokens[150];
    float penalties[FAKE_VOCAB_SIZE];
    struct sampling_params params = params_of(2, -1);
    params.settings.dry_base = 10;
    for (int i = 0; i < 150; i++)
        tokens[i] = A;
    struct sequence_group *group = group_of(tokens, 150, &params);
    find(&group->sequences[0], NULL, 0, MAX_LEN, penalties);
    expect_only(penalties, A, (float)DRY_MAX_PENALTY);
    find(&group->sequences[0], NULL, 0, 4, penalties); /* room for four: three repeat */
    expect_only(penalties, A, 5);
    sequence_group_destroy(group);
}

static void test_random_texts(void **state) {
    static const struct stop_string breakers[] = {{"b", 1}, {"a ", 2}, {"\n", 1}};
    int num_penalised = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct random random = random_from(seed);
        struct sampling_params params =
            params_of(random_range(&random, 1, 3),
                      random_once_in(&random, 2) ? -1 : random_range(&random, 1, 60));
        params.dry_breakers = breakers;
        params.num_dry_breakers = random_range(&random, 0, 3);
        int32_t tokens[90], num_prompt = random_range(&random, 1, 60), num_output = 30;
        int32_t kinds = random_range(&random, 2, 4), num_drafts = random_range(&random, 0, 8);
        static const int32_t some[] = {A, SPACE, C, B};
        for (int i = 0; i < 90; i++)
            tokens[i] = some[random_range(&random, 0, kinds - 1)];
        struct sequence_group *group = group_of(tokens, num_prompt, &params);
        const int32_t *output = tokens + num_prompt;
        float found[FAKE_VOCAB_SIZE], expected[FAKE_VOCAB_SIZE];
        for (int i = 0; i < num_output - num_drafts; i++)
            assert_int_equal(sequence_append(&group->sequences[0], output[i]), 0);
        find(&group->sequences[0], output + num_output - num_drafts, num_drafts, MAX_LEN, found);
        dry_oracle_find(group->request, output, num_output, expected);
        for (int32_t i = 0; i < FAKE_VOCAB_SIZE; i++) {
            if (found[i] != expected[i])
                fail_msg("seed %d, token %d: %g, expected %g", (int)seed, (int)i, (double)found[i],
                         (double)expected[i]);
            num_penalised += found[i] > 0;
        }
        sequence_group_destroy(group);
    }
    assert_true(num_penalised > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),         cmocka_unit_test(test_breakers),
        cmocka_unit_test(test_added_to_biases), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_random_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
