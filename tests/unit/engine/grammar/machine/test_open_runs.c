/* Masks of strings, where the walk passes subtrees, against what every token does
 * when it is accepted. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine/grammar/machine/character_kinds.h"
#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/machine/open_runs.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <stdio.h>
#include <string.h>

#define NUM_WALKS 20
#define WALK_STEPS 20

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;
static uint64_t random_state = 1;

static uint32_t draw(uint32_t below) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

/* All words of one to three of these characters, of one to four bytes; and of the first two more
 * that end with what is not plain, or within a character. */
static int set_up(void **state) {
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                             "b"};
    static const char *const ends[] = {"\"", "\\", "\n", "\xc3", "\xe2\x82", "\xf0\x9f", "\x80"};
    char word[16];
    fixture_init_bytes(&tokenizer);
    for (int i = 0; i < 5 * 6 * 6; i++) {
        int places[] = {i % 5, i / 5 % 6, i / 30};
        if (places[1] == 5 && places[2] != 5)
            continue;
        word[0] = '\0';
        for (int place = 0; place < 3; place++)
            strcat(word, places[place] < 5 ? characters[places[place]] : "");
        fixture_add(&tokenizer, word, strlen(word));
        if (places[2] != 5 || places[0] > 1)
            continue;
        strcat(word, ends[i % 7]);
        fixture_add(&tokenizer, word, strlen(word));
    }
    struct error err;
    return grammar_vocabulary_create(&tokenizer, &vocabulary, &err);
}

static int tear_down(void **state) {
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}

/* Returns a token that may come next, -1 for none but the end. */
static int32_t check_mask(struct grammar_state *state, const char *pattern) {
    uint32_t mask[FIXTURE_WORDS] = {0};
    int32_t allowed[FIXTURE_MAX_TOKENS], count = 0;
    assert_int_equal(grammar_state_mask(state, mask), 0);
    for (int32_t token = 0; token < tokenizer.num_tokens; token++) {
        if (token == tokenizer.end || token == tokenizer.control)
            continue;
        struct grammar_state *clone = grammar_state_clone(state);
        bool accepted = grammar_state_accept(clone, token) == 0;
        grammar_state_destroy(clone);
        if (accepted != fixture_allows(mask, token))
            fail_msg("%s: token %d is %s by the mask", pattern, token,
                     accepted ? "refused" : "allowed");
        if (accepted)
            allowed[count++] = token;
    }
    return count > 0 ? allowed[draw((uint32_t)count)] : -1;
}

static void walk(struct grammar *grammar, const char *pattern) {
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    for (int i = 0; i < WALK_STEPS; i++) {
        int32_t token = check_mask(state, pattern);
        if (token < 0)
            break;
        assert_int_equal(grammar_state_accept(state, token), 0);
    }
    grammar_state_destroy(state);
}

#define PLAIN "[^\"\\\\\\x00-\\x1f]"

/* The second pass has a store that is swept all the time. */
static void test_masks(void **unused) {
    static const char *const patterns[] = {
        "\"" PLAIN "*\"",
        "\"" PLAIN "{0,4}\"",
        "\"" PLAIN "{2,5}\"",
        "\"" PLAIN "{40,60}\"",
        "\"" PLAIN "{0,20}\"",
        "\"" PLAIN "{9,34}\"",
        "\"(?:a|" PLAIN "{12})(?:,|" PLAIN "{0,17})\"",
        "\"(?:" PLAIN "{3,14}b){0,3}\"",
        "(?:\"" PLAIN "{0,18}\"){0,20}",
        "\"(?:" PLAIN "{0,15}|[a-z]{0,13}|" PLAIN "{11})\"",
        "(?:(?:\\x61|\\xc3\\xa9){0,20}a?){0,18}",
        "\"(?:" PLAIN "{3})*\"",
        "\"[^\"\\\\\\x00-\\x1f\xe2\x82\xac]*\"", /* without one plain character */
        "\"(?:a[^b]|[^a\"])*\"",
        "\"(?:ab|[^a]" PLAIN "*|a[^b\"]" PLAIN "*)\"", /* all names but one, and that one */
        "(?:.|\\n)*",
        "\"" PLAIN "*b" PLAIN "*\"", /* a part is b */
        "(?:[a-z]|\xe2\x82\xac){0,3}\"?",
        "[^b]{1,4}(?:b[^b]{1,4})*",
        "(?:[a-z]{2}|\\d)*",
        "[a-z]*\"?",
    };
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
            struct grammar *grammar = fixture_regex(patterns[i]);
            if (pass == 1)
                grammar->cache_bytes = 1;
            for (int repeat = 0; repeat < NUM_WALKS; repeat++)
                walk(grammar, patterns[i]);
            grammar_unref(grammar);
        }
    }
}

/* Every jump leads to where as many single characters do, from all sets on the way; returns how
 * many it passes in all. */
static int32_t check_jumps(const char *pattern, const char *text) {
    struct grammar *grammar = fixture_regex(pattern);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    struct grammar_machine *machine = grammar->machine;
    int32_t set = state->set, sum = 0;
    for (size_t i = 0; text[i] != '\0'; i++) {
        int32_t to = grammar_machine_step(machine, set, (uint8_t)text[i]), end = -1;
        assert_true(to > PARSE_SET_EMPTY);
        int32_t count = repeat_shift(machine, set, to, 1000, &end), expected = to;
        for (int32_t j = 0; j < count; j++)
            expected = grammar_machine_step(machine, expected, (uint8_t)text[i]);
        if (count > 0 && end != expected)
            fail_msg("%s: %d more than %.*s lead elsewhere", pattern, count, (int)i + 1, text);
        sum += count;
        set = to;
    }
    grammar_state_destroy(state);
    grammar_unref(grammar);
    return sum;
}

static void test_jumps(void **unused) {
    /* From count i to 94, the last that is 5 below the maximum. */
    assert_int_equal(check_jumps("a{0,100}", "aaa"), 93 + 92 + 91);
    /* Below the minimum, and beyond it. */
    assert_int_equal(check_jumps("a{20,60}", "aaaaa"), 13 + 12 + 11 + 10 + 9);
    assert_true(check_jumps("a{3,60}", "aaaaa") >= 2 * 49);
    assert_true(check_jumps("(?:[^b]{0,50}b){0,50}", "aaba") > 0);
    /* Two counts at once, counts of several items a character, and none. */
    assert_int_equal(check_jumps("(?:a{0,50}|(?:aa?){0,50})", "aaaa"), 0);
    assert_int_equal(check_jumps("(?:a{1,20}){0,20}", "aaaa"), 0);
    assert_int_equal(check_jumps("a*", "aaaa"), 0);
    assert_int_equal(check_jumps("(?:ab){0,50}", "abab"), 0);
}

/* That subtrees are passed at all: where the sets are known, a mask costs less than a walk of all
 * nodes. */
static void test_cost(void **unused) {
    struct grammar *grammar = fixture_regex("\"" PLAIN "*\"");
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS];
    int32_t num_passed = 0;
    for (int32_t id = 0; id < vocabulary->all.num_nodes; id++)
        num_passed += vocabulary->all.nodes[id].tail_length != VOCABULARY_NO_TAIL;
    assert_true(num_passed > vocabulary->all.num_nodes / 2);
    assert_int_equal(grammar_state_accept(state, '"'), 0);
    int64_t budget = 1 << 20;
    assert_int_equal(grammar_state_try_mask(state, &budget, mask), 0);
    int32_t set = state->set, num_visited = 0;
    for (int32_t id = 0; id < vocabulary->all.num_nodes; num_visited++) {
        const struct vocabulary_node *node = &vocabulary->all.nodes[id];
        bool is_passed = node->tail_length != VOCABULARY_NO_TAIL &&
                         open_runs_may_follow(grammar->machine, set, vocabulary->all.tail_kinds[id],
                                              node->tail_length) == 1;
        id = is_passed ? node->end : id + 1;
    }
    printf("# %d of %d nodes visited, cost %d\n", num_visited, vocabulary->all.num_nodes,
           (1 << 20) - (int)budget);
    assert_true(num_visited < vocabulary->all.num_nodes * 3 / 4); /* all bytes are tokens */
    grammar_state_destroy(state);
    grammar_unref(grammar);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_jumps),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
