/* Control tokens in text of which parts are a client's: matched in the other parts only, while
 * everything else is encoded as if there were no parts. */
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define MAX_IDS 256
#define MAX_SPANS 32

enum {
    HE = 256,
    EHE,       /* merges across an edge */
    END,       /* a control token */
    START,     /* another */
    START_END, /* and one that is both */
    TOOL,      /* a user's token */
    STRIP,     /* a control token that swallows the white space around it */
    WORD,      /* a control token that stands alone */
    MARKER,    /* a user's token that divides a prompt */
    WIDE,      /* another */
    LETTER,    /* U+00E9 */
    NUM_TOKENS
};

static const struct added_token added[] = {
    {.id = END, .special = true},
    {.id = START, .special = true},
    {.id = START_END, .special = true},
    {.id = TOOL},
    {.id = MARKER},
    {.id = WIDE},
    {.id = STRIP, .special = true, .lstrip = true, .rstrip = true},
    {.id = WORD, .special = true, .single_word = true},
};
#define NUM_ADDED (sizeof(added) / sizeof(added[0]))

struct test_case {
    struct tokenizer *raw;        /* added tokens in the text as it came */
    struct tokenizer *normalized; /* and in the text with U+2581 in front and for spaces */
    struct tokenizer *composed;   /* and in NFC */
};

static struct test_case tokenizers;

static struct text literal(const char *text) {
    return (struct text){text, strlen(text)};
}

static void fill_tokens(struct text tokens[NUM_TOKENS], uint8_t types[NUM_TOKENS],
                        char names[256][8]) {
    static const char *const named[] = {
        "he",         "ehe",     "<end>",  "<start>", "<start><end>",
        "<tool end>", "<strip>", "<word>", "<|m|>",   "<\xef\xbd\x9cm\xef\xbd\x9c>",
        "\xc3\xa9"};
    for (int byte = 0; byte < 256; byte++) {
        bool plain = byte >= ' ' && byte < 0x7f;
        snprintf(names[byte], 8, plain ? "%c" : "<0x%02X>", byte);
        tokens[byte] = literal(names[byte]);
        types[byte] = plain ? TOKEN_NORMAL : TOKEN_BYTE;
    }
    for (int i = 256; i < NUM_TOKENS; i++) {
        tokens[i] = literal(named[i - 256]);
        types[i] = TOKEN_NORMAL;
    }
    for (size_t i = 0; i < NUM_ADDED; i++)
        types[added[i].id] = added[i].special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
}

static struct tokenizer *create(bool normalized, int num_normalizers,
                                const struct normalizer_step *normalizers) {
    struct text tokens[NUM_TOKENS];
    uint8_t types[NUM_TOKENS];
    char names[256][8];
    struct merge_texts merges[] = {{literal("h"), literal("e")}, {literal("e"), literal("he")}};
    struct added_token list[NUM_ADDED];
    struct tokenizer_spec spec = {
        .alphabet = ALPHABET_CHARACTERS,
        .num_tokens = NUM_TOKENS,
        .tokens = tokens,
        .types = types,
        .num_merges = 2,
        .merges = merges,
        .byte_fallback = true,
        .unknown = -1,
        .num_added = NUM_ADDED,
        .added = list,
        .num_normalizers = num_normalizers,
        .bos = -1,
    };
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    fill_tokens(tokens, types, names);
    memcpy(list, added, sizeof(list));
    for (size_t i = 0; i < NUM_ADDED; i++)
        list[i].normalized = normalized;
    for (int i = 0; i < num_normalizers; i++)
        spec.normalizers[i] = normalizers[i];
    if (tokenizer_create(&spec, &tokenizer, &err) != 0)
        fail_msg("%s", err.message);
    return tokenizer;
}

static int open_tokenizers(void **state) {
    const struct normalizer_step spaces = {
        .kind = NORMALIZER_REPLACE, .pattern = literal(" "), .content = literal("_")};
    const struct normalizer_step composed = {.kind = NORMALIZER_NFC};
    tokenizers.raw = create(false, 0, NULL);
    tokenizers.normalized = create(true, 1, &spaces);
    tokenizers.composed = create(true, 1, &composed);
    return 0;
}

static int close_tokenizers(void **state) {
    tokenizer_close(tokenizers.raw);
    tokenizer_close(tokenizers.normalized);
    tokenizer_close(tokenizers.composed);
    return 0;
}

/* A text with the client's parts in braces. */
struct marked {
    char text[MAX_IDS];
    size_t length, num_spans;
    struct text_span spans[MAX_SPANS];
};

static void read_marked(const char *source, struct marked *out) {
    *out = (struct marked){0};
    for (; *source != '\0'; source++) {
        if (*source == '{')
            out->spans[out->num_spans].begin = out->length;
        else if (*source == '}')
            out->spans[out->num_spans++].end = out->length;
        else
            out->text[out->length++] = *source;
    }
}

static void write_tokens(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count,
                         char *out, size_t out_bytes) {
    size_t used = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < count && used + 24 < out_bytes; i++) {
        struct text piece = tokenizer_piece(tokenizer, ids[i]);
        bool is_control = tokenizer_is_special(tokenizer, ids[i]);
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s%.*s", i > 0 ? "|" : "",
                                 is_control ? "!" : "", (int)piece.length, piece.data);
    }
}

/* Tokens are written apart by |, control tokens with ! in front. */
static void assert_tokens(const struct tokenizer *tokenizer, const char *source,
                          const char *expected) {
    struct marked marked;
    int32_t ids[MAX_IDS];
    char got[1024];
    read_marked(source, &marked);
    int64_t count = tokenizer_encode_spans(tokenizer, marked.text, marked.length, marked.spans,
                                           marked.num_spans, TOKENIZER_PARSE_SPECIAL, ids, MAX_IDS);
    assert_in_range(count, 0, MAX_IDS);
    write_tokens(tokenizer, ids, count, got, sizeof(got));
    if (strcmp(got, expected) != 0)
        fail_msg("%s: %s, expected %s", source, got, expected);
}

static void test_a_client_writes_no_control_token(void **state) {
    const struct tokenizer *t = tokenizers.raw;
    assert_tokens(t, "<end>{he}<end>", "!<end>|he|!<end>");
    assert_tokens(t, "<end>{<end>}<end>", "!<end>|<|e|n|d|>|!<end>");
    assert_tokens(t, "{<end>}", "<|e|n|d|>");
    assert_tokens(t, "a{}<end>{}b", "a|!<end>|b");
}

static void test_nor_a_part_of_one(void **state) {
    const struct tokenizer *t = tokenizers.raw;
    assert_tokens(t, "{<}end>", "<|e|n|d|>");
    assert_tokens(t, "<en{d>}", "<|e|n|d|>");
    assert_tokens(t, "<e{n}d>", "<|e|n|d|>");
    assert_tokens(t, "{<e}{nd>}", "<|e|n|d|>");
}

/* A client may not make a token that the template wrote vanish either. */
static void test_a_client_hides_no_control_token(void **state) {
    const struct tokenizer *t = tokenizers.raw;
    assert_tokens(t, "<start><end>", "!<start><end>");
    assert_tokens(t, "<start>{<end>}", "!<start>|<|e|n|d|>");
    assert_tokens(t, "{<start>}<end>", "<|s|t|a|r|t|>|!<end>");
    assert_tokens(t, "<start><e{nd>}", "!<start>|<|e|n|d|>");
    assert_tokens(t, "{<sta}<end>", "<|s|t|a|!<end>");
    assert_tokens(t, "{<tool}<end>", "<|t|o|o|l|!<end>");
}

static void test_text_merges_across_an_edge(void **state) {
    assert_tokens(tokenizers.raw, "{e}he", "ehe");
    assert_tokens(tokenizers.raw, "eh{e}", "ehe");
}

static void test_a_users_token_matches_everywhere(void **state) {
    assert_tokens(tokenizers.raw, "{<tool end>}", "<tool end>");
    assert_tokens(tokenizers.raw, "<tool{ end>}", "<tool end>");
}

/* But not one that begins a turn: DeepSeek's are no control tokens. */
static void test_a_client_writes_no_marker(void **state) {
    static const char wide[] = "<\xef\xbd\x9cm\xef\xbd\x9c>";
    const struct tokenizer *t = tokenizers.raw;
    const struct text_span span = {0, 9};
    int32_t id = -1;
    assert_tokens(t, "<|m|>{<|m|>}<|m|>", "<|m|>|<|||m|||>|<|m|>");
    assert_tokens(tokenizers.normalized, "{<|m|>}", "<|||m|||>");
    assert_tokens(t, wide, wide);
    assert_int_equal(tokenizer_encode_spans(t, wide, 9, &span, 1, TOKENIZER_PARSE_SPECIAL, NULL, 0),
                     9);
    /* It is an ordinary added token elsewhere. */
    assert_int_equal(tokenizer_encode(t, "<|m|>", 5, 0, &id, 1), 1);
    assert_int_equal(id, MARKER);
}

/* The white space that a token swallows is not the token. */
static void test_white_space_is_swallowed(void **state) {
    assert_tokens(tokenizers.raw, "a{ }<strip>{ a}", "a|!<strip>|a");
    assert_tokens(tokenizers.raw, "{a <strip> a}", "a| |<|s|t|r|i|p|>| |a");
}

static void test_single_words(void **state) {
    assert_tokens(tokenizers.raw, "{a }<word>{ a}", "a| |!<word>| |a");
    assert_tokens(tokenizers.raw, "{a <word> a}", "a| |<|w|o|r|d|>| |a");
}

static void test_normalised_text(void **state) {
    const struct tokenizer *t = tokenizers.normalized;
    assert_tokens(t, " <end>{ he }<end> {<end>} <end>",
                  "_|!<end>|_|he|_|!<end>|_|<|e|n|d|>|_|!<end>");
    assert_tokens(t, "{<e}nd><start>{ he}", "<|e|n|d|>|!<start>|_|he");
    /* The token's own space is one in the normalised text. */
    assert_tokens(t, "{<tool end>}", "<tool end>");
}

/* Where a client's mark changes the letter before it, nobody can say which text is whose. */
static void test_parts_that_melt_together_are_the_clients(void **state) {
    const struct tokenizer *t = tokenizers.composed;
    assert_tokens(t, "<end>e\xcc\x81{<end>}", "!<end>|\xc3\xa9|<|e|n|d|>");
    assert_tokens(t, "<end>e{\xcc\x81<end>}", "<|e|n|d|>|\xc3\xa9|<|e|n|d|>");
    assert_tokens(t, "\xff<end>e{\xcc\x81}\xff<end>{a}", "\xff|<|e|n|d|>|\xc3\xa9|\xff|!<end>|a");
    /* A span that cuts a character in two is of no text. */
    assert_tokens(t, "<end>\xc3{\xa9}", "<|e|n|d|>|\xc3\xa9");
}

static void test_without_the_flag_nothing_is_parsed(void **state) {
    int32_t ids[16];
    const struct text_span span = {0, 1};
    assert_int_equal(tokenizer_encode_spans(tokenizers.raw, "a<end>", 6, &span, 1, 0, ids, 16), 6);
    assert_int_equal(tokenizer_encode_spans(tokenizers.raw, "", 0, NULL, 0, 0, ids, 16), 0);
    assert_int_equal(tokenizer_encode_spans(tokenizers.raw, "a<end>", 6, &span, 1,
                                            TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, NULL,
                                            0),
                     2);
}

/* --- Any text and spans --- */

static uint32_t next_random(uint32_t *random) {
    *random = *random * 1664525 + 1013904223;
    return *random >> 16;
}

/* Control tokens and pieces of them, in and out of spans. */
static void make_text(uint32_t *random, bool with_tokens, struct marked *out) {
    static const char *const parts[] = {"he", "e", " ", "\xc3\xa9", "a", "h", "\xff", "x y",
                                        /* those with tokens */
                                        "<end>", "<start>", "<start><end>", "<strip>", "<word>",
                                        "<", "<en", "d>", "<tool end>", "start>"};
    *out = (struct marked){0};
    bool is_client = false;
    for (int i = (int)(next_random(random) % 24); i > 0; i--) {
        struct text part = literal(parts[next_random(random) % (with_tokens ? 18 : 8)]);
        memcpy(out->text + out->length, part.data, part.length);
        out->length += part.length;
    }
    for (size_t at = 0; at < out->length; at++) {
        if (next_random(random) % 6 == 0 && out->num_spans < MAX_SPANS) {
            out->spans[out->num_spans].begin = is_client ? out->spans[out->num_spans].begin : at;
            out->spans[out->num_spans].end = at;
            out->num_spans += is_client;
            is_client = !is_client;
        }
    }
    if (is_client)
        out->spans[out->num_spans++].end = out->length;
}

static bool is_client_byte(const struct marked *marked, size_t at) {
    for (size_t i = 0; i < marked->num_spans; i++) {
        if (marked->spans[i].begin <= at && at < marked->spans[i].end)
            return true;
    }
    return false;
}

/* Tokens are found in the text again one by one; the only bytes without one are white space next to
 * <strip>. */
static void assert_no_control_token_of_a_client(const struct marked *marked, const int32_t *ids,
                                                int64_t count) {
    size_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        struct text piece = tokenizer_piece(tokenizers.raw, ids[i]);
        while (ids[i] == STRIP && marked->text[at] == ' ')
            at++;
        assert_in_range(at + piece.length, 0, marked->length);
        assert_memory_equal(marked->text + at, piece.data, piece.length);
        for (size_t k = 0; k < piece.length; k++, at++)
            assert_false(tokenizer_is_special(tokenizers.raw, ids[i]) &&
                         is_client_byte(marked, at));
        while (ids[i] == STRIP && at < marked->length && marked->text[at] == ' ')
            at++;
    }
    assert_int_equal(at, marked->length);
}

static void test_no_control_token_covers_a_clients_byte(void **state) {
    uint32_t random = 7;
    size_t num_control = 0;
    for (int round = 0; round < 20000; round++) {
        struct marked marked;
        int32_t ids[MAX_IDS];
        make_text(&random, true, &marked);
        int64_t count =
            tokenizer_encode_spans(tokenizers.raw, marked.text, marked.length, marked.spans,
                                   marked.num_spans, TOKENIZER_PARSE_SPECIAL, ids, MAX_IDS);
        assert_in_range(count, 0, MAX_IDS);
        assert_no_control_token_of_a_client(&marked, ids, count);
        for (int64_t i = 0; i < count; i++)
            num_control += tokenizer_is_special(tokenizers.raw, ids[i]);
    }
    assert_true(num_control > 1000);
}

static void assert_spans_change_nothing(const struct tokenizer *tokenizer,
                                        const struct marked *marked) {
    int32_t with[MAX_IDS], without[MAX_IDS];
    int64_t count =
        tokenizer_encode_spans(tokenizer, marked->text, marked->length, marked->spans,
                               marked->num_spans, TOKENIZER_PARSE_SPECIAL, with, MAX_IDS);
    assert_in_range(count, 0, MAX_IDS);
    assert_int_equal(count, tokenizer_encode(tokenizer, marked->text, marked->length,
                                             TOKENIZER_PARSE_SPECIAL, without, MAX_IDS));
    assert_memory_equal(with, without, (size_t)count * sizeof(*with));
}

static void test_text_without_control_tokens_is_encoded_the_same(void **state) {
    uint32_t random = 11;
    for (int round = 0; round < 10000; round++) {
        struct marked marked;
        make_text(&random, false, &marked);
        assert_spans_change_nothing(tokenizers.raw, &marked);
        assert_spans_change_nothing(tokenizers.normalized, &marked);
        assert_spans_change_nothing(tokenizers.composed, &marked);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_writes_no_control_token),
        cmocka_unit_test(test_nor_a_part_of_one),
        cmocka_unit_test(test_a_client_hides_no_control_token),
        cmocka_unit_test(test_text_merges_across_an_edge),
        cmocka_unit_test(test_a_users_token_matches_everywhere),
        cmocka_unit_test(test_a_client_writes_no_marker),
        cmocka_unit_test(test_white_space_is_swallowed),
        cmocka_unit_test(test_single_words),
        cmocka_unit_test(test_normalised_text),
        cmocka_unit_test(test_parts_that_melt_together_are_the_clients),
        cmocka_unit_test(test_without_the_flag_nothing_is_parsed),
        cmocka_unit_test(test_no_control_token_covers_a_clients_byte),
        cmocka_unit_test(test_text_without_control_tokens_is_encoded_the_same),
    };
    return cmocka_run_group_tests(tests, open_tokenizers, close_tokenizers);
}
