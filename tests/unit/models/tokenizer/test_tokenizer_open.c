/* What a file may and may not say about its tokenizer. */
#include "models/tokenizer/tokenizer.h"

#include "tests/unit/models/tokenizer/tokenizer_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

static const struct fixture_token tokens[] = {{"he", 1}, {"hel", 1}, {"<s>", 3}, {"<e>", 3}};
static const char *const merges[] = {"h e", "he l"};

/* Writers of the keys of a file, each of which a test can replace by another or leave out. */
struct keys {
    const char *model;
    const char *pre;
    uint32_t tokens_type; /* element type; GGUF_ARRAY: the key is missing */
    uint64_t num_types;
    uint32_t bad_type; /* type of the first token */
    uint32_t merges_type;
    const char *merge;
    const char *id_key;
    uint32_t id;
};

static const struct keys good = {
    .model = "gpt2",
    .pre = "qwen2",
    .tokens_type = GGUF_STRING,
    .num_types = 3,
    .bad_type = 1,
    .merges_type = GGUF_STRING,
    .merge = "a b",
    .id_key = "tokenizer.ggml.eos_token_id",
    .id = 2,
};

static void write_keys(const struct keys *keys, struct gguf_writer *w) {
    static const char *const texts[] = {"a", "b", "ab"};
    bool has_tokens = keys->tokens_type != GGUF_ARRAY, has_merges = keys->merges_type != GGUF_ARRAY;
    gguf_put_header(w, 3, 0, 3 + has_tokens + has_merges + (keys->model != NULL));
    if (keys->model != NULL)
        gguf_put_key_string(w, "tokenizer.ggml.model", keys->model);
    gguf_put_key_string(w, "tokenizer.ggml.pre", keys->pre);
    if (has_tokens)
        gguf_put_key_array(w, "tokenizer.ggml.tokens", keys->tokens_type, 3);
    for (int i = 0; has_tokens && i < 3; i++) {
        if (keys->tokens_type == GGUF_STRING)
            gguf_put_string(w, texts[i]);
        else
            gguf_put_u32(w, 1);
    }
    gguf_put_key_array(w, "tokenizer.ggml.token_type", GGUF_INT32, keys->num_types);
    for (uint64_t i = 0; i < keys->num_types; i++)
        gguf_put_u32(w, i == 0 ? keys->bad_type : 1);
    if (has_merges)
        gguf_put_key_array(w, "tokenizer.ggml.merges", keys->merges_type, 1);
    if (keys->merges_type == GGUF_STRING)
        gguf_put_string(w, keys->merge);
    else if (has_merges)
        gguf_put_u32(w, 1);
    gguf_put_key_u32(w, keys->id_key, keys->id);
    gguf_pad(w, 32);
}

static void assert_refused(struct keys keys, const char *reason) {
    struct fixture fixture = {0};
    struct error err = {0};
    write_keys(&keys, &fixture.image);
    assert_int_equal(fixture_open_image(&fixture, &err), -1);
    assert_null(fixture.tokenizer);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_null(strchr(err.message, '\n'));
    if (strncmp(err.message, "t.gguf: ", 8) != 0 || strstr(err.message, reason) == NULL)
        fail_msg("expected '%s' in '%s'", reason, err.message);
    fixture_close(&fixture);
}

#define ASSERT_REFUSED(reason, ...)                                                                \
    do {                                                                                           \
        struct keys changed = good;                                                                \
        __VA_ARGS__;                                                                               \
        assert_refused(changed, reason);                                                           \
    } while (0)

static void test_good_keys(void **state) {
    struct fixture fixture = {0};
    struct error err = {0};
    int32_t out[4];
    write_keys(&good, &fixture.image);
    if (fixture_open_image(&fixture, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(tokenizer_encode(fixture.tokenizer, "abcab", 5, 0, out, 4), 2);
    assert_int_equal(out[0], 2);
    assert_int_equal(out[1], 2);
    assert_string_equal(tokenizer_description(fixture.tokenizer),
                        "byte-level BPE, pre-tokenizer qwen2, 254 of 256 bytes without a token");
    fixture_close(&fixture);
}

static void test_unknown_kinds_are_named(void **state) {
    ASSERT_REFUSED("tokenizer.ggml.model is \"bert\", known are gpt2, llama",
                   changed.model = "bert");
    ASSERT_REFUSED("tokenizer.ggml.model is missing", changed.model = NULL);
    ASSERT_REFUSED("tokenizer.ggml.pre is \"tek?ken\", known are gpt-2, gpt2, default, phi-2",
                   changed.pre = "tek\nken");
    ASSERT_REFUSED("tokenizer.ggml.pre is \"\"", changed.pre = "");
}

static void test_tokens(void **state) {
    ASSERT_REFUSED("tokenizer.ggml.tokens is missing", changed.tokens_type = GGUF_ARRAY);
    ASSERT_REFUSED("tokenizer.ggml.tokens is not an array of strings",
                   changed.tokens_type = GGUF_UINT32);
    ASSERT_REFUSED("tokenizer.ggml.token_type has 2 elements, tokenizer.ggml.tokens has 3",
                   changed.num_types = 2);
    ASSERT_REFUSED("tokenizer.ggml.token_type[0] is 7, allowed 1 to 6", changed.bad_type = 7);
    ASSERT_REFUSED("tokenizer.ggml.token_type[0] is -1", changed.bad_type = UINT32_MAX);
}

static void test_merges(void **state) {
    ASSERT_REFUSED("tokenizer.ggml.merges is missing", changed.merges_type = GGUF_ARRAY);
    ASSERT_REFUSED("tokenizer.ggml.merges is not an array of strings",
                   changed.merges_type = GGUF_UINT32);
    ASSERT_REFUSED("merges[0] is not two tokens", changed.merge = "ab");
    ASSERT_REFUSED("merges[0] is not two tokens", changed.merge = "");
    ASSERT_REFUSED("merges[0] is not two tokens", changed.merge = " ab");
    ASSERT_REFUSED("merges[0] is not two tokens", changed.merge = "ab ");
    ASSERT_REFUSED("merges[0] is not two tokens", changed.merge = "a  b");
    ASSERT_REFUSED("merges[0]: its left token is not", changed.merge = "c b");
    ASSERT_REFUSED("merges[0]: its right token is not", changed.merge = "a c");
    ASSERT_REFUSED("merges[0]: its result is not", changed.merge = "b a");
}

/* The tokens that "ab" becomes with what the template adds, and how many ends there are. */
static void assert_accepted(struct keys keys, int64_t num_tokens, int num_ends) {
    struct fixture fixture = {0};
    struct error err = {0};
    int32_t out[4];
    int count, before, behind;
    write_keys(&keys, &fixture.image);
    if (fixture_open_image(&fixture, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(tokenizer_encode(fixture.tokenizer, "ab", 2, TOKENIZER_ADD_SPECIAL, out, 4),
                     num_tokens);
    tokenizer_num_added(fixture.tokenizer, &before, &behind);
    assert_int_equal(before + behind,
                     num_tokens - tokenizer_encode(fixture.tokenizer, "ab", 2, 0, out, 4));
    tokenizer_eos_tokens(fixture.tokenizer, &count);
    assert_int_equal(count, num_ends);
    fixture_close(&fixture);
}

#define ASSERT_ACCEPTED(num_tokens, num_ends, ...)                                                 \
    do {                                                                                           \
        struct keys changed = good;                                                                \
        __VA_ARGS__;                                                                               \
        assert_accepted(changed, num_tokens, num_ends);                                            \
    } while (0)

static void test_ids(void **state) {
    ASSERT_REFUSED("tokenizer.ggml.add_bos_token is 2, allowed 0 to 1", changed.id = 2,
                   changed.id_key = "tokenizer.ggml.add_bos_token");
}

/* By Transformers' names; an id that is no token's counts as none. */
static void test_named_tokens(void **state) {
    static const struct {
        const char *key, *name;
    } cases[] = {{"unknown", "unk_token"},
                 {"padding", "pad_token"},
                 {"seperator", "sep_token"},
                 {"cls", "cls_token"},
                 {"mask", "mask_token"}};
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        char key[64];
        snprintf(key, sizeof(key), "tokenizer.ggml.%s_token_id", cases[i / 2].key);
        struct keys keys = good;
        struct fixture fixture = {0};
        struct error err = {0};
        size_t count;
        keys.id = i % 2 == 0 ? 1 : 99;
        keys.id_key = key;
        write_keys(&keys, &fixture.image);
        assert_int_equal(fixture_open_image(&fixture, &err), 0);
        const struct named_token *named = tokenizer_named_tokens(fixture.tokenizer, &count);
        assert_int_equal(count, 1 - i % 2);
        if (count > 0) {
            assert_string_equal(named[0].name, cases[i / 2].name);
            assert_int_equal(named[0].id, 1);
        }
        fixture_close(&fixture);
    }
}

/* What other readers of such files take for absent, and a type for normal. */
static void test_harmless_values(void **state) {
    ASSERT_ACCEPTED(1, 1, changed.bad_type = 0);
    ASSERT_ACCEPTED(1, 0, changed.id = 3);
    ASSERT_ACCEPTED(1, 0, changed.id = UINT32_MAX);
    ASSERT_ACCEPTED(1, 0, changed.id = 9, changed.id_key = "tokenizer.ggml.bos_token_id");
    ASSERT_ACCEPTED(1, 0, changed.id = 1, changed.id_key = "tokenizer.ggml.add_bos_token");
    /* Llama 3 prompts start with bos where there is one. */
    ASSERT_ACCEPTED(1, 1, changed.pre = "llama3");
    /* A merge of characters that stand for no byte never happens. */
    ASSERT_ACCEPTED(2, 1, changed.merge = "\xff\xff b");
}

static int64_t encode(const struct fixture_spec *spec, const char *text, unsigned flags,
                      int32_t out[16]) {
    struct fixture fixture;
    struct error err = {0};
    if (fixture_open(spec, &fixture, &err) != 0)
        fail_msg("%s", err.message);
    int64_t count = tokenizer_encode(fixture.tokenizer, text, strlen(text), flags, out, 16);
    fixture_close(&fixture);
    return count;
}

static void test_bos(void **state) {
    int32_t out[16];
    struct fixture_spec spec = {.bos = 258, .num_tokens = 4, .tokens = tokens};
    assert_int_equal(encode(&spec, "h", TOKENIZER_ADD_SPECIAL, out), 1);
    spec.add_bos = true;
    assert_int_equal(encode(&spec, "h", 0, out), 1);
    assert_int_equal(encode(&spec, "h", TOKENIZER_ADD_SPECIAL, out), 2);
    assert_int_equal(out[0], 258);
    assert_int_equal(out[1], 'h');
    assert_int_equal(encode(&spec, "", TOKENIZER_ADD_SPECIAL, out), 1);
    spec.add_bos = false;
    spec.pre = "llama-bpe";
    assert_int_equal(encode(&spec, "h", TOKENIZER_ADD_SPECIAL, out), 2);
}

/* Blanks behind an added token of Phi-3 belong to it, but not behind <s>. */
static void test_blanks_of_phi3(void **state) {
    int32_t out[16];
    struct fixture_spec spec = {.num_tokens = 4, .tokens = tokens};
    assert_int_equal(encode(&spec, "<e> h", TOKENIZER_PARSE_SPECIAL, out), 3);
    spec.architecture = "phi3";
    assert_int_equal(encode(&spec, "<e> h", TOKENIZER_PARSE_SPECIAL, out), 2);
    assert_int_equal(out[0], 259);
    assert_int_equal(out[1], 'h');
    assert_int_equal(encode(&spec, "<s> h", TOKENIZER_PARSE_SPECIAL, out), 3);
}

/* Llama 3's tokenizer takes a piece that is a token without asking the merges. */
static void test_ignore_merges(void **state) {
    int32_t out[16];
    struct fixture_spec spec = {
        .pre = "llama-bpe",
        .bos = 258,
        .num_tokens = 4,
        .tokens = tokens,
        .num_merges = 1,
        .merges = merges,
    };
    assert_int_equal(encode(&spec, "hel", 0, out), 1);
    assert_int_equal(out[0], 257);
    assert_int_equal(encode(&spec, "help", 0, out), 3);
    spec.pre = "qwen2";
    assert_int_equal(encode(&spec, "hel", 0, out), 2);
    assert_int_equal(out[0], 256);
    assert_int_equal(out[1], 'l');
}

static void test_duplicates_the_last_counts(void **state) {
    static const struct fixture_token twice[] = {{"he", 1}, {"he", 1}, {"ll", 1}, {"el", 1}};
    /* "e l" would come first, but its second mention has the worse rank. */
    static const char *const merges_twice[] = {"e l", "h e", "e l"};
    int32_t out[16];
    const struct fixture_spec spec = {
        .num_tokens = 4, .tokens = twice, .num_merges = 3, .merges = merges_twice};
    assert_int_equal(encode(&spec, "hel", 0, out), 2);
    assert_int_equal(out[0], 257);
    assert_int_equal(out[1], 'l');
}

static void test_a_missing_byte_is_left_out(void **state) {
    int32_t out[16];
    const struct fixture_spec spec = {
        .missing_byte = 'x', .num_tokens = 4, .tokens = tokens, .num_merges = 2, .merges = merges};
    assert_int_equal(encode(&spec, "xhxxelx", 0, out), 1);
    assert_int_equal(out[0], 257);
    assert_int_equal(encode(&spec, "x", 0, out), 0);
}

/* An added token is written as the text it matches, and merges may lead to it as well. */
static void test_added_tokens_are_text(void **state) {
    static const struct fixture_token added[] = {{"  ", 4}, {"é", 4}};
    static const char *const to_added[] = {"Ġ Ġ", "Ã ©"};
    int32_t out[16];
    const struct fixture_spec spec = {
        .num_tokens = 2, .tokens = added, .num_merges = 2, .merges = to_added};
    assert_int_equal(encode(&spec, "x   é", 0, out), 4);
    assert_int_equal(out[1], 256);
    assert_int_equal(out[2], ' ');
    assert_int_equal(out[3], 257);
}

static void test_a_special_token_has_a_limit(void **state) {
    char text[1026];
    struct fixture fixture;
    struct error err = {0};
    memset(text, 'a', sizeof(text));
    text[1025] = '\0';
    const struct fixture_token long_token[] = {{text, 3}};
    const struct fixture_spec spec = {.num_tokens = 1, .tokens = long_token};
    assert_int_equal(fixture_open(&spec, &fixture, &err), -1);
    assert_non_null(strstr(err.message, "token 256, an added token, has 1025 bytes"));
    fixture_close(&fixture);
    text[1024] = '\0';
    assert_int_equal(fixture_open(&spec, &fixture, &err), 0);
    fixture_close(&fixture);
}

static void test_close_accepts_null(void **state) {
    tokenizer_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_keys),
        cmocka_unit_test(test_unknown_kinds_are_named),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_named_tokens),
        cmocka_unit_test(test_harmless_values),
        cmocka_unit_test(test_blanks_of_phi3),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_duplicates_the_last_counts),
        cmocka_unit_test(test_a_missing_byte_is_left_out),
        cmocka_unit_test(test_added_tokens_are_text),
        cmocka_unit_test(test_a_special_token_has_a_limit),
        cmocka_unit_test(test_close_accepts_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
