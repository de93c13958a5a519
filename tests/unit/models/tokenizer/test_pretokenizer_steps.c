/* Every kind of step by itself, regexes that mean something else in PCRE2, and hostile ones. What
 * is expected is what Hugging Face's tokenizers 0.23 give. */
#include "models/tokenizer/pretokenizer.h"
#include "models/tokenizer/pretokenizer_regex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define REGEX(text)                                                                                \
    .kind = PRETOKENIZER_SPLIT, .pattern = {text, sizeof(text) - 1}, .pattern_is_regex = true
#define STRING(text) .kind = PRETOKENIZER_SPLIT, .pattern = {text, sizeof(text) - 1}
#define METASPACE .kind = PRETOKENIZER_METASPACE, .replacement = {"\u2581", 3}

struct pieces {
    char joined[512];
    size_t length;
    size_t bytes; /* of all pieces, also of those that joined has no room for */
};

static int append(void *context, const char *piece, size_t length) {
    struct pieces *pieces = context;
    pieces->bytes += length;
    if (pieces->length + length + 1 < sizeof(pieces->joined)) {
        memcpy(pieces->joined + pieces->length, piece, length);
        pieces->length += length;
        pieces->joined[pieces->length++] = '|';
    }
    return 0;
}

static struct pretokenizer *create(const struct pretokenizer_step *steps, int num_steps) {
    struct tokenizer_spec spec = {.num_pretokenizers = num_steps};
    struct pretokenizer *pretokenizer = NULL;
    struct error err = {0};
    memcpy(spec.pretokenizers, steps, (size_t)num_steps * sizeof(*steps));
    if (pretokenizer_create(&spec, &pretokenizer, &err) != 0)
        fail_msg("%s", err.message);
    return pretokenizer;
}

static void run(const struct pretokenizer_step *steps, int num_steps, const char *text,
                size_t length, enum pretokenizer_place place, struct pieces *out) {
    struct pretokenizer *pretokenizer = create(steps, num_steps);
    struct pretokenizer_scratch *scratch = pretokenizer_scratch_create(pretokenizer, length);
    assert_int_equal(pretokenizer_run(pretokenizer, scratch, text, length, place, append, out), 0);
    pretokenizer_scratch_destroy(scratch);
    pretokenizer_destroy(pretokenizer);
}

static void assert_at(const struct pretokenizer_step *steps, int num_steps, const char *text,
                      enum pretokenizer_place place, const char *expected) {
    struct pieces pieces = {0};
    run(steps, num_steps, text, strlen(text), place, &pieces);
    assert_string_equal(pieces.joined, expected);
}

/* One step, whose fields follow. */
#define ASSERT_PIECES(text, expected, ...)                                                         \
    assert_at(&(const struct pretokenizer_step){__VA_ARGS__}, 1, text, PRETOKENIZER_BEGINS,        \
              expected)

static void test_behaviours(void **state) {
    static const char text[] = "the-final--countdown";
    ASSERT_PIECES(text, "the|-|final|-|-|countdown|", STRING("-"));
    ASSERT_PIECES(text, "the|final|countdown|", STRING("-"), .behaviour = SPLIT_REMOVED);
    ASSERT_PIECES(text, "the|-|final|--|countdown|", STRING("-"), .behaviour = SPLIT_CONTIGUOUS);
    ASSERT_PIECES(text, "the-|final-|-|countdown|", STRING("-"),
                  .behaviour = SPLIT_MERGED_WITH_PREVIOUS);
    ASSERT_PIECES(text, "the|-final|-|-countdown|", STRING("-"),
                  .behaviour = SPLIT_MERGED_WITH_NEXT);
    ASSERT_PIECES("--a--", "-|-a|-|-|", STRING("-"), .behaviour = SPLIT_MERGED_WITH_NEXT);
    ASSERT_PIECES("--a--", "-|-|a-|-|", REGEX("-"), .behaviour = SPLIT_MERGED_WITH_PREVIOUS);
    ASSERT_PIECES("a, b", "a|b|", REGEX("\\w+"), .behaviour = SPLIT_REMOVED, .invert = true);
    ASSERT_PIECES("a, b", "a|, |b|", REGEX("\\w+"), .invert = true);
}

static void test_empty_matches(void **state) {
    ASSERT_PIECES("fooBarBaz", "foo|Bar|Baz|", REGEX("(?=[A-Z])"));
    ASSERT_PIECES("aab", "aa|b|", REGEX("a*"));
    ASSERT_PIECES("é字", "é|字|", REGEX(""));
}

static void test_characters(void **state) {
    ASSERT_PIECES("ab123c4", "ab|123|c|4|", .kind = PRETOKENIZER_DIGITS);
    ASSERT_PIECES("ab12½", "ab|1|2|½|", .kind = PRETOKENIZER_DIGITS, .individual = true);
    ASSERT_PIECES("a!?b。$", "a|!|?|b|。|$|", .kind = PRETOKENIZER_PUNCTUATION);
    ASSERT_PIECES("a!?b", "a|!?|b|", .kind = PRETOKENIZER_PUNCTUATION,
                  .behaviour = SPLIT_CONTIGUOUS);
}

static void test_byte_level(void **state) {
    ASSERT_PIECES("it's two", "it|'s| two|", .kind = PRETOKENIZER_BYTE_LEVEL, .use_regex = true);
    ASSERT_PIECES("it's two", " it's two|", .kind = PRETOKENIZER_BYTE_LEVEL,
                  .add_prefix_space = true);
    ASSERT_PIECES(" two", " two|", .kind = PRETOKENIZER_BYTE_LEVEL, .add_prefix_space = true);
}

static void test_metaspace(void **state) {
    const struct pretokenizer_step always = {METASPACE, .prepend = PREPEND_ALWAYS, .split = true};
    const struct pretokenizer_step first = {METASPACE, .prepend = PREPEND_FIRST};
    assert_at(&always, 1, "a  b", PRETOKENIZER_BEGINS, "▁a|▁|▁b|");
    assert_at(&always, 1, "a", PRETOKENIZER_INSIDE, "▁a|");
    assert_at(&always, 1, "a", PRETOKENIZER_CONTINUES, "a|");
    assert_at(&first, 1, "a  b", PRETOKENIZER_BEGINS, "▁a▁▁b|");
    assert_at(&first, 1, " a", PRETOKENIZER_BEGINS, "▁a|");
    assert_at(&first, 1, "a", PRETOKENIZER_INSIDE, "a|");
    ASSERT_PIECES("a b", "a▁b|", METASPACE, .prepend = PREPEND_NEVER);
}

/* A step sees the pieces of the one before; only what begins the text is put a space before. */
static void test_steps_follow_each_other(void **state) {
    const struct pretokenizer_step steps[] = {
        {STRING("b")},
        {METASPACE, .prepend = PREPEND_FIRST},
        {REGEX("\u2581"), .behaviour = SPLIT_MERGED_WITH_NEXT},
    };
    assert_at(steps, 3, "a xb c", PRETOKENIZER_BEGINS, "▁a|▁x|b|▁c|");
}

static void test_meaning_of_patterns(void **state) {
    /* U+0085 is white space, U+180E is not; U+0660 a digit; U+0301 and U+203F part of a word. */
    ASSERT_PIECES("a\xc2\x85\u180e", "a|\xc2\x85|\u180e|", REGEX("\\s"));
    ASSERT_PIECES("a\xc2\x85\u180e", "a|\xc2\x85|\u180e|", REGEX("[^\\S]"));
    ASSERT_PIECES("x\u06601", "x|\u06601|", REGEX("\\d+"));
    ASSERT_PIECES("e\u0301\u203f-", "e\u0301\u203f|-|", REGEX("[\\w]+"));
    ASSERT_PIECES("xAf-", "x|Af|-|", REGEX("\\h+"));
    /* A letter of Unicode 16.0, in and out of a class; a script. */
    ASSERT_PIECES("-\u1c89-", "-|\u1c89|-|", REGEX("\\p{L}"));
    ASSERT_PIECES("-\u1c89-", "-|\u1c89|-|", REGEX("[\\p{Lu}]"));
    ASSERT_PIECES("a\u1c89", "a|\u1c89|", REGEX("\\P{Ll}"));
    ASSERT_PIECES("a字b", "a|字|b|", REGEX("\\p{Han}"));
    /* (?m) lets a point match newlines, ^ and $ match at lines without it. */
    ASSERT_PIECES("a\nb", "a\nb|", REGEX("(?m)a.b"));
    ASSERT_PIECES("a\nb", "a\n|b|", REGEX("^b$"));
    ASSERT_PIECES("a\u5b57", "a|\u5b57|", REGEX("\\u5b57"));
    ASSERT_PIECES("aaaa", "aaa|a|", REGEX("a{,3}"));
}

static void assert_refused(const char *pattern, const char *reason) {
    struct tokenizer_spec spec = {.num_pretokenizers = 1};
    struct pretokenizer *pretokenizer = NULL;
    struct error err = {0};
    spec.pretokenizers[0] =
        (struct pretokenizer_step){.pattern = {pattern, strlen(pattern)}, .pattern_is_regex = true};
    assert_int_equal(pretokenizer_create(&spec, &pretokenizer, &err), -1);
    assert_null(pretokenizer);
    assert_int_equal(err.code, ERROR_MODEL);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

static void test_what_is_refused_is_named(void **state) {
    char *long_pattern = calloc(1, 4098);
    memset(long_pattern, 'a', 4097);
    assert_refused("a(b", "regex \"a(b\": ");
    assert_refused("[a&&[b]]", "regex \"[a&&[b]]\": && in a class at 2 is not supported");
    assert_refused("[a[b]]", "a class within a class at 2");
    assert_refused("a{1,3}+", "a + after a count");
    assert_refused("\\p{Nonsense}", "a character property of that name at 0");
    assert_refused("\\pL", "a character property of that name");
    assert_refused("[\\P{L}]", "a negated class within a class");
    assert_refused("\\K", "that escape");
    assert_refused("a\\", "that escape");
    assert_refused("(*ACCEPT)", "a group of that kind");
    assert_refused("(?R)", "a group of that kind");
    assert_refused("\xff", "regex \"?\": ");
    assert_refused(long_pattern, "a regex has 4097 bytes, allowed are 4096");
    free(long_pattern);
}

/* Exponential patterns come to an end, and no text is lost. */
static void test_hostile_patterns(void **state) {
    static const struct pretokenizer_step hostile[] = {
        {REGEX("(a|a)*b")},
        {REGEX("(a+)+$")},
        {REGEX("(?:a|aa)+bc")},
        {REGEX("((a*)*)*b")},
        {REGEX("(?:(a)|(?=(a))){2,}b")},
        {REGEX("a+a+a+b")},
    };
    const size_t length = 1000;
    char *text = malloc(length);
    memset(text, 'a', length);
    /* What the patterns end with is there, so that PCRE2 does not give up at once. */
    memcpy(text + length - 4, "-bcb", 4);
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        struct pieces pieces = {0};
        run(&hostile[i], 1, text, length, PRETOKENIZER_BEGINS, &pieces);
        assert_int_equal(pieces.bytes, length);
    }
    free(text);
}

static void test_time_runs_out(void **state) {
    const struct split_deadline over = {0};
    const struct split_deadline ahead = split_deadline_after(1000000000000);
    struct split_regex *regex = NULL;
    size_t range[2] = {7, 7};
    char text[1000];
    memset(text, 'a', sizeof(text));
    text[999] = 'b';
    assert_int_equal(split_regex_create((struct text){"b", 1}, false, &regex, NULL), 0);
    struct split_matcher *matcher = split_matcher_create(regex);
    assert_int_equal(split_matcher_find(matcher, text, 1000, 0, &over, range), -1);
    assert_int_equal(range[0], 7);
    /* Found beyond what one search covers. */
    assert_int_equal(split_matcher_find(matcher, text, 1000, 0, &ahead, range), 1);
    assert_int_equal(range[0], 999);
    assert_int_equal(range[1], 1000);
    assert_int_equal(split_matcher_find(matcher, text, 999, 0, &ahead, range), 0);
    split_matcher_destroy(matcher);
    split_regex_destroy(regex);
}

/* Each place takes 100,000 steps and more, which PCRE2's limit allows: time is up long before the
 * search has been at all 200. */
static void test_time_runs_out_within_a_search(void **state) {
    struct split_regex *regex = NULL;
    size_t range[2] = {7, 7};
    char text[200];
    memset(text, 'a', sizeof(text));
    assert_int_equal(split_regex_create((struct text){"(?:a|a){17}[bc]", 15}, false, &regex, NULL),
                     0);
    struct split_matcher *matcher = split_matcher_create(regex);
    const struct split_deadline soon = split_deadline_after(1000000);
    assert_int_equal(split_matcher_find(matcher, text, sizeof(text), 0, &soon, range), -1);
    split_matcher_destroy(matcher);
    split_regex_destroy(regex);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behaviours),
        cmocka_unit_test(test_empty_matches),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_steps_follow_each_other),
        cmocka_unit_test(test_meaning_of_patterns),
        cmocka_unit_test(test_what_is_refused_is_named),
        cmocka_unit_test(test_hostile_patterns),
        cmocka_unit_test(test_time_runs_out),
        cmocka_unit_test(test_time_runs_out_within_a_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
