/* The tokens that a grammar leaves no choice about. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/sequence/sequence.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <string.h>

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;
static int32_t name, colon, quote_name;

/* All bytes but 'z' have a token; further ones are "name", "\":" and "\"name". */
static int set_up(void **state) {
    struct error err;
    fixture_init_bytes(&tokenizer);
    tokenizer.pieces['z'].length = 0;
    name = fixture_add(&tokenizer, "name", 4);
    colon = fixture_add(&tokenizer, "\":", 2);
    quote_name = fixture_add(&tokenizer, "\"name", 5);
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}

static struct grammar_state *start(const char *pattern) {
    struct grammar *grammar = fixture_regex(pattern);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    assert_non_null(state);
    grammar_unref(grammar);
    return state;
}

/* Every one of them is a token that the mask allows there. */
static void assert_forced(const char *pattern, int32_t most, const int32_t *expected,
                          int32_t num_expected) {
    struct grammar_state *state = start(pattern);
    int32_t found[MAX_FORCED_TOKENS];
    int32_t count = grammar_state_forced(state, found, most);
    if (count != num_expected)
        fail_msg("%s: %d tokens instead of %d", pattern, count, num_expected);
    for (int32_t i = 0; i < count; i++) {
        uint32_t mask[FIXTURE_WORDS];
        assert_int_equal(found[i], expected[i]);
        assert_int_equal(grammar_state_mask(state, mask), 0);
        assert_true(fixture_allows(mask, found[i]));
        assert_int_equal(grammar_state_accept(state, found[i]), 0);
    }
    grammar_state_destroy(state);
}

static void test_texts(void **unused) {
    const int32_t member[] = {'{', quote_name, colon}, letters[] = {'a', 'b', 'c', 'd'};
    /* The last token may go on with what is sampled, but not at the end of the text. */
    assert_forced("\\{\"name\": ?[0-9]", 32, member, 2);
    assert_forced("\\{\"name\":", 32, member, 3);
    assert_forced("\\{\"name\":(?:1|2)?", 32, member, 2);
    /* Alternatives that begin alike; no choice at all. */
    assert_forced("(?:abcde|abcdf)", 32, letters, 3);
    assert_forced("[ab]bcd", 32, NULL, 0);
    assert_forced("(?:abcd)?", 32, NULL, 0);
    assert_forced("ab*", 32, NULL, 0);
    assert_forced("a[bc]", 32, NULL, 0); /* one byte is not worth it */
    /* Repetitions, one without a choice. */
    assert_forced("(?:ab){1}cd", 32, letters, 4);
    /* No more than there is room for; the vocabulary has no z. */
    assert_forced("abcd", 4, letters, 4);
    assert_forced("abcde", 4, letters, 3);
    assert_forced("abzd", 32, letters, 2);
}

static void set_up_again(void) {
    struct error err;
    grammar_vocabulary_destroy(vocabulary);
    assert_int_equal(grammar_vocabulary_create(&tokenizer, &vocabulary, &err), 0);
}

/* A space before each text is none of the text's. */
static void test_a_tokenizer_that_adds_a_space(void **unused) {
    const struct tokenizer before = tokenizer;
    tokenizer.adds_space = true;
    set_up_again();
    test_texts(NULL);
    assert_forced(" bcd", 32, (const int32_t[]){' ', 'b', 'c', 'd'}, 4);
    int32_t spaces = fixture_add(&tokenizer, "  ", 2);
    set_up_again();
    assert_forced(" bcd", 32, (const int32_t[]){' ', 'b', 'c', 'd'}, 4);
    assert_forced("  bcd", 32, (const int32_t[]){spaces, 'b', 'c', 'd'}, 4);
    /* A line break that merges with what follows it is none to go by. */
    fixture_add(&tokenizer, "\nab", 3);
    set_up_again();
    assert_forced("abcd", 32, NULL, 0);
    tokenizer = before;
    set_up_again();
}

/* A text longer than is looked at is found in parts. */
static void test_long_text(void **unused) {
    struct grammar_state *state = start("a{1000}");
    int32_t found[MAX_FORCED_TOKENS], sum = 0, count;
    while ((count = grammar_state_forced(state, found, MAX_FORCED_TOKENS)) > 0) {
        for (int32_t i = 0; i < count; i++)
            assert_int_equal(grammar_state_accept(state, found[i]), 0);
        sum += count;
    }
    assert_int_equal(sum, 1000);
    assert_true(grammar_state_is_final(state));
    grammar_state_destroy(state);
}

static void test_note(void **unused) {
    struct grammar_state *state = start("[xy](?:abcd)e?");
    struct forced_tokens forced = {0};
    assert_int_equal(grammar_state_accept(state, 'x'), 0);
    forced_tokens_note(&forced, state, 'x');
    assert_int_equal(forced.count, 3); /* d may be the start of another token */
    assert_int_equal(grammar_state_accept(state, 'a'), 0);
    forced_tokens_note(&forced, state, 'a');
    assert_int_equal(forced.count, 2);
    assert_int_equal(forced.tokens[0], 'b');
    forced_tokens_note(&forced, state, 'c'); /* a draft that is another token */
    assert_int_equal(forced.count, 2);
    assert_int_equal(forced.tokens[1], 'c');
    grammar_state_destroy(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_a_tokenizer_that_adds_a_space),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_note),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
