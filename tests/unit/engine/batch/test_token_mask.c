#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/batch/token_mask.h"
#include "tests/unit/engine/sequence_fixture.h"

#include <math.h>

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

static uint32_t mask_of(struct fixture *f) {
    uint32_t mask = 0xdeadbeef, scratch = 0xdeadbeef;
    assert_true(token_mask_fill(f->sequence, f->vocabulary, FAKE_VOCAB_SIZE, &scratch, &mask));
    return mask;
}

static void test_nothing_asked_for(void **state) {
    struct fixture f;
    struct sampling_params params = fixture_params(5);
    uint32_t mask = 7, scratch;
    start(&f, &params);
    assert_false(token_mask_fill(f.sequence, NULL, FAKE_VOCAB_SIZE, &scratch, &mask));
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
    assert_int_equal(mask_of(&f), BIT(A)); /* none that is allowed goes on */
    stop(&f);
}

static void test_bans_give_way(void **state) {
    const uint32_t mask = BIT(0) | BIT(1) | BIT(9);
    struct token_bias biases[] = {{0, -INFINITY}, {1, -INFINITY}, {5, -INFINITY}, {9, 2.0f}};
    assert_int_equal(token_mask_drop_bans(&mask, FAKE_VOCAB_SIZE, biases, 4), 4);
    biases[3].bias = -INFINITY;
    assert_int_equal(token_mask_drop_bans(&mask, FAKE_VOCAB_SIZE, biases, 4), 1);
    assert_int_equal(biases[0].token, 5);
    const uint32_t two_words[] = {BIT(0), BIT(2)};
    biases[0].token = 34;
    assert_int_equal(token_mask_drop_bans(two_words, 40, biases, 1), 1);
    const uint32_t second_word[] = {0, BIT(2)};
    assert_int_equal(token_mask_drop_bans(second_word, 40, biases, 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_asked_for),
        cmocka_unit_test(test_allowed_tokens),
        cmocka_unit_test(test_a_forced_token),
        cmocka_unit_test(test_grammar_follows_the_output),
        cmocka_unit_test(test_grammar_before_allowed_tokens),
        cmocka_unit_test(test_bans_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
