#include "models/tokenizer/tokenizer.h"

#include "tests/unit/models/tokenizer/tokenizer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

enum {
    HE = 256,
    LL,
    HELL,
    HELLO,
    SPACE_HELLO,
    SPACES_2,
    SPACES_4,
    E_ACUTE,
    ALL,
    END,
    START,
    START_LONG,
    ADDED,
    ADDED_ACCENT,
    CONTROL_AB,
    PADDING,
    NUM_TOKENS
};

static const struct fixture_token tokens[] = {
    {"he", 1},
    {"ll", 1},
    {"hell", 1},
    {"hello", 1},
    {"Ġhello", 1},
    {"ĠĠ", 1},
    {"ĠĠĠĠ", 1},
    {"Ã©", 1},
    {"all", 1},
    {"<|im_end|>", 3},
    {"<|im_start|>", 3},
    {"<|im_start", 3},
    {"<added token>", 4},
    {"né", 4},
    {"ab", 3},
    {"[PAD]", 5},
};
static const char *const merges[] = {"h e", "l l",   "he ll", "hell o", "Ġ hello",
                                     "Ġ Ġ", "ĠĠ ĠĠ", "Ã ©",   "a ll",   "a b"};

static const struct fixture_spec spec = {
    .pre = "smollm",
    .eos = START,
    .num_tokens = NUM_TOKENS - 256,
    .tokens = tokens,
    .num_merges = sizeof(merges) / sizeof(merges[0]),
    .merges = merges,
};

static struct fixture shared;

static int open_shared(void **state) {
    struct error err = {0};
    if (fixture_open(&spec, &shared, &err) != 0)
        fail_msg("%s", err.message);
    /* All tests run without what the file says: nothing of it may be read after the opening. */
    memset(shared.image.data, 0xff, shared.image.bytes);
    return 0;
}

static int close_shared(void **state) {
    fixture_close(&shared);
    return 0;
}

static void assert_ids(const struct tokenizer *tokenizer, const char *text, size_t length,
                       unsigned flags, const int32_t *ids, size_t num_ids) {
    int32_t out[256];
    int64_t count = tokenizer_encode(tokenizer, text, length, flags, out, 256);
    for (size_t i = 0; i < num_ids && (int64_t)i < count; i++) {
        if (out[i] != ids[i])
            fail_msg("\"%s\": token %zu is %d, expected %d", text, i, out[i], ids[i]);
    }
    assert_int_equal(count, num_ids);
}

/* Encodes a string literal, NUL bytes and all, and compares with the ids that follow. */
#define ASSERT_ENCODES(text, flags, ...)                                                           \
    assert_ids(shared.tokenizer, text, sizeof(text) - 1, flags, (const int32_t[]){__VA_ARGS__},    \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void test_merges_by_rank(void **state) {
    ASSERT_ENCODES("hello", 0, HELLO);
    ASSERT_ENCODES(" hello hello", 0, SPACE_HELLO, SPACE_HELLO);
    ASSERT_ENCODES("hell", 0, HELL);
    /* "l l" has the lower rank and takes the first two of three. */
    ASSERT_ENCODES("lll", 0, LL, 'l');
    ASSERT_ENCODES("all", 0, ALL);
    ASSERT_ENCODES("hallo", 0, 'h', ALL, 'o');
    /* The same again, now that whole words are known. */
    ASSERT_ENCODES("hello", 0, HELLO);
}

static void test_empty_text(void **state) {
    assert_int_equal(tokenizer_encode(shared.tokenizer, "", 0, 0, NULL, 0), 0);
    assert_int_equal(tokenizer_encode(shared.tokenizer, NULL, 0, TOKENIZER_PARSE_SPECIAL, NULL, 0),
                     0);
}

static void test_white_space(void **state) {
    ASSERT_ENCODES(" ", 0, ' ');
    ASSERT_ENCODES("    ", 0, SPACES_4);
    ASSERT_ENCODES("     ", 0, SPACES_4, ' ');
    /* The last blank before a word belongs to the word. */
    ASSERT_ENCODES("   hello", 0, SPACES_2, SPACE_HELLO);
    ASSERT_ENCODES("\n\n", 0, '\n', '\n');
    ASSERT_ENCODES("\r\n\t", 0, '\r', '\n', '\t');
    /* Digits are split off first, so that the blanks before one are alone. */
    ASSERT_ENCODES("  1  2", 0, SPACES_2, '1', SPACES_2, '2');
}

static void test_pieces_do_not_merge_with_each_other(void **state) {
    ASSERT_ENCODES("he1llo", 0, HE, '1', LL, 'o');
    ASSERT_ENCODES("he'll", 0, HE, '\'', LL);
    ASSERT_ENCODES("a-ll", 0, 'a', '-', LL);
}

static void test_other_scripts(void **state) {
    ASSERT_ENCODES("\xc3\xa9", 0, E_ACUTE);
    /* Family emoji: three joined by U+200D, no token of their own. */
    ASSERT_ENCODES("\xf0\x9f\x91\xa9\xe2\x80\x8d", 0, 0xf0, 0x9f, 0x91, 0xa9, 0xe2, 0x80, 0x8d);
    ASSERT_ENCODES("\xe5\xad\x97\xe2\x80\x8f\xd7\x90", 0, 0xe5, 0xad, 0x97, 0xe2, 0x80, 0x8f, 0xd7,
                   0x90);
}

static void test_nul_bytes(void **state) {
    ASSERT_ENCODES("\0he\0", 0, 0, HE, 0);
}

static void test_invalid_utf8_is_bytes(void **state) {
    ASSERT_ENCODES("hello\xff hello", 0, HELLO, 0xff, SPACE_HELLO);
    ASSERT_ENCODES("\xc3", 0, 0xc3);
    ASSERT_ENCODES("\xa9\xc3\xa9", 0, 0xa9, E_ACUTE);
    /* Overlong, surrogate, above U+10FFFF, cut off. */
    ASSERT_ENCODES("\xc0\x80", 0, 0xc0, 0x80);
    ASSERT_ENCODES("\xed\xa0\x80", 0, 0xed, 0xa0, 0x80);
    ASSERT_ENCODES("\xf4\x90\x80\x80", 0, 0xf4, 0x90, 0x80, 0x80);
    ASSERT_ENCODES("\xf0\x9f\x91", 0, 0xf0, 0x9f, 0x91);
}

static void test_special_tokens_need_the_flag(void **state) {
    ASSERT_ENCODES("<|im_end|>", TOKENIZER_PARSE_SPECIAL, END);
    ASSERT_ENCODES("<|im_end|>", 0, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    ASSERT_ENCODES("hello<|im_end|> hello", TOKENIZER_PARSE_SPECIAL, HELLO, END, SPACE_HELLO);
    ASSERT_ENCODES("<|im_en<|im_end|>", TOKENIZER_PARSE_SPECIAL, '<', '|', 'i', 'm', '_', 'e', 'n',
                   END);
}

static void test_longest_special_token_wins(void **state) {
    ASSERT_ENCODES("<|im_start|>", TOKENIZER_PARSE_SPECIAL, START);
    ASSERT_ENCODES("<|im_start|", TOKENIZER_PARSE_SPECIAL, START_LONG, '|');
    ASSERT_ENCODES("<|im_start<|im_start|>", TOKENIZER_PARSE_SPECIAL, START_LONG, START);
}

static void test_added_tokens_always_match(void **state) {
    ASSERT_ENCODES("he<added token>ll", 0, HE, ADDED, LL);
    ASSERT_ENCODES("he<added token>ll", TOKENIZER_PARSE_SPECIAL, HE, ADDED, LL);
    ASSERT_ENCODES("n\xc3\xa9", 0, ADDED_ACCENT);
}

/* No merge may turn a user's text into a control token. */
static void test_text_never_becomes_a_control_token(void **state) {
    ASSERT_ENCODES("ab", 0, 'a', 'b');
    ASSERT_ENCODES("ab", TOKENIZER_PARSE_SPECIAL, CONTROL_AB);
    ASSERT_ENCODES("[PAD]", TOKENIZER_PARSE_SPECIAL, '[', 'P', 'A', 'D', ']');
}

static void test_counts_beyond_the_capacity(void **state) {
    int32_t out[3] = {-1, -1, -1};
    assert_int_equal(tokenizer_encode(shared.tokenizer, "xyz", 3, 0, out, 2), 3);
    assert_int_equal(out[0], 'x');
    assert_int_equal(out[1], 'y');
    assert_int_equal(out[2], -1);
    assert_int_equal(tokenizer_encode(shared.tokenizer, "xyz", 3, 0, NULL, 0), 3);
}

static void assert_text(struct text text, const char *expected) {
    assert_int_equal(text.length, strlen(expected));
    assert_memory_equal(text.data, expected, text.length);
}

static void test_pieces(void **state) {
    const struct tokenizer *t = shared.tokenizer;
    assert_text(tokenizer_piece(t, SPACE_HELLO), " hello");
    assert_text(tokenizer_raw_piece(t, SPACE_HELLO), "Ġhello");
    assert_text(tokenizer_piece(t, E_ACUTE), "\xc3\xa9");
    assert_text(tokenizer_piece(t, END), "<|im_end|>");
    assert_text(tokenizer_piece(t, ADDED), "<added token>");
    assert_text(tokenizer_piece(t, ADDED_ACCENT), "n\xc3\xa9");
    for (int byte = 0; byte < 256; byte++) {
        struct text piece = tokenizer_piece(t, byte);
        assert_int_equal(piece.length, 1);
        assert_int_equal((unsigned char)piece.data[0], byte);
    }
}

static void assert_round_trip(const struct tokenizer *tokenizer, const char *text, size_t length) {
    int32_t *ids = malloc((length + 1) * sizeof(*ids));
    int64_t count = tokenizer_encode(tokenizer, text, length, 0, ids, length + 1);
    assert_in_range(count, 0, length);
    size_t position = 0;
    for (int64_t i = 0; i < count; i++) {
        struct text piece = tokenizer_piece(tokenizer, ids[i]);
        assert_in_range(position + piece.length, 0, length);
        assert_memory_equal(piece.data, text + position, piece.length);
        position += piece.length;
    }
    assert_int_equal(position, length);
    free(ids);
}

static void test_any_bytes_round_trip(void **state) {
    char text[700];
    uint32_t random = 1;
    for (int round = 0; round < 500; round++) {
        for (size_t i = 0; i < sizeof(text); i++) {
            random = random * 1664525 + 1013904223;
            /* Every other round of letters that merge, so that long pieces occur. */
            text[i] = round % 2 ? "hello \xc3\xa9l"[random >> 24 & 7] : (char)(random >> 24);
        }
        assert_round_trip(shared.tokenizer, text, (size_t)round);
    }
}

/* A long run is one piece and goes through the heap; it must merge as a short one does. */
static void test_long_runs(void **state) {
    const size_t length = 1 << 20;
    char *text = malloc(length);
    int32_t *ids = malloc(length * sizeof(*ids));
    memset(text, 'l', length);
    int64_t count = tokenizer_encode(shared.tokenizer, text, length - 1, 0, ids, length);
    assert_int_equal(count, length / 2);
    for (int64_t i = 0; i + 1 < count; i++)
        assert_int_equal(ids[i], LL);
    assert_int_equal(ids[count - 1], 'l');
    memset(text, ' ', length);
    assert_int_equal(tokenizer_encode(shared.tokenizer, text, length, 0, ids, length), length / 4);
    for (size_t i = 0; i < length; i++)
        text[i] = "hello"[i % 5];
    count = tokenizer_encode(shared.tokenizer, text, length, 0, ids, length);
    assert_int_equal(count, length / 5 + 1);
    for (size_t i = 0; i < length / 5; i++)
        assert_int_equal(ids[i], HELLO);
    free(text);
    free(ids);
}

static void test_special_ids(void **state) {
    const struct tokenizer *t = shared.tokenizer;
    int count = 0;
    const int32_t *eos = tokenizer_eos_tokens(t, &count);
    assert_int_equal(tokenizer_vocab_size(t), NUM_TOKENS);
    assert_int_equal(tokenizer_bos(t), -1);
    /* What the file states, then the control tokens known by name. */
    assert_int_equal(count, 2);
    assert_int_equal(eos[0], START);
    assert_int_equal(eos[1], END);
    assert_true(tokenizer_is_eos(t, END));
    assert_false(tokenizer_is_eos(t, HELLO));
    assert_false(tokenizer_is_eos(t, -1));
    assert_true(tokenizer_is_special(t, END));
    assert_false(tokenizer_is_special(t, ADDED));
    assert_false(tokenizer_is_special(t, HELLO));
    assert_string_equal(tokenizer_description(t), "byte-level BPE, pre-tokenizer smollm");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_by_rank),
        cmocka_unit_test(test_empty_text),
        cmocka_unit_test(test_white_space),
        cmocka_unit_test(test_pieces_do_not_merge_with_each_other),
        cmocka_unit_test(test_other_scripts),
        cmocka_unit_test(test_nul_bytes),
        cmocka_unit_test(test_invalid_utf8_is_bytes),
        cmocka_unit_test(test_special_tokens_need_the_flag),
        cmocka_unit_test(test_longest_special_token_wins),
        cmocka_unit_test(test_added_tokens_always_match),
        cmocka_unit_test(test_text_never_becomes_a_control_token),
        cmocka_unit_test(test_counts_beyond_the_capacity),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_any_bytes_round_trip),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_special_ids),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
