/* SentencePiece's BPE over characters: GGUF files of kind `llama` against Hugging Face's tokens in
 * sentencepiece_cases.txt (scripts/compare/check_sentencepiece.py --write-cases explains its
 * lines), then what such a vocabulary may lack, and decoding. */
#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include "tests/unit/models/gguf_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#define MAX_LINES 4096
#define MAX_IDS 4096

static struct {
    size_t count, num_pieces;
    char *lines[MAX_LINES];
} cases;

static size_t read_hex(const char *hex, char *out) {
    size_t length = 0;
    for (; hex[0] != ' ' && hex[0] != '\0' && hex[0] != '-'; hex += 2)
        out[length++] = (char)strtol((char[]){hex[0], hex[1], '\0'}, NULL, 16);
    out[length] = '\0';
    return length;
}

/* Line i of the pieces: "piece TYPE SCORE HEX". */
static void read_piece(size_t i, int *type, float *score, char text[256]) {
    char hex[512];
    assert_int_equal(sscanf(cases.lines[i], "piece %d %f %511s", type, score, hex), 3);
    read_hex(hex, text);
}

static void write_model(bool prefix, struct gguf_writer *w) {
    char text[256];
    float score;
    int type;
    gguf_put_header(w, 3, 0, 7);
    gguf_put_key_string(w, "tokenizer.ggml.model", "llama");
    gguf_put_key_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_key_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_key(w, "tokenizer.ggml.add_space_prefix", GGUF_BOOL);
    gguf_put(w, &(uint8_t){prefix}, 1);
    gguf_put_key_array(w, "tokenizer.ggml.tokens", GGUF_STRING, cases.num_pieces);
    for (size_t i = 0; i < cases.num_pieces; i++) {
        read_piece(i, &type, &score, text);
        gguf_put_string(w, text);
    }
    gguf_put_key_array(w, "tokenizer.ggml.scores", GGUF_FLOAT32, cases.num_pieces);
    for (size_t i = 0; i < cases.num_pieces; i++) {
        read_piece(i, &type, &score, text);
        gguf_put(w, &score, sizeof(score));
    }
    gguf_put_key_array(w, "tokenizer.ggml.token_type", GGUF_INT32, cases.num_pieces);
    for (size_t i = 0; i < cases.num_pieces; i++) {
        read_piece(i, &type, &score, text);
        gguf_put_u32(w, (uint32_t)type);
    }
    gguf_pad(w, 32);
}

static struct tokenizer *open_cases(bool prefix) {
    struct gguf_writer image = {0};
    struct model model = {0};
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    write_model(prefix, &image);
    assert_int_equal(tensor_file_open_memory(image.data, image.bytes, "cases", &model.file, &err),
                     0);
    if (tokenizer_open(&model, &tokenizer, &err) != 0)
        fail_msg("%s", err.message);
    tensor_file_close(model.file);
    gguf_finish(&image);
    return tokenizer;
}

/* `line` starts at the text. Decoding gives it back, but for what a text cannot show. */
static void check_case(const struct tokenizer *tokenizer, const char *line) {
    char text[MAX_IDS], back[MAX_IDS];
    int32_t out[MAX_IDS];
    assert_in_range(strlen(line), 0, MAX_IDS);
    size_t length = read_hex(line, text);
    int64_t count = tokenizer_encode(tokenizer, text, length, 0, out, MAX_IDS);
    char *rest = strchr(line, ' ');
    int64_t expected = 0;
    for (; rest != NULL && *rest != '\0'; expected++) {
        long id = strtol(rest, &rest, 10);
        if (expected >= count || out[expected] != id)
            fail_msg("token %d is not %ld in: %s", (int)expected, id, line);
    }
    assert_int_equal(count, expected);
    size_t bytes = tokenizer_decode(tokenizer, out, (size_t)count, false, back, sizeof(back));
    assert_int_equal(bytes, length);
    assert_memory_equal(back, text, length);
}

static void check_cases(bool prefix) {
    struct tokenizer *tokenizer = open_cases(prefix);
    const char *kind = prefix ? "case 1 " : "case 0 ";
    size_t checked = 0;
    for (size_t i = cases.num_pieces; i < cases.count; i++) {
        if (strncmp(cases.lines[i], kind, strlen(kind)) != 0)
            continue;
        check_case(tokenizer, cases.lines[i] + strlen(kind));
        checked++;
    }
    assert_in_range(checked, 100, MAX_LINES);
    tokenizer_close(tokenizer);
}

static void test_cases_with_a_space_prefix(void **state) {
    check_cases(true);
}

static void test_cases_without(void **state) {
    check_cases(false);
}

static void test_special_tokens(void **state) {
    struct tokenizer *t = open_cases(true);
    int32_t out[64];
    assert_int_equal(tokenizer_encode(t, "", 0, TOKENIZER_ADD_SPECIAL, out, 64), 1);
    assert_int_equal(out[0], 1);
    assert_int_equal(tokenizer_encode(t, "</s>", 4, TOKENIZER_PARSE_SPECIAL, out, 64), 1);
    assert_int_equal(out[0], 2);
    assert_true(tokenizer_is_eos(t, 2));
    assert_true(tokenizer_encode(t, "</s>", 4, 0, out, 64) > 1);
    /* Bytes that are not UTF-8 have tokens of their own, 3 and on; nothing is put in front again.
     */
    int64_t count = tokenizer_encode(t,
                                     "a\xff"
                                     "a",
                                     3, 0, out, 64);
    assert_in_range(count, 3, 4);
    assert_int_equal(out[count - 2], 3 + 0xff);
    assert_string_equal(tokenizer_description(t), "BPE over characters, pre-tokenizer none");
    tokenizer_close(t);
}

/* A text without a pre-tokenizer is one piece, whatever its length. */
static void test_long_texts(void **state) {
    struct tokenizer *t = open_cases(false);
    const size_t length = 1 << 20;
    char *text = malloc(length), *back = malloc(length);
    int32_t *ids = malloc(length * sizeof(*ids));
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < length; i++)
            text[i] = kind == 0 ? 'a' : kind == 1 ? ' ' : "the cat sat, "[i % 13];
        int64_t count = tokenizer_encode(t, text, length, 0, ids, length);
        assert_in_range(count, 1, length);
        assert_int_equal(tokenizer_decode(t, ids, (size_t)count, true, back, length), length);
        assert_memory_equal(back, text, length);
    }
    free(text);
    free(back);
    free(ids);
    tokenizer_close(t);
}

/* --- Small vocabularies ------------------------------------------------------------------------
 */

enum { UNK, BOS, BYTE_E2, A, B, C, AB, BC, ABC, SPACE, SPACE_A, TAG, NUM_TOKENS };

static struct text names[NUM_TOKENS] = {
    {"<unk>", 5}, {"<s>", 3}, {"<0xE2>", 6}, {"a", 1},      {"b", 1},       {"c", 1},
    {"ab", 2},    {"bc", 2},  {"abc", 3},    {"\u2581", 3}, {"\u2581a", 4}, {"<tag>", 5},
};
static uint8_t types[NUM_TOKENS] = {2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4};
static float scores[NUM_TOKENS] = {0, 0, 0, -9, -9, -9, -2, -1, -3, -9, -4, 0};

static struct tokenizer_spec small_spec(void) {
    return (struct tokenizer_spec){
        .alphabet = ALPHABET_CHARACTERS,
        .num_tokens = NUM_TOKENS,
        .tokens = names,
        .types = types,
        .scores = scores,
        .space_replacement = true,
        .bos = -1,
        .unknown = UNK,
        .num_normalizers = 1,
        .normalizers = {{.kind = NORMALIZER_REPLACE,
                         .pattern = {" ", 1},
                         .content = {"\u2581", 3}}},
    };
}

static void assert_ids(const struct tokenizer_spec *spec, const char *text, const int32_t *ids,
                       size_t num_ids) {
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    int32_t out[32];
    if (tokenizer_create(spec, &tokenizer, &err) != 0)
        fail_msg("%s", err.message);
    int64_t count = tokenizer_encode(tokenizer, text, strlen(text), 0, out, 32);
    tokenizer_close(tokenizer);
    for (size_t i = 0; i < num_ids && (int64_t)i < count; i++) {
        if (out[i] != ids[i])
            fail_msg("\"%s\": token %zu is %d, expected %d", text, i, out[i], ids[i]);
    }
    assert_int_equal(count, num_ids);
}

#define ASSERT_IDS(spec, text, ...)                                                                \
    assert_ids(spec, text, (const int32_t[]){__VA_ARGS__},                                         \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* "b c" has the best score, so "abc" is reached by "a bc" only. */
static void test_merges_follow_from_scores(void **state) {
    struct tokenizer_spec spec = small_spec();
    ASSERT_IDS(&spec, "abc", ABC);
    ASSERT_IDS(&spec, "abbc", AB, BC);
    ASSERT_IDS(&spec, "a a", A, SPACE_A);
    scores[BC] = -20;
    ASSERT_IDS(&spec, "bcabc", BC, ABC);
    scores[BC] = -1;
}

static void test_unknown_characters(void **state) {
    struct tokenizer_spec spec = small_spec();
    ASSERT_IDS(&spec, "xya", UNK, UNK, A);
    ASSERT_IDS(&spec, "ax", A, UNK);
    spec.fuse_unknown = true;
    ASSERT_IDS(&spec, "xyabz", UNK, AB, UNK);
    spec.unknown = -1;
    /* Left out: what is around them meets. */
    ASSERT_IDS(&spec, "axb", AB);
}

/* Of U+2014, E2 80 94, one byte has a token: all or none is used. */
static void test_byte_fallback(void **state) {
    struct tokenizer_spec spec = small_spec();
    spec.byte_fallback = true;
    ASSERT_IDS(&spec, "a\u2014", A, UNK);
    ASSERT_IDS(&spec, "a\xe2", A, BYTE_E2);
    /* The name of a byte is not the byte. */
    ASSERT_IDS(&spec, "<0", UNK, UNK);
}

/* --- Added tokens ------------------------------------------------------------------------------
 */

static void assert_added(struct added_token added, const char *text, const int32_t *ids,
                         size_t num_ids) {
    struct tokenizer_spec spec = small_spec();
    added.id = TAG;
    spec.added = &added;
    spec.num_added = 1;
    assert_ids(&spec, text, ids, num_ids);
}

#define ASSERT_ADDED(added, text, ...)                                                             \
    assert_added(added, text, (const int32_t[]){__VA_ARGS__},                                      \
                 sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void test_added_tokens(void **state) {
    const struct added_token plain = {0}, special = {.special = true}, word = {.single_word = true};
    const struct added_token left = {.lstrip = true}, right = {.rstrip = true};
    const struct added_token both = {.lstrip = true, .rstrip = true};
    const struct added_token normalized = {.normalized = true};
    ASSERT_ADDED(plain, "a <tag> a", A, SPACE, TAG, SPACE_A);
    ASSERT_ADDED(left, "a  <tag> a", A, TAG, SPACE_A);
    ASSERT_ADDED(right, "a <tag> \u2003\na", A, SPACE, TAG, A);
    ASSERT_ADDED(both, " <tag> <tag> ", TAG, TAG);
    ASSERT_ADDED(word, "a <tag> a<tag>", A, SPACE, TAG, SPACE_A, UNK, UNK, A, UNK, UNK);
    ASSERT_ADDED(word, "<tag>\u0301", UNK, UNK, A, UNK, UNK, UNK);
    ASSERT_ADDED(special, "<tag>", UNK, UNK, A, UNK, UNK);
    ASSERT_ADDED(normalized, "a<tag>", A, TAG);
}

/* A normalised token is searched as the normaliser writes it. */
static void test_normalized_added_tokens(void **state) {
    struct tokenizer_spec spec = small_spec();
    struct added_token added = {.id = SPACE_A, .normalized = true};
    spec.added = &added;
    spec.num_added = 1;
    spec.normalizers[1] = (struct normalizer_step){.kind = NORMALIZER_LOWERCASE};
    spec.num_normalizers = 2;
    ASSERT_IDS(&spec, "B AB", B, SPACE_A, B);
    added.normalized = false;
    ASSERT_IDS(&spec, "b ab", B, SPACE, AB);
}

/* --- Decoding ----------------------------------------------------------------------------------
 */

static void test_decoding(void **state) {
    static const int32_t ids[] = {BOS, SPACE_A, BYTE_E2, SPACE, B};
    struct tokenizer_spec spec = small_spec();
    struct tokenizer *t = NULL;
    char out[32];
    spec.byte_fallback = true;
    spec.strip_leading_spaces = 1;
    assert_int_equal(tokenizer_create(&spec, &t, NULL), 0);
    assert_int_equal(tokenizer_decode(t, ids, 5, true, out, sizeof(out)), 4);
    assert_memory_equal(out, "a\xe2 b", 4);
    /* What stands before is no space to strip. */
    assert_int_equal(tokenizer_decode(t, ids, 5, false, out, sizeof(out)), 8);
    assert_memory_equal(out, "<s> a\xe2 b", 8);
    memset(out, '-', sizeof(out));
    assert_int_equal(tokenizer_decode(t, ids, 5, true, out, 2), 4);
    assert_memory_equal(out, "a\xe2-", 3);
    assert_memory_equal(tokenizer_piece(t, SPACE_A).data, " a", 2);
    assert_memory_equal(tokenizer_raw_piece(t, SPACE_A).data, "\u2581a", 4);
    tokenizer_close(t);
}

static void assert_refused(const struct tokenizer_spec *spec, const char *reason) {
    struct tokenizer *t = NULL;
    struct error err = {0};
    assert_int_equal(tokenizer_create(spec, &t, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    if (strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
}

static void test_what_a_spec_may_not_say(void **state) {
    struct tokenizer_spec spec = small_spec();
    struct added_token added = {.id = NUM_TOKENS};
    spec.num_added = 1;
    spec.added = &added;
    assert_refused(&spec, "an added token's id is 12, allowed 0 to 11");
    spec = small_spec();
    spec.unknown = 12;
    assert_refused(&spec, "the unknown token is 12, allowed 0 to 11");
    spec = small_spec();
    spec.num_eos = 1;
    spec.eos[0] = 99;
    assert_refused(&spec, "the end-of-sequence token is 99");
    spec = small_spec();
    spec.num_tokens = 0;
    assert_refused(&spec, "the vocabulary has 0 tokens");
}

static int read_cases(const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    if (file == NULL)
        return -1;
    while ((length = getline(&line, &size, file)) > 0 && cases.count < MAX_LINES) {
        line[length - 1] = '\0';
        cases.num_pieces += strncmp(line, "piece ", 6) == 0;
        cases.lines[cases.count++] = strdup(line);
    }
    free(line);
    fclose(file);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases_with_a_space_prefix),
        cmocka_unit_test(test_cases_without),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_merges_follow_from_scores),
        cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_byte_fallback),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_normalized_added_tokens),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_what_a_spec_may_not_say),
    };
    if (argc != 2 || read_cases(argv[1]) != 0) {
        fprintf(stderr, "usage: test_tokenizer_sentencepiece sentencepiece_cases.txt\n");
        return 2;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < cases.count; i++)
        free(cases.lines[i]);
    return failed;
}
