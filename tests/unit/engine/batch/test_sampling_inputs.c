#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/batch/sampling_inputs.h"
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

static struct sampling_position next_of(struct sequence *sequence) {
    return (struct sampling_position){.sequence = sequence, .position = sequence->num_tokens};
}

static void test_sample_row(void **state) {
    struct sampling_params params = fixture_params(10);
    params.settings.temperature = 0.5f;
    params.settings.top_k = 7;
    params.num_logprobs = 3;
    params.num_choices = 2;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    assert_int_equal(sequence_append(&group->sequences[1], 9), 0);
    const struct sampling_position next = next_of(&group->sequences[0]);
    const struct sampling_position after = {&group->sequences[1], 6, NULL};
    struct sample_row first = sampling_inputs_sample_row(&next);
    struct sample_row second = sampling_inputs_sample_row(&after);
    assert_int_equal(first.target, SAMPLE_NO_TARGET);
    assert_true(first.seed == 42);
    assert_true(second.seed != 42);
    assert_true(first.position == 4 && second.position == 6);
    assert_true(first.settings.temperature == 0.5f && first.settings.top_k == 7 &&
                first.num_logprobs == 3);
    sequence_group_destroy(group);
}

static void test_score_row_is_neutral(void **state) {
    struct sampling_params params = fixture_params(10);
    params.num_prompt_logprobs = 2;
    params.settings.repetition_penalty = 2;
    struct sequence_group *group = fixture_group(1, 0, 4, &params, 100, 4);
    struct sample_row row = sampling_inputs_score_row(&group->sequences[0], 11);
    assert_int_equal(row.target, 11);
    assert_int_equal(row.num_logprobs, 2);
    assert_true(row.settings.repetition_penalty == 1);
    sequence_group_destroy(group);
}

static int32_t fill(struct sequence *sequence, struct token_bias *out) {
    const struct sampling_position at = next_of(sequence);
    return sampling_inputs_fill_biases(&at, fake_tokenizer(), NULL, out);
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
        malloc((size_t)sampling_inputs_max_biases(fake_tokenizer()) * sizeof(*biases));
    int32_t count = fill(s, biases);
    assert_int_equal(count, 5);
    assert_true(isinf(bias_of(biases, count, 0)) && isinf(bias_of(biases, count, 1)));
    assert_true(isinf(bias_of(biases, count, 8)) && isinf(bias_of(biases, count, 12)));
    assert_true(bias_of(biases, count, 20) == 1.0f);
    assert_int_equal(sequence_append(s, 20), 0);
    count = fill(s, biases);
    assert_int_equal(count, 2); /* now they may end it */
    assert_true(bias_of(biases, count, 8) == 2.0f);
    free(biases);
    sequence_group_destroy(group);
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
        malloc((size_t)sampling_inputs_max_biases(fake_tokenizer()) * sizeof(*biases));
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

static bool needs_tokens(const struct sampling_params *params, int32_t latest) {
    struct sequence_group *group = fixture_group(1, 0, 4, params, 100, 4);
    if (latest >= 0)
        assert_int_equal(sequence_append(&group->sequences[0], latest), 0);
    bool needs = sampling_inputs_need_tokens(&group->sequences[0]);
    sequence_group_destroy(group);
    return needs;
}

/* Only a run of which the token before last is the one not known needs it. */
static void test_bad_runs_need_tokens(void **state) {
    static const int32_t one[] = {9}, two[] = {5, 6}, three[] = {5, 6, 7};
    const struct token_run runs[] = {{one, 1}, {three, 3}, {two, 2}};
    struct sampling_params params = fixture_params(10);
    params.min_tokens = 4;
    params.num_allowed_tokens = 1;
    params.allowed_tokens = one;
    params.bad_runs = runs;
    assert_false(needs_tokens(&params, -1));
    params.num_bad_runs = 2;
    assert_false(needs_tokens(&params, -1)); /* the run begins in the prompt */
    assert_false(needs_tokens(&params, 6));
    assert_true(needs_tokens(&params, 5));
    params.num_bad_runs = 3;
    assert_true(needs_tokens(&params, 6));
}

static void test_what_needs_tokens(void **state) {
    struct sampling_params params = fixture_params(10);
    params.settings.frequency_penalty = 0.5F;
    assert_true(needs_tokens(&params, -1));
    params = fixture_params(10);
    params.grammar = fixture_grammar("a");
    assert_true(needs_tokens(&params, -1));
    grammar_unref(params.grammar);
    params = fixture_params(10);
    params.thinking = (struct thinking_budget){
        .begin = "<", .end = ">", .begins_inside = true, .max_tokens = 2, .num_end_tokens = 1};
    assert_false(needs_tokens(&params, -1)); /* there may be two before one is forced */
    params.thinking.max_tokens = 1;
    assert_true(needs_tokens(&params, -1));
}

static int32_t cut(const struct sampling_params *params, const int32_t *drafts,
                   int32_t num_drafts) {
    struct grammar_vocabulary *vocabulary = fixture_vocabulary();
    struct sequence_group *group = fixture_group(1, 0, 4, params, 100, 4);
    int32_t count = sampling_inputs_cut_drafts(&group->sequences[0], fake_tokenizer(), vocabulary,
                                               drafts, num_drafts);
    sequence_group_destroy(group);
    grammar_vocabulary_destroy(vocabulary);
    return count;
}

/* Tokens 3 and 4 are "a" and "b", 0 is an end. */
static void test_drafts_are_cut(void **state) {
    static const int32_t drafts[] = {3, 4, 3, 7, 0, 9}, allowed[] = {4, 3}, stops[] = {7};
    struct sampling_params params = fixture_params(10);
    assert_int_equal(cut(&params, drafts, 6), 5);
    params.ignore_eos = true;
    assert_int_equal(cut(&params, drafts, 6), 6);
    assert_int_equal(cut(&params, drafts, 0), 0);
    params.num_stop_tokens = 1;
    params.stop_tokens = stops;
    assert_int_equal(cut(&params, drafts, 6), 4);
    params.num_allowed_tokens = 2;
    params.allowed_tokens = allowed;
    assert_int_equal(cut(&params, drafts, 6), 3);
    params = fixture_params(10);
    params.grammar = fixture_grammar("aba!"); /* after "a", "ba" is forced */
    assert_int_equal(cut(&params, drafts, 6), 1);
    grammar_unref(params.grammar);
    params.grammar = fixture_grammar("ab"); /* nothing comes after it */
    assert_int_equal(cut(&params, drafts, 6), 2);
    grammar_unref(params.grammar);
}

/* Pieces of the fake tokenizer. */
enum { A = 3, B = 4, AB = 5 };
#define ENDS 3U
#define BIT(token) (UINT32_C(1) << (token))

struct fixture {
    struct grammar_vocabulary *vocabulary;
    struct sequence_group *group;
    struct sequence *sequence;
};

static void start(struct fixture *f, const struct sampling_params *params) {
    f->vocabulary = fixture_vocabulary();
    f->group = fixture_group(1, 0, 4, params, 100, 4);
    f->sequence = &f->group->sequences[0];
}

static void stop(struct fixture *f) {
    sequence_group_destroy(f->group);
    grammar_vocabulary_destroy(f->vocabulary);
}

static bool fill_mask(const struct fixture *f, uint32_t *mask) {
    const struct sampling_position at = next_of(f->sequence);
    uint32_t scratch = 0xdeadbeef;
    int64_t budget = INT64_MAX;
    return sampling_inputs_fill_mask(&at, fake_tokenizer(), f->vocabulary, &budget, &scratch,
                                     mask) == SAMPLING_MASK_FILLED;
}

static uint32_t mask_of(const struct fixture *f) {
    uint32_t mask = 0xdeadbeef;
    assert_true(fill_mask(f, &mask));
    return mask;
}

static void test_nothing_requested(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    uint32_t mask = 7;
    start(&f, &params);
    assert_false(fill_mask(&f, &mask));
    stop(&f);
}

static void test_allowed_tokens(void **state) {
    static const int32_t allowed[] = {31, 0, 5, 5};
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    params.num_allowed_tokens = 4;
    params.allowed_tokens = allowed;
    start(&f, &params);
    assert_int_equal(mask_of(&f), BIT(31) | BIT(0) | BIT(5));
    stop(&f);
}

/* The token that ends the reasoning comes before those allowed, but not before the grammar. */
static void test_a_forced_token(void **state) {
    static const int32_t allowed[] = {31, 0};
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    params.num_allowed_tokens = 2;
    params.allowed_tokens = allowed;
    params.thinking = (struct thinking_budget){.begin = "<",
                                               .end = ">",
                                               .begins_inside = true,
                                               .max_tokens = 0,
                                               .num_end_tokens = 1,
                                               .end_tokens = {B}};
    start(&f, &params);
    assert_int_equal(mask_of(&f), BIT(B));
    stop(&f);
    params.grammar = fixture_grammar("a");
    start(&f, &params);
    assert_int_equal(mask_of(&f), BIT(A));
    stop(&f);
    grammar_unref(params.grammar);
}

static void test_grammar_follows_the_output(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    struct grammar *grammar = fixture_grammar("ab");
    params.grammar = grammar;
    start(&f, &params);
    grammar_unref(grammar); /* the request has its own */
    assert_int_equal(mask_of(&f), BIT(A) | BIT(AB));
    assert_int_equal(sequence_append(f.sequence, B), -1);
    assert_int_equal(sequence_num_generated(f.sequence), 0);
    assert_int_equal(sequence_append(f.sequence, A), 0);
    assert_false(sequence_is_complete(f.sequence));
    assert_int_equal(mask_of(&f), BIT(B));
    assert_int_equal(sequence_append(f.sequence, B), 0);
    assert_true(sequence_is_complete(f.sequence));
    assert_int_equal(mask_of(&f), ENDS);
    stop(&f);
}

static void test_grammar_before_allowed_tokens(void **state) {
    static const int32_t allowed[] = {AB, B};
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    params.grammar = fixture_grammar("aba");
    params.num_allowed_tokens = 2;
    params.allowed_tokens = allowed;
    start(&f, &params);
    grammar_unref(params.grammar);
    assert_int_equal(mask_of(&f), BIT(AB));
    assert_int_equal(sequence_append(f.sequence, AB), 0);
    assert_int_equal(mask_of(&f), BIT(A)); /* none that is allowed continues */
    stop(&f);
}

static void test_bans_give_way(void **state) {
    const uint32_t mask = BIT(0) | BIT(1) | BIT(9);
    struct token_bias biases[] = {{0, -INFINITY}, {1, -INFINITY}, {5, -INFINITY}, {9, 2.0f}};
    assert_int_equal(sampling_inputs_drop_bans(&mask, FAKE_VOCAB_SIZE, biases, 4), 4);
    biases[3].bias = -INFINITY;
    assert_int_equal(sampling_inputs_drop_bans(&mask, FAKE_VOCAB_SIZE, biases, 4), 1);
    assert_int_equal(biases[0].token, 5);
    const uint32_t two_words[] = {BIT(0), BIT(2)};
    biases[0].token = 34;
    assert_int_equal(sampling_inputs_drop_bans(two_words, 40, biases, 1), 1);
    const uint32_t second_word[] = {0, BIT(2)};
    assert_int_equal(sampling_inputs_drop_bans(second_word, 40, biases, 1), 0);
}

/* With a penalty, every row of a step repeats the counts: all of them fit, with drafts as without.
 */
static void test_drafts_that_counts_have_room_for(void **state) {
    const struct serving_limits limits = {.max_num_seqs = 1,
                                          .max_model_len = 20,
                                          .vocab_size = FAKE_VOCAB_SIZE,
                                          .num_speculative_tokens = 8};
    struct sampling_params plain = fixture_params(10), penalty = fixture_params(10);
    penalty.settings.repetition_penalty = 1.5f;
    for (int32_t num_prompt = 1; num_prompt <= 18; num_prompt++) {
        struct sequence_group *a = fixture_group(1, 0, num_prompt, &plain, 20, 4);
        struct sequence_group *b = fixture_group(2, 0, num_prompt, &penalty, 20, 4);
        struct sequence *s = &b->sequences[0];
        assert_int_equal(sequence_count_prompt(s), 0);
        assert_int_equal(s->counts.num_items, num_prompt);
        assert_int_equal(sampling_inputs_max_drafts(&a->sequences[0], &limits), 8);
        int32_t most = sampling_inputs_max_drafts(s, &limits);
        assert_true(most >= 1 && most <= 8);
        assert_true(num_prompt > 1 || most > 1);
        for (int32_t count = 1; count <= 8; count++) {
            int32_t each = num_prompt + count < 20 ? num_prompt + count : 20;
            bool fits = (size_t)((1 + count) * each) <= serving_limits_max_counts(&limits);
            assert_int_equal(count <= most, fits);
        }
        sequence_group_destroy(a);
        sequence_group_destroy(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample_row),
        cmocka_unit_test(test_score_row_is_neutral),
        cmocka_unit_test(test_min_tokens_bans_every_end),
        cmocka_unit_test(test_bad_runs_ban_their_last_token),
        cmocka_unit_test(test_bad_runs_need_tokens),
        cmocka_unit_test(test_what_needs_tokens),
        cmocka_unit_test(test_drafts_are_cut),
        cmocka_unit_test(test_nothing_requested),
        cmocka_unit_test(test_allowed_tokens),
        cmocka_unit_test(test_a_forced_token),
        cmocka_unit_test(test_grammar_follows_the_output),
        cmocka_unit_test(test_grammar_before_allowed_tokens),
        cmocka_unit_test(test_bans_give_way),
        cmocka_unit_test(test_drafts_that_counts_have_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
