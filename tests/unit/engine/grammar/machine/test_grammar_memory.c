/* Memory that runs out at every allocation in turn: building fails with ERROR_MEMORY, a mask or a
 * move with -1, and what stood before still stands. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/read/grammar_text.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"
#include "tests/unit/failing_allocations.h"

#include <string.h>

#define ROUNDS 400

static struct tokenizer tokenizer;

/* value = "n" | "[" value{1,3} "]" | one of many words */
static struct grammar *build(struct error *err) {
    struct grammar_builder *b = grammar_builder_create();
    if (b == NULL) {
        error_set(err, ERROR_MEMORY, "memory is short");
        return NULL;
    }
    grammar_node value = grammar_rule(b), items[70];
    for (int i = 0; i < 68; i++)
        items[i] = grammar_literal(b, (char[]){'n', (char)('!' + i), 'x'}, 3);
    grammar_node list[] = {grammar_literal(b, "[", 1), grammar_repeat(b, value, 1, 3),
                           grammar_literal(b, "]", 1)};
    items[68] = grammar_sequence(b, list, 3);
    items[69] = grammar_characters(b, &(struct character_range){'a', 0x9999}, 1, false);
    grammar_define(b, value, grammar_alternatives(b, items, 70));
    struct grammar *grammar = NULL;
    grammar_build(b, value, &grammar, err);
    grammar_builder_destroy(b);
    return grammar;
}

static void test_building(void **unused) {
    long first = 0;
    struct grammar *grammar;
    do {
        struct error err = {0};
        allocations_left = first++;
        grammar = build(&err);
        allocations_left = -1;
        assert_true(grammar != NULL || err.code == ERROR_MEMORY);
    } while (grammar == NULL);
    assert_true(first > 10);
    grammar_unref(grammar);
}

static struct grammar *read(const char *text, struct error *err) {
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = NULL;
    grammar_node root;
    if (b == NULL)
        error_set(err, ERROR_MEMORY, "memory is short");
    else if (grammar_text(b, text, &root, err) == 0)
        grammar_build(b, root, &grammar, err);
    grammar_builder_destroy(b);
    return grammar;
}

/* Recursion on the left, by one rule and by two, and what may be empty. */
static void test_notations(void **unused) {
    static const char *const texts[] = {
        "root ::= root \"+\" root | a [x-z] \"text\"\na ::= b \"!\" | (\"c\"* \"d\"?)*\nb ::= a | "
        "\"e\"",
        ("start: a? b*\na: a \"x\"i | B /y+z/i\nb: c \"v\" | \"w\"..\"z\"\nc: b | a -> d\n"
         "B: \"b\"~2..3\n%import common.WS\n%ignore WS"),
    };
    for (int i = 0; i < 2; i++) {
        struct grammar *grammar;
        long first = 0;
        do {
            struct error err = {0};
            allocations_left = first++;
            grammar = read(texts[i], &err);
            allocations_left = -1;
            if (grammar == NULL && err.code != ERROR_MEMORY)
                fail_msg("%s", err.message);
        } while (grammar == NULL);
        assert_true(first > 40);
        grammar_unref(grammar);
    }
}

static void test_vocabulary(void **unused) {
    struct grammar_vocabulary *vocabulary = NULL;
    for (long first = 0; vocabulary == NULL; first++) {
        struct error err = {0};
        allocations_left = first;
        int result = grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
        allocations_left = -1;
        assert_int_equal(result, vocabulary != NULL ? 0 : -1);
        assert_true(result == 0 || err.code == ERROR_MEMORY);
    }
    grammar_vocabulary_destroy(vocabulary);
}

/* The text continues although every call fails a few times on its way. */
static void walk(struct grammar *grammar, const struct grammar_vocabulary *vocabulary,
                 const char *text, long *out_failures) {
    struct grammar_state *state = NULL, *other = NULL;
    for (long first = 0; state == NULL; first++) {
        allocations_left = first;
        state = grammar_state_create(grammar, vocabulary);
        allocations_left = -1;
    }
    for (long first = 0; other == NULL; first++) {
        allocations_left = first;
        other = grammar_state_clone(state);
        allocations_left = -1;
    }
    for (size_t i = 0; text[i] != '\0'; i++) {
        int32_t token = (uint8_t)text[i];
        uint32_t mask[FIXTURE_WORDS] = {0};
        int result = -1;
        for (long first = 0; result != 0 && first < ROUNDS; first++) {
            allocations_left = first;
            result = grammar_state_mask(state, mask);
            allocations_left = -1;
            *out_failures += result != 0;
        }
        assert_int_equal(result, 0);
        assert_true((mask[token / 32] >> (token % 32) & 1) != 0);
        for (result = -1; result != 0;) {
            allocations_left = 0;
            result = grammar_state_accept(state, token);
            allocations_left = -1;
            if (result != 0)
                result = grammar_state_accept(state, token);
        }
    }
    assert_true(grammar_state_is_final(state));
    assert_int_equal(grammar_state_accept(other, (uint8_t)text[0]), 0);
    grammar_state_destroy(state);
    grammar_state_destroy(other);
}

static void test_states(void **unused) {
    struct grammar_vocabulary *vocabulary;
    struct error err;
    long num_failures = 0;
    assert_int_equal(grammar_vocabulary_create(&tokenizer, &vocabulary, &err), 0);
    for (int forgets = 0; forgets < 2; forgets++) {
        struct grammar *grammar = build(&err);
        if (forgets)
            grammar->cache_bytes = 0;
        walk(grammar, vocabulary, "[[a\xc3\xa9n!x][[z]]]", &num_failures);
        grammar_unref(grammar);
    }
    assert_true(num_failures > 20);
    grammar_vocabulary_destroy(vocabulary);
}

/* '{' ('"' [a-z]+ '",')* '}', where no name comes twice. */
static struct grammar *build_object(void) {
    static const struct character_range letters = {'a', 'z'};
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err;
    grammar_node letter = grammar_characters(b, &letters, 1, false);
    grammar_node member[] = {grammar_literal(b, "\"", 1), grammar_repeat(b, letter, 1, -1),
                             grammar_literal(b, "\",", 2)};
    grammar_node all[] = {grammar_open_object(b),
                          grammar_repeat(b, grammar_sequence(b, member, 3), 0, -1),
                          grammar_literal(b, "}", 1)};
    assert_int_equal(grammar_build(b, grammar_sequence(b, all, 3), &grammar, &err), 0);
    grammar_builder_destroy(b);
    return grammar;
}

/* Where memory is short for a name, it is not forgotten. */
static void test_names(void **unused) {
    struct grammar_vocabulary *vocabulary;
    struct error err;
    uint32_t mask[FIXTURE_WORDS];
    long num_failures = 0;
    assert_int_equal(grammar_vocabulary_create(&tokenizer, &vocabulary, &err), 0);
    struct grammar *grammar = build_object();
    walk(grammar, vocabulary, "{\"a\",\"ab\",\"b\",}", &num_failures);
    assert_true(num_failures > 5);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    for (const char *at = "{\"a\",\"a"; *at != '\0'; at++) {
        struct grammar_state *clone;
        for (int result = -1; result != 0;) {
            allocations_left = 0;
            result = grammar_state_accept(state, (uint8_t)*at);
            allocations_left = -1;
            if (result != 0)
                result = grammar_state_accept(state, (uint8_t)*at);
        }
        for (long first = 0; (clone = grammar_state_clone(state)) != NULL && first < 3; first++) {
            grammar_state_destroy(clone);
            allocations_left = first;
        }
        allocations_left = -1;
        grammar_state_destroy(clone);
    }
    assert_int_equal(grammar_state_mask(state, mask), 0);
    assert_true(fixture_allows(mask, 'b'));
    assert_false(fixture_allows(mask, '"'));
    grammar_state_destroy(state);
    grammar_unref(grammar);
    grammar_vocabulary_destroy(vocabulary);
}

/* Up to 60000 letters, or control tokens: as many sets as there are counts. */
static struct grammar *build_counted(bool of_tokens, size_t cache_bytes) {
    static const struct character_range letters = {'a', 'z'};
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err;
    grammar_node item =
        of_tokens ? grammar_token(b, tokenizer.control) : grammar_characters(b, &letters, 1, false);
    assert_int_equal(grammar_build(b, grammar_repeat(b, item, 0, 60000), &grammar, &err), 0);
    grammar_builder_destroy(b);
    grammar->cache_bytes = cache_bytes;
    return grammar;
}

/* Copies the state, moves the copy on by so many tokens and finds its mask, perhaps. */
static void go_ahead(const struct grammar_state *state, int32_t token, int count, bool masks) {
    struct grammar_state *clone = grammar_state_clone(state);
    uint32_t mask[FIXTURE_WORDS];
    for (int i = 0; i < count; i++)
        assert_int_equal(grammar_state_accept(clone, token), 0);
    if (masks)
        assert_int_equal(grammar_state_mask(clone, mask), 0);
    grammar_state_destroy(clone);
}

/* What clones that went ahead found out is forgotten like all else. */
static void check_clones(const struct grammar_vocabulary *vocabulary, bool of_tokens, bool masks) {
    enum { NUM_POSITIONS = 2000, NUM_DRAFTS = 16, CACHE_BYTES = 1 << 16, ONE_STEP = 1 << 14 };
    struct grammar *grammar = build_counted(of_tokens, CACHE_BYTES);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    int32_t token = of_tokens ? tokenizer.control : 'x';
    size_t most = 0;
    for (int i = 0; i < NUM_POSITIONS; i++) {
        for (int count = 0; count <= NUM_DRAFTS; count++) {
            go_ahead(state, token, count, masks);
            if (grammar->machine->store.bytes > most)
                most = grammar->machine->store.bytes;
        }
        assert_int_equal(grammar_state_accept(state, token), 0);
    }
    assert_in_range(most, CACHE_BYTES - ONE_STEP, CACHE_BYTES + ONE_STEP);
    assert_ptr_equal(grammar->machine->users, state);
    assert_null(state->next);
    grammar_state_destroy(state);
    grammar_unref(grammar);
}

static void test_clones(void **unused) {
    struct grammar_vocabulary *vocabulary;
    struct error err;
    assert_int_equal(grammar_vocabulary_create(&tokenizer, &vocabulary, &err), 0);
    check_clones(vocabulary, false, true);
    check_clones(vocabulary, false, false);
    check_clones(vocabulary, true, true);
    check_clones(vocabulary, true, false);
    grammar_vocabulary_destroy(vocabulary);
}

static int set_up(void **state) {
    fixture_init_bytes(&tokenizer);
    fixture_add(&tokenizer, "[[", 2);
    fixture_add(&tokenizer, "]]", 2);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_building),   cmocka_unit_test(test_notations),
        cmocka_unit_test(test_vocabulary), cmocka_unit_test(test_states),
        cmocka_unit_test(test_names),      cmocka_unit_test(test_clones),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
