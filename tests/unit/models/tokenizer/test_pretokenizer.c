#include "models/tokenizer/pretokenizer.h"
#include "models/tokenizer/pretokenizer_presets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

struct pieces {
    char joined[512];
    size_t length;
};

static int append(void *context, const char *piece, size_t length) {
    struct pieces *pieces = context;
    assert_true(length > 0 && pieces->length + length + 1 < sizeof(pieces->joined));
    memcpy(pieces->joined + pieces->length, piece, length);
    pieces->length += length;
    pieces->joined[pieces->length++] = '|';
    return 0;
}

static const struct pretokenizer_preset *find_preset(const char *name) {
    const struct pretokenizer_preset *preset = NULL;
    struct error err = {0};
    if (pretokenizer_preset_find((struct text){name, strlen(name)}, &preset, &err) != 0)
        fail_msg("%s", err.message);
    return preset;
}

static struct pretokenizer *create(const char *name) {
    const struct pretokenizer_preset *preset = find_preset(name);
    struct tokenizer_spec spec = {.num_pretokenizers = preset->num_steps};
    struct pretokenizer *pretokenizer = NULL;
    struct error err = {0};
    memcpy(spec.pretokenizers, preset->steps, sizeof(preset->steps));
    if (pretokenizer_create(&spec, &pretokenizer, &err) != 0)
        fail_msg("%s", err.message);
    return pretokenizer;
}

/* `expected`: the pieces, each followed by a bar. */
static void assert_pieces(const char *name, const char *text, const char *expected) {
    struct pretokenizer *pretokenizer = create(name);
    struct pretokenizer_scratch *scratch = pretokenizer_scratch_create(pretokenizer, 100);
    struct pieces pieces = {0};
    assert_int_equal(pretokenizer_run(pretokenizer, scratch, text, strlen(text),
                                      PRETOKENIZER_BEGINS, append, &pieces),
                     0);
    assert_string_equal(pieces.joined, expected);
    pretokenizer_scratch_destroy(scratch);
    pretokenizer_destroy(pretokenizer);
}

static void test_contractions(void **state) {
    assert_pieces("gpt-2", "I'll we've 'S", "I|'ll| we|'ve| '|S|");
    assert_pieces("llama-bpe", "I'LL we've 'S", "I|'LL| we|'ve| '|S|");
    assert_pieces("qwen2", "it's'\u017f", "it|'s|'\u017f|");
}

static void test_digits(void **state) {
    assert_pieces("gpt-2", "in 12345\u00bd", "in| 12345\u00bd|");
    assert_pieces("smollm", "in 12345\u00bd", "in| |1|2|3|4|5|\u00bd|");
    assert_pieces("llama-bpe", "in 12345\u00bd", "in| |123|45\u00bd|");
    assert_pieces("qwen2", "in 12345\u00bd", "in| |1|2|3|4|5|\u00bd|");
}

static void test_white_space(void **state) {
    assert_pieces("gpt-2", "a \n\n  b  ", "a| \n\n | b|  |");
    assert_pieces("smollm", "a  1", "a|  |1|");
    assert_pieces("gpt-2", "a  1", "a| | 1|");
    assert_pieces("llama-bpe", "a \n\n  b  ", "a| \n\n| | b|  |");
    assert_pieces("llama-bpe", "f(x)\r\n\r\ng", "f|(x|)\r\n\r\n|g|");
}

/* U+0085 and U+3000 are white space; U+180E and U+200B are not. */
static void test_white_space_of_unicode(void **state) {
    assert_pieces("gpt-2", "a\xc2\x85\u3000", "a|\xc2\x85\u3000|");
    assert_pieces("gpt-2", "-\u180e b", "-\u180e| b|");
    assert_pieces("gpt-2", "-\u200b b", "-\u200b| b|");
}

/* A letter of Unicode 15.0, one of 16.0, and numbers of 15.0, 16.0 and (digits only) 17.0. */
static void test_recent_characters(void **state) {
    assert_pieces("gpt-2", "a\U00031350-\u1c89", "a\U00031350|-|\u1c89|");
    assert_pieces("gpt-2", "a\U00011f50b", "a|\U00011f50|b|");
    assert_pieces("qwen2", "\U00011f50\U00010d40", "\U00011f50|\U00010d40|");
    assert_pieces("smollm", "\U00011f50\U00011de0\U00011de1", "\U00011f50|\U00011de0|\U00011de1|");
}

static void test_marks_are_not_letters(void **state) {
    assert_pieces("gpt-2", "e\u0301e", "e|\u0301|e|");
    assert_pieces("llama-bpe", "e\u0301e", "e|\u0301e|");
}

static void test_nothing(void **state) {
    assert_pieces("smollm", "", "");
}

static int stop_at_second(void *context, const char *piece, size_t length) {
    int *calls = context;
    return ++*calls == 2 ? 7 : 0;
}

static void test_the_sink_can_stop(void **state) {
    struct pretokenizer *pretokenizer = create("smollm");
    struct pretokenizer_scratch *scratch = pretokenizer_scratch_create(pretokenizer, 100);
    int calls = 0;
    assert_int_equal(pretokenizer_run(pretokenizer, scratch, "a 1 b", 5, PRETOKENIZER_BEGINS,
                                      stop_at_second, &calls),
                     7);
    assert_int_equal(calls, 2);
    pretokenizer_scratch_destroy(scratch);
    pretokenizer_destroy(pretokenizer);
}

static void assert_means(const char *name, const char *first, bool ignores_merges, bool adds_bos) {
    const struct pretokenizer_preset *preset = find_preset(name);
    assert_string_equal(preset->names[0], first);
    assert_int_equal(preset->ignore_merges, ignores_merges);
    assert_int_equal(preset->adds_bos, adds_bos);
}

static void test_names(void **state) {
    assert_means("default", "gpt-2", false, false);
    assert_means("gpt2", "gpt-2", false, false);
    assert_means("starcoder", "smollm", false, false);
    assert_means("llama3", "llama-bpe", true, true);
    assert_means("deepseek-r1-qwen", "qwen2", false, false);
}

static void test_known_patterns(void **state) {
    static const char olmo2[] =
        "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++"
        "[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
    assert_true(pretokenizer_presets_have((struct text){olmo2, sizeof(olmo2) - 1}));
    assert_false(pretokenizer_presets_have((struct text){olmo2, sizeof(olmo2) - 2}));
    assert_false(pretokenizer_presets_have((struct text){"", 0}));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contractions),
        cmocka_unit_test(test_digits),
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_white_space_of_unicode),
        cmocka_unit_test(test_recent_characters),
        cmocka_unit_test(test_marks_are_not_letters),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_the_sink_can_stop),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_known_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
