/* Grammars written down by hand: what they match, what is refused, and the bounds. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/machine/grammar_machine.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;

static int set_up(void **state) {
    fixture_init_bytes(&tokenizer);
    fixture_add(&tokenizer, "ab", 2);
    fixture_add(&tokenizer, "abc", 3);
    fixture_add(&tokenizer, "", 0);
    fixture_add(&tokenizer, "ab", 2); /* twice the same text */
    struct error err;
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}

/* Builds, and destroys the builder. */
static struct grammar *build(struct grammar_builder *builder, grammar_node root) {
    struct grammar *grammar = NULL;
    struct error err = {0};
    if (grammar_build(builder, root, &grammar, &err) != 0)
        fail_msg("%s", err.message);
    grammar_builder_destroy(builder);
    return grammar;
}

static void refuse(struct grammar_builder *builder, grammar_node root, const char *message) {
    struct grammar *grammar = NULL;
    struct error err = {0};
    assert_int_equal(grammar_build(builder, root, &grammar, &err), -1);
    assert_int_equal(err.code, ERROR_SYNTAX);
    assert_non_null(strstr(err.message, message));
    assert_null(grammar);
    grammar_builder_destroy(builder);
}

enum verdict { IMPOSSIBLE, PREFIX, COMPLETE };

/* Feeds the text byte by byte; every byte's mask must say the same as accept does. */
static enum verdict try_bytes(struct grammar *grammar, const char *text, size_t length) {
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    assert_non_null(state);
    uint32_t mask[FIXTURE_WORDS];
    for (size_t i = 0; i < length; i++) {
        int32_t token = (uint8_t)text[i];
        assert_int_equal(grammar_state_mask(state, mask), 0);
        bool allowed = fixture_allows(mask, token);
        assert_int_equal(grammar_state_accept(state, token), allowed ? 0 : -1);
        if (!allowed) {
            grammar_state_destroy(state);
            return IMPOSSIBLE;
        }
    }
    assert_int_equal(grammar_state_mask(state, mask), 0);
    enum verdict verdict = fixture_allows(mask, tokenizer.end) ? COMPLETE : PREFIX;
    assert_int_equal(grammar_state_accept(state, tokenizer.end), verdict == COMPLETE ? 0 : -1);
    grammar_state_destroy(state);
    return verdict;
}

static enum verdict try(struct grammar *grammar, const char *text) {
    return try_bytes(grammar, text, strlen(text));
}

static grammar_node literal(struct grammar_builder *b, const char *text) {
    return grammar_literal(b, text, strlen(text));
}

#define SEQUENCE(b, ...)                                                                           \
    grammar_sequence(b, (grammar_node[]){__VA_ARGS__},                                             \
                     (int)(sizeof((grammar_node[]){__VA_ARGS__}) / sizeof(grammar_node)))
#define ALTERNATIVES(b, ...)                                                                       \
    grammar_alternatives(b, (grammar_node[]){__VA_ARGS__},                                         \
                         (int)(sizeof((grammar_node[]){__VA_ARGS__}) / sizeof(grammar_node)))

static void test_tokens_over_bytes(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = build(b, ALTERNATIVES(b, literal(b, "abd"), literal(b, "abcc")));
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS] = {0};
    assert_int_equal(grammar_state_mask(state, mask), 0);
    int count = 0;
    for (int32_t t = 0; t < tokenizer.num_tokens; t++)
        count += fixture_allows(mask, t);
    assert_int_equal(count, 4);
    assert_true(fixture_allows(mask, 'a') && fixture_allows(mask, 258) &&
                fixture_allows(mask, 259) && fixture_allows(mask, 261));
    assert_int_equal(grammar_state_accept(state, 260), -1);
    assert_int_equal(grammar_state_accept(state, -1), -1);
    assert_int_equal(grammar_state_accept(state, tokenizer.num_tokens), -1);
    assert_int_equal(grammar_state_accept(state, tokenizer.control), -1);
    struct grammar_state *clone = grammar_state_clone(state);
    assert_int_equal(grammar_state_accept(state, 261), 0);
    assert_int_equal(grammar_state_accept(state, 'd'), 0);
    assert_true(grammar_state_is_final(state));
    assert_int_equal(grammar_state_accept(clone, 259), 0);
    assert_false(grammar_state_is_final(clone));
    assert_int_equal(grammar_state_accept(clone, 'd'), -1);
    assert_int_equal(grammar_state_accept(clone, 'c'), 0);
    assert_true(grammar_state_is_final(clone));
    grammar_state_destroy(state);
    grammar_unref(grammar);
    assert_int_equal(grammar_state_mask(clone, mask), 0);
    grammar_state_destroy(clone);
}

static void test_named_token(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = build(
        b, SEQUENCE(b, literal(b, "a"), grammar_token(b, tokenizer.control), literal(b, "b")));
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS];
    assert_int_equal(grammar_state_accept(state, tokenizer.control), -1);
    assert_int_equal(grammar_state_accept(state, 'a'), 0);
    assert_int_equal(grammar_state_mask(state, mask), 0);
    assert_true(fixture_allows(mask, tokenizer.control));
    assert_false(fixture_allows(mask, tokenizer.end));
    assert_int_equal(grammar_state_accept(state, tokenizer.control), 0);
    assert_int_equal(grammar_state_accept(state, 'b'), 0);
    assert_true(grammar_state_is_final(state));
    grammar_state_destroy(state);
    grammar_unref(grammar);
}

static void test_enumeration(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node items[2000];
    char text[32];
    for (int i = 0; i < 2000; i++) {
        snprintf(text, sizeof(text), "value %d", i * 7);
        items[i] = literal(b, text);
    }
    items[17] = literal(b, "");
    struct grammar *grammar = build(b, grammar_alternatives(b, items, 2000));
    assert_int_equal(try(grammar, ""), COMPLETE);
    assert_int_equal(try(grammar, "value 7"), COMPLETE);
    assert_int_equal(try(grammar, "value 13993"), COMPLETE);
    assert_int_equal(try(grammar, "value 1399"), PREFIX);
    assert_int_equal(try(grammar, "value 13994"), IMPOSSIBLE);
    assert_int_equal(try(grammar, "values"), IMPOSSIBLE);
    grammar_unref(grammar);
}

static void test_repetitions(void **unused) {
    static const struct {
        int min, max, matched, refused;
    } cases[] = {{0, 0, 0, 1},   {0, 1, 1, 2}, {1, 1, 1, 2}, {0, -1, 500, -1},  {1, -1, 500, -1},
                 {2, -1, 9, -1}, {2, 4, 4, 5}, {3, 3, 3, 4}, {0, 500, 500, 501}};
    char text[600];
    memset(text, 'x', sizeof(text));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct grammar_builder *b = grammar_builder_create();
        grammar_node x = literal(b, "x");
        struct grammar *grammar = build(b, grammar_repeat(b, x, cases[i].min, cases[i].max));
        assert_int_equal(try_bytes(grammar, text, (size_t)cases[i].matched), COMPLETE);
        if (cases[i].min > 0)
            assert_int_equal(try_bytes(grammar, text, (size_t)cases[i].min - 1), PREFIX);
        assert_int_equal(try_bytes(grammar, text, (size_t)cases[i].min), COMPLETE);
        if (cases[i].refused > 0)
            assert_int_equal(try_bytes(grammar, text, (size_t)cases[i].refused), IMPOSSIBLE);
        grammar_unref(grammar);
    }
}

/* Nested counts take no more room than their digits. */
static void test_nested_counts(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node node = literal(b, "a");
    for (int i = 0; i < 3; i++)
        node = grammar_repeat(b, node, 999, 999);
    struct grammar *grammar = build(b, node);
    char text[2000];
    memset(text, 'a', sizeof(text));
    assert_int_equal(try_bytes(grammar, text, sizeof(text)), PREFIX);
    grammar_unref(grammar);
}

/* All characters, against the definition of UTF-8. */
static size_t encode(uint32_t c, char out[4]) {
    if (c < 0x80)
        return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | c);
    return n;
}

static bool in_ranges(const struct character_range *ranges, int count, uint32_t c) {
    for (int i = 0; i < count; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

static void check_class(const struct character_range *ranges, int count, bool negated) {
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = build(b, grammar_characters(b, ranges, count, negated));
    struct grammar_state *start = grammar_state_create(grammar, vocabulary);
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        char bytes[4];
        size_t length = encode(c, bytes), i = 0;
        struct grammar_state *state = grammar_state_clone(start);
        while (i < length && grammar_state_accept(state, (uint8_t)bytes[i]) == 0)
            i++;
        bool expected = in_ranges(ranges, count, c) != negated && (c < 0xd800 || c > 0xdfff);
        if ((i == length && grammar_state_is_final(state)) != expected)
            fail_msg("U+%04X must be %s", c, expected ? "matched" : "refused");
        grammar_state_destroy(state);
    }
    grammar_state_destroy(start);
    grammar_unref(grammar);
}

static void test_characters(void **unused) {
    static const struct character_range quoted[] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    static const struct character_range odd[] = {{0x3042, 0x9999},   {'a', 'z'},  {0x7e, 0x801},
                                                 {0x10000, 0x10000}, {'x', 0x7f}, {0xfffe, 0xffff}};
    check_class(quoted, 3, true);
    check_class(odd, 6, false);
    check_class(odd, 6, true);
    check_class(odd, 0, true);
    struct grammar_builder *b = grammar_builder_create();
    refuse(b, grammar_characters(b, odd, 0, false), "empty");
    b = grammar_builder_create();
    struct grammar *grammar = build(b, grammar_characters(b, quoted, 3, true));
    assert_int_equal(try(grammar, "\xc0\x80"), IMPOSSIBLE); /* overlong */
    assert_int_equal(try(grammar, "\xe0\x80"), IMPOSSIBLE);
    assert_int_equal(try(grammar, "\xed\xa0"), IMPOSSIBLE); /* surrogate */
    assert_int_equal(try(grammar, "\xf4\x90"), IMPOSSIBLE);
    assert_int_equal(try(grammar, "\xf4\x8f"), PREFIX);
    assert_int_equal(try(grammar, "\xff"), IMPOSSIBLE);
    grammar_unref(grammar);
}

/* Parentheses within parentheses, ended by "x": deeper than the bound nothing is begun, and what
 * was begun can be ended. */
static void test_depth(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node rule = grammar_rule(b);
    grammar_define(
        b, rule,
        ALTERNATIVES(b, literal(b, "x"), SEQUENCE(b, literal(b, "("), rule, literal(b, ")"))));
    struct grammar *grammar = build(b, rule);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    int depth = 0;
    while (grammar_state_accept(state, '(') == 0)
        depth++;
    assert_int_equal(depth, GRAMMAR_MAX_DEPTH);
    assert_int_equal(grammar_state_accept(state, 'x'), 0);
    for (int i = 0; i < depth; i++) {
        assert_false(grammar_state_is_final(state));
        assert_int_equal(grammar_state_accept(state, ')'), 0);
    }
    assert_true(grammar_state_is_final(state));
    grammar_state_destroy(state);
    grammar_unref(grammar);
}

/* The same where the end of a text takes several rules: they are reckoned with before they are
 * begun. */
static void test_depth_of_the_end(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node rule = grammar_rule(b), tail = literal(b, "!");
    for (int i = 0; i < 10; i++) {
        grammar_node outer = grammar_rule(b);
        grammar_define(b, outer, SEQUENCE(b, literal(b, "<"), tail, literal(b, ">")));
        tail = outer;
    }
    grammar_define(b, rule,
                   ALTERNATIVES(b, SEQUENCE(b, literal(b, "("), rule, literal(b, ")")), tail));
    struct grammar *grammar = build(b, rule);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    int depth = 0;
    while (grammar_state_accept(state, '(') == 0)
        depth++;
    assert_in_range(depth, GRAMMAR_MAX_DEPTH - 11, GRAMMAR_MAX_DEPTH - 9);
    for (int i = 0; i < 10; i++)
        assert_int_equal(grammar_state_accept(state, '<'), 0);
    assert_int_equal(grammar_state_accept(state, '!'), 0);
    grammar_state_destroy(state);
    grammar_unref(grammar);
}

/* A list that recurses at its end needs no stack. */
static void test_right_recursion(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node list = grammar_rule(b);
    grammar_define(b, list, ALTERNATIVES(b, literal(b, "."), SEQUENCE(b, literal(b, "x"), list)));
    struct grammar *grammar = build(b, list);
    char text[1001];
    memset(text, 'x', sizeof(text));
    text[1000] = '.';
    assert_int_equal(try_bytes(grammar, text, 1000), PREFIX);
    assert_int_equal(try_bytes(grammar, text, 1001), COMPLETE);
    grammar_unref(grammar);
}

static void expect(struct grammar *grammar, const char *text, enum verdict verdict) {
    if (try_bytes(grammar, text, strlen(text)) != verdict)
        fail_msg("%s is not %d", text, verdict);
}

/* a = b | "x" a "y" | a "+" a; b = a | "z"; by itself and by another rule, on both sides. */
static void test_left_recursion(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node a = grammar_rule(b), other = grammar_rule(b);
    grammar_define(b, a,
                   ALTERNATIVES(b, other, SEQUENCE(b, literal(b, "x"), a, literal(b, "y")),
                                SEQUENCE(b, a, literal(b, "+"), a)));
    grammar_define(b, other, ALTERNATIVES(b, a, literal(b, "z")));
    struct grammar *grammar = build(b, a);
    expect(grammar, "z", COMPLETE);
    expect(grammar, "z+xz+zy+z", COMPLETE);
    expect(grammar, "z+", PREFIX);
    expect(grammar, "zz", IMPOSSIBLE);
    expect(grammar, "+", IMPOSSIBLE);
    grammar_unref(grammar);
}

/* sum = sum "+" sum | "x": a thousand terms are one parse state, not one for each way to nest
 * them, and need no stack. */
static void test_ambiguous_recursion(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node sum = grammar_rule(b);
    grammar_define(b, sum,
                   ALTERNATIVES(b, SEQUENCE(b, sum, literal(b, "+"), sum), literal(b, "x")));
    struct grammar *grammar = build(b, sum);
    char text[2002] = "";
    for (int i = 0; i < 2001; i++)
        text[i] = i % 2 == 0 ? 'x' : '+';
    assert_int_equal(try_bytes(grammar, text, 2001), COMPLETE);
    assert_int_equal(grammar->machine->store.num_sets, 4); /* nothing, the start, "x", "+" */
    grammar_unref(grammar);
}

static void test_repeated_empty(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node some = grammar_repeat(b, literal(b, "x"), 0, 3);
    grammar_node items[] = {grammar_repeat(b, some, 2, 5), grammar_repeat(b, literal(b, ""), 0, -1),
                            literal(b, ".")};
    struct grammar *grammar = build(b, grammar_sequence(b, items, 3));
    expect(grammar, ".", COMPLETE);
    expect(grammar, "xxxxxxxxxxxxxxx.", COMPLETE);
    expect(grammar, "xxxxxxxxxxxxxxxx", IMPOSSIBLE);
    grammar_unref(grammar);
}

static void test_refused(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node a = grammar_rule(b);
    grammar_define(b, a, a);
    refuse(b, a, "no text matches");

    b = grammar_builder_create();
    a = grammar_rule(b);
    grammar_define(b, a, SEQUENCE(b, grammar_repeat(b, literal(b, "x"), 0, 1), a, literal(b, "y")));
    refuse(b, a, "no text matches");

    b = grammar_builder_create();
    a = grammar_rule(b);
    refuse(b, SEQUENCE(b, literal(b, "x"), a), "not defined");

    b = grammar_builder_create();
    a = grammar_rule(b);
    grammar_define(b, a, SEQUENCE(b, literal(b, "x"), a));
    refuse(b, a, "no text matches");

    b = grammar_builder_create();
    refuse(b, grammar_repeat(b, literal(b, "x"), 3, 2), "0 <= min <= max");
    b = grammar_builder_create();
    refuse(b, grammar_repeat(b, literal(b, "x"), 0, GRAMMAR_MAX_REPEAT + 1), "0 <= min <= max");
    b = grammar_builder_create();
    refuse(b, grammar_alternatives(b, NULL, 0), "no alternative");
    b = grammar_builder_create();
    refuse(b, SEQUENCE(b, literal(b, "x"), 7), "does not exist");
    b = grammar_builder_create();
    refuse(b, 0, "does not exist");
    b = grammar_builder_create();
    a = grammar_rule(b);
    grammar_define(b, a, a);
    grammar_define(b, a, a);
    refuse(b, a, "defined twice");
    b = grammar_builder_create();
    refuse(b, grammar_characters(b, &(struct character_range){9, 8}, 1, false), "range");
    b = grammar_builder_create();
    refuse(b, grammar_characters(b, &(struct character_range){9, 0x110000}, 1, false), "range");
}

static void test_bounds(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node node = literal(b, "x"), items[GRAMMAR_MAX_PARSE_STATES + 1];
    for (int i = 0; i < GRAMMAR_MAX_NODES; i++)
        node = literal(b, "x");
    assert_int_equal(node, GRAMMAR_FAILED);
    refuse(b, 0, "too large");

    b = grammar_builder_create();
    node = literal(b, "x");
    for (int i = 0; i < 5000; i++)
        node = SEQUENCE(b, node, literal(b, "y"));
    refuse(b, node, "nested too deep");

    b = grammar_builder_create();
    node = literal(b, "x");
    for (int i = 0; i < 200; i++) /* 2^200 when it is written out */
        node = SEQUENCE(b, node, node);
    struct grammar *grammar = build(b, node);
    assert_int_equal(try(grammar, "xxxxxxx"), PREFIX);
    grammar_unref(grammar);

    b = grammar_builder_create();
    node = literal(b, "x");
    for (int i = 0; i < 400; i++)
        node = SEQUENCE(b, node, node);
    refuse(b, node, "nested deeper than 256");

    b = grammar_builder_create();
    for (int i = 0; i <= GRAMMAR_MAX_PARSE_STATES; i++)
        items[i] = SEQUENCE(b, literal(b, "x"));
    refuse(b, grammar_alternatives(b, items, GRAMMAR_MAX_PARSE_STATES + 1), "alternatives");

    b = grammar_builder_create();
    char *text = calloc(1, GRAMMAR_MAX_CONTENT + 1);
    assert_int_equal(grammar_literal(b, text, GRAMMAR_MAX_CONTENT + 1), GRAMMAR_FAILED);
    free(text);
    refuse(b, 0, "too large");
}

/* More parse states than are followed: what is allowed still matches. */
static void test_many_parse_states(void **unused) {
    struct grammar_builder *b = grammar_builder_create();
    grammar_node a = literal(b, "a");
    grammar_node some = grammar_repeat(b, grammar_repeat(b, a, 1, 900), 1, 900);
    struct grammar *grammar = build(b, SEQUENCE(b, some, literal(b, "!")));
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS];
    for (int i = 0; i < 300; i++) {
        assert_int_equal(grammar_state_mask(state, mask), 0);
        assert_true(fixture_allows(mask, 'a'));
        assert_int_equal(grammar_state_accept(state, 'a'), 0);
    }
    assert_int_equal(grammar_state_accept(state, '!'), 0);
    assert_true(grammar_state_is_final(state));
    grammar_state_destroy(state);
    grammar_unref(grammar);
}

/* A vocabulary that cannot say what the grammar wants: the end is the way out. */
static void test_escape(void **unused) {
    struct tokenizer *poor = calloc(1, sizeof(*poor));
    poor->end = fixture_add(poor, "<end>", 5);
    poor->control = -1;
    fixture_add(poor, "a", 1);
    struct grammar_vocabulary *words;
    struct error err;
    assert_int_equal(grammar_vocabulary_create(poor, &words, &err), 0);
    for (int has_end = 1; has_end >= 0; has_end--) {
        poor->end = has_end - 1;
        struct grammar_builder *b = grammar_builder_create();
        struct grammar *grammar = build(b, literal(b, "ab"));
        struct grammar_state *state = grammar_state_create(grammar, words);
        uint32_t mask[1];
        assert_int_equal(grammar_state_mask(state, mask), 0);
        assert_int_equal(mask[0], 2);
        assert_int_equal(grammar_state_accept(state, 1), 0);
        assert_int_equal(grammar_state_mask(state, mask), 0);
        assert_int_equal(mask[0], 1);
        assert_int_equal(grammar_state_accept(state, 0), has_end ? 0 : -1);
        assert_false(grammar_state_is_final(state));
        grammar_state_destroy(state);
        grammar_unref(grammar);
    }
    grammar_vocabulary_destroy(words);
    free(poor);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_over_bytes),
        cmocka_unit_test(test_named_token),
        cmocka_unit_test(test_enumeration),
        cmocka_unit_test(test_repetitions),
        cmocka_unit_test(test_nested_counts),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_depth_of_the_end),
        cmocka_unit_test(test_right_recursion),
        cmocka_unit_test(test_left_recursion),
        cmocka_unit_test(test_ambiguous_recursion),
        cmocka_unit_test(test_repeated_empty),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_many_parse_states),
        cmocka_unit_test(test_escape),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
