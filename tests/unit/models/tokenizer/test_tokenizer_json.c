/* What the reader of tokenizer.json makes of sections that are there, missing, wrong or hostile.
 * Each test changes one place of a small good file. That the tokens are right is shown by
 * test_tokenizer_folders. */
#include "models/files/json_file.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/tokenizer_json.h"
#include "models/tokenizer/vocabulary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char good[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
    "\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true},"
    "{\"id\":5,\"content\":\"<x>\",\"single_word\":true,\"lstrip\":true,\"rstrip\":true,"
    "\"normalized\":true,\"special\":false}],"
    "\"normalizer\":{\"type\":\"NFC\"},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
    "\"Regex\":\"a+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
    "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
    "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]}}},"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
    "\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
    "\"byte_fallback\":false,\"ignore_merges\":false,"
    "\"vocab\":{\"<s>\":0,\"a\":1,\"b\":2,\"ab\":3},\"merges\":[[\"a\",\"b\"]]}}";

/* The good file with the first `from` replaced. */
static char *changed(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    if (at == NULL)
        fail_msg("%s is not in the file", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static int read_text(const char *text, const char *config_text, struct tokenizer_spec *spec,
                     struct error *err) {
    cJSON *config = NULL, *root = json_memory_read(text, strlen(text), "t.json", err);
    if (root == NULL)
        return -1;
    if (config_text != NULL) {
        config = json_memory_read(config_text, strlen(config_text), "c.json", err);
        assert_non_null(config);
    }
    int status = tokenizer_spec_from_json("t.json", root, "c.json", config, spec, err);
    cJSON_Delete(root);
    cJSON_Delete(config);
    return status;
}

static void accept(const char *text, const char *config, struct tokenizer_spec *spec) {
    struct error err = {0};
    if (read_text(text, config, spec, &err) != 0)
        fail_msg("%s", err.message);
}

static void accept_change(const char *from, const char *to, struct tokenizer_spec *spec) {
    char *text = changed(good, from, to);
    accept(text, NULL, spec);
    free(text);
}

static void refuse_text(const char *text, const char *config, const char *why) {
    struct error err = {0};
    struct tokenizer_spec spec = {.num_tokens = 77};
    assert_int_equal(read_text(text, config, &spec, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_int_equal(spec.num_tokens, 77);
    if (strstr(err.message, why) == NULL || strchr(err.message, '\n') != NULL)
        fail_msg("\"%s\" is not in \"%s\"", why, err.message);
}

static void refuse(const char *from, const char *to, const char *why) {
    char *text = changed(good, from, to);
    refuse_text(text, NULL, why);
    free(text);
}

static bool is_text(struct text text, const char *expected) {
    return text.length == strlen(expected) && memcmp(text.data, expected, text.length) == 0;
}

static void test_good(void **state) {
    struct tokenizer_spec spec;
    accept(good, NULL, &spec);
    assert_int_equal(spec.alphabet, ALPHABET_BYTES);
    assert_int_equal(spec.num_tokens, 6);
    assert_true(is_text(spec.tokens[3], "ab"));
    assert_int_equal(spec.tokens[4].length, 0);
    assert_int_equal(spec.types[4], TOKEN_UNUSED);
    assert_true(is_text(spec.tokens[5], "<x>"));
    assert_int_equal(spec.types[0], TOKEN_CONTROL);
    assert_int_equal(spec.types[1], TOKEN_NORMAL);
    assert_int_equal(spec.types[5], TOKEN_USER_DEFINED);
    assert_int_equal(spec.num_merges, 1);
    assert_true(is_text(spec.merges[0].left, "a") && is_text(spec.merges[0].right, "b"));
    assert_int_equal(spec.num_added, 2);
    assert_true(spec.added[0].special && !spec.added[0].normalized && !spec.added[0].lstrip);
    assert_true(!spec.added[1].special && spec.added[1].normalized && spec.added[1].lstrip &&
                spec.added[1].rstrip && spec.added[1].single_word);
    assert_int_equal(spec.num_normalizers, 1);
    assert_int_equal(spec.num_pretokenizers, 2);
    assert_true(spec.pretokenizers[0].pattern_is_regex);
    assert_int_equal(spec.num_prefix, 1);
    assert_int_equal(spec.num_suffix, 0);
    assert_int_equal(spec.unknown, -1);
    assert_int_equal(spec.bos, -1);
    tokenizer_spec_finish(&spec);
}

static void test_null_and_missing_sections(void **state) {
    struct tokenizer_spec spec;
    accept_change("\"added_tokens\"", "\"added\"", &spec);
    assert_int_equal(spec.num_added, 0);
    assert_int_equal(spec.num_tokens, 4);
    tokenizer_spec_finish(&spec);
    accept_change("\"normalizer\":{\"type\":\"NFC\"}", "\"normalizer\":null", &spec);
    assert_int_equal(spec.num_normalizers, 0);
    tokenizer_spec_finish(&spec);
    accept_change("\"post_processor\"", "\"p\"", &spec);
    assert_int_equal(spec.num_prefix, 0);
    tokenizer_spec_finish(&spec);
    accept_change("\"decoder\"", "\"d\"", &spec);
    assert_false(spec.space_replacement);
    tokenizer_spec_finish(&spec);
    refuse("\"model\"", "\"m\"", "t.json: model is missing");
    refuse("\"pre_tokenizer\"", "\"p\"", "decoder and pre_tokenizer do not agree on ByteLevel");
}

static void test_unknown_types_are_named(void **state) {
    refuse("\"BPE\"", "\"Unigram\"", "model.type is \"Unigram\", supported are BPE");
    refuse("\"BPE\"", "\"WordPiece\"", "\"WordPiece\"");
    refuse("\"NFC\"", "\"Precompiled\"",
           "normalizer.type is \"Precompiled\", supported are Sequence, Strip, Prepend, Replace, "
           "Lowercase, NFC, NFKC");
    refuse("\"Split\"", "\"UnicodeScripts\"",
           "pre_tokenizer.type is \"UnicodeScripts\", supported are Sequence, Split");
    refuse("\"TemplateProcessing\"", "\"T\"", "post_processor.type is \"T\", supported are");
    refuse("\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"BPEDecoder\"",
           "decoder.type is \"BPEDecoder\", supported are Sequence, ByteLevel");
    refuse("\"Isolated\"", "\"isolated\"", "pre_tokenizer.behavior is \"isolated\", supported are");
    refuse("{\"type\":\"NFC\"}", "{}", "normalizer.type is missing");
    refuse("{\"type\":\"NFC\"}", "\"NFC\"", "normalizer.type is missing");
    refuse("{\"type\":\"NFC\"}", "{\"type\":7}", "normalizer.type is not a string");
}

static void test_model_flags(void **state) {
    struct tokenizer_spec spec;
    accept_change("\"dropout\":null", "\"dropout\":0.0", &spec);
    tokenizer_spec_finish(&spec);
    accept_change("\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"\"", &spec);
    tokenizer_spec_finish(&spec);
    accept_change("\"ignore_merges\":false", "\"ignore_merges\":true", &spec);
    assert_true(spec.ignore_merges);
    tokenizer_spec_finish(&spec);
    accept_change("\"unk_token\":null", "\"unk_token\":\"b\"", &spec);
    assert_int_equal(spec.unknown, 2);
    assert_int_equal(spec.types[2], TOKEN_UNKNOWN);
    tokenizer_spec_finish(&spec);
    accept_change("\"type\":\"BPE\",", "", &spec);
    tokenizer_spec_finish(&spec);
    refuse("\"dropout\":null", "\"dropout\":0.1", "model.dropout is set");
    refuse("\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"",
           "model.continuing_subword_prefix is set");
    refuse("\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
           "model.end_of_word_suffix is set");
    refuse("\"fuse_unk\":false", "\"fuse_unk\":1", "model.fuse_unk is neither true nor false");
    refuse("\"unk_token\":null", "\"unk_token\":\"u\"", "model.unk_token \"u\" is not in");
    refuse("\"unk_token\":null", "\"unk_token\":{}", "model.unk_token is not a string");
    refuse("\"byte_fallback\":false", "\"byte_fallback\":\"no\"", "model.byte_fallback");
}

static void test_vocabulary(void **state) {
    static const char vocab[] = "{\"<s>\":0,\"a\":1,\"b\":2,\"ab\":3}";
    refuse(vocab, "[]", "model.vocab is not an object");
    refuse(vocab, "null", "model.vocab is missing");
    refuse(vocab, "{}", "model.vocab has no token");
    refuse("\"ab\":3", "\"ab\":2", "tokens \"b\" and \"ab\" have both id 2");
    refuse("\"ab\":3", "\"ab\":-1", "the id of token \"ab\" is not an integer");
    refuse("\"ab\":3", "\"ab\":3.5", "the id of token \"ab\" is not an integer");
    refuse("\"ab\":3", "\"ab\":\"3\"", "the id of token \"ab\" is not an integer");
    refuse("\"ab\":3", "\"ab\":1e300", "the id of token \"ab\" is not an integer");
    refuse("\"ab\":3", "\"ab\":4194304", "the id of token \"ab\" is not an integer");
    refuse("\"ab\":3", "\"ab\":4194303", "id 4194303 is too large for 4 tokens");
    refuse("\"ab\":3", "\"ab\":3,\"ab\":4", "is not valid JSON");
}

/* Whoever makes a vocabulary cannot know which of its tokens collide. */
static void test_hashes_differ(void **state) {
    struct tokenizer_spec spec;
    struct token_index a = {0}, b = {0};
    accept(good, NULL, &spec);
    assert_true(token_index_build(&a, &spec));
    assert_true(token_index_build(&b, &spec));
    assert_int_not_equal(a.seed, b.seed);
    assert_int_equal(token_index_find(&a, &spec, "ab", 2), 3);
    assert_int_equal(token_index_find(&b, &spec, "ab", 2), 3);
    free(a.slots);
    free(b.slots);
    tokenizer_spec_finish(&spec);
}

static void test_merges(void **state) {
    struct tokenizer_spec spec;
    accept_change("[[\"a\",\"b\"]]", "[\"a b\"]", &spec);
    assert_true(is_text(spec.merges[0].left, "a") && is_text(spec.merges[0].right, "b"));
    tokenizer_spec_finish(&spec);
    accept_change("[[\"a\",\"b\"]]", "[\"#version: 0.2\",\"a b\"]", &spec);
    assert_int_equal(spec.num_merges, 1);
    tokenizer_spec_finish(&spec);
    accept_change("[[\"a\",\"b\"]]", "[]", &spec);
    assert_int_equal(spec.num_merges, 0);
    tokenizer_spec_finish(&spec);
    refuse("[[\"a\",\"b\"]]", "null", "model.merges is missing");
    refuse("[[\"a\",\"b\"]]", "{}", "model.merges is not a list");
    refuse("[[\"a\",\"b\"]]", "[[\"a\",\"b\"],\"ab\"]", "merge 1 is neither");
    refuse("[[\"a\",\"b\"]]", "[\"a b c\"]", "merge 0 is neither");
    refuse("[[\"a\",\"b\"]]", "[[\"a\"]]", "merge 0 is neither");
    refuse("[[\"a\",\"b\"]]", "[[\"a\",1]]", "merge 0 is neither");
    refuse("[[\"a\",\"b\"]]", "[[\"a\",\"b\",\"c\"]]", "merge 0 is neither");
    refuse("[[\"a\",\"b\"]]", "[7]", "merge 0 is neither");
}

static void test_added_tokens(void **state) {
    refuse("\"id\":5,", "", "added_tokens[1].id is missing");
    refuse("\"id\":5", "\"id\":-5", "added_tokens[1].id is no such integer");
    refuse("\"id\":5", "\"id\":\"5\"", "added_tokens[1].id is no such integer");
    refuse("\"id\":5", "\"id\":4194303", "id 4194303 is too large");
    refuse("\"id\":5", "\"id\":3", "id 3 of \"<x>\" is that of token \"ab\"");
    refuse("\"id\":5,\"content\":\"<x>\"", "\"id\":0,\"content\":\"<s>\"",
           "id 0 is in the list twice");
    refuse("\"id\":5,\"content\":\"<x>\"", "\"id\":5,\"content\":\"ab\"", "has id 5, elsewhere 3");
    refuse("\"content\":\"<x>\",", "", "added_tokens[1].content is missing");
    refuse("\"content\":\"<x>\"", "\"content\":\"\"", "added_tokens[1].content is empty");
    refuse("\"special\":false", "\"special\":0", "added_tokens[1].special is neither");
    refuse("\"added_tokens\":[", "\"added_tokens\":[[],", "added_tokens[0] is not an object");
    refuse("\"added_tokens\":[", "\"added_tokens\":{},\"x\":[", "added_tokens is not a list");
}

static void test_steps(void **state) {
    struct tokenizer_spec spec;
    accept_change("{\"type\":\"NFC\"}",
                  "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\",\"strip_left\":true,"
                  "\"strip_right\":false},{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                  "\"Prepend\",\"prepend\":\"_\"}]},{\"type\":\"Replace\",\"pattern\":{\"String\":"
                  "\" \"},\"content\":\"x\"},{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"}]}",
                  &spec);
    assert_int_equal(spec.num_normalizers, 5);
    assert_int_equal(spec.normalizers[0].kind, NORMALIZER_STRIP);
    assert_true(spec.normalizers[0].left && !spec.normalizers[0].right);
    assert_true(is_text(spec.normalizers[1].content, "_"));
    assert_true(is_text(spec.normalizers[2].pattern, " ") &&
                is_text(spec.normalizers[2].content, "x"));
    assert_int_equal(spec.normalizers[3].kind, NORMALIZER_NFKC);
    assert_int_equal(spec.normalizers[4].kind, NORMALIZER_LOWERCASE);
    tokenizer_spec_finish(&spec);
    refuse("{\"type\":\"NFC\"}",
           "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}",
           "normalizer.pattern is a regex");
    refuse("{\"type\":\"NFC\"}", "{\"type\":\"Prepend\"}", "normalizer.prepend is missing");
    refuse("{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":{}}",
           "normalizer.normalizers is not a list");
    refuse("{\"Regex\":\"a+\"}", "\"a+\"", "pre_tokenizer.pattern is neither");
    refuse("{\"Regex\":\"a+\"}", "{\"Regex\":\"a\",\"String\":\"b\"}", "pattern is neither");
    refuse("{\"Regex\":\"a+\"}", "{\"Regex\":\"\"}", "pre_tokenizer.pattern is empty");
    refuse("{\"Regex\":\"a+\"}", "{\"Regex\":[]}", "pre_tokenizer.Regex is not a string");
    refuse("\"invert\":false", "\"invert\":\"\"", "pre_tokenizer.invert");
    refuse("\"use_regex\":false}", "\"use_regex\":false},{\"type\":\"Digits\"}",
           "ByteLevel is not the last step");
}

static void test_too_many_steps(void **state) {
    char many[2048] = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}";
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++)
        strcat(many, ",{\"type\":\"NFC\"}");
    strcat(many, "]}");
    refuse("{\"type\":\"NFC\"}", many, "normalizer has more than the 16 steps supported");
}

static void test_metaspace(void **state) {
    static const char steps[] = "[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a+\"},\"behavior\":"
                                "\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_"
                                "prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]";
    static const char decoder[] = "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true";
    char *text =
        changed(good, decoder, "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"");
    char *first = changed(text, steps,
                          "[{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":"
                          "\"first\",\"split\":false}]");
    char *wrong = changed(text, steps, "[{\"type\":\"Metaspace\",\"replacement\":\"_\"}]");
    char *never = changed(text, steps,
                          "[{\"type\":\"Metaspace\",\"replacement\":\"\u2581\","
                          "\"add_prefix_space\":false}]");
    struct tokenizer_spec spec;
    accept(first, NULL, &spec);
    assert_int_equal(spec.alphabet, ALPHABET_CHARACTERS);
    assert_int_equal(spec.pretokenizers[0].prepend, PREPEND_FIRST);
    assert_false(spec.pretokenizers[0].split);
    assert_true(spec.space_replacement);
    assert_int_equal(spec.strip_leading_spaces, 1);
    tokenizer_spec_finish(&spec);
    refuse_text(wrong, NULL, "pre_tokenizer.replacement is \"_\"");
    refuse_text(never, NULL, "add_prefix_space is false and prepend_scheme not \"never\"");
    free(text);
    free(first);
    free(wrong);
    free(never);
}

static void test_template(void **state) {
    struct tokenizer_spec spec;
    accept_change(
        "\"post_processor\":{",
        "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":true,\"trim_offsets\":false},{\"type\":\"BertProcessing\","
        "\"sep\":[\"b\",2],\"cls\":[\"a\",1]},{\"type\":\"RobertaProcessing\",\"sep\":["
        "\"ab\",3],\"cls\":[\"<s>\",0]}]},\"x\":{",
        &spec);
    assert_int_equal(spec.num_prefix, 2);
    assert_int_equal(spec.prefix[0], 0);
    assert_int_equal(spec.prefix[1], 1);
    assert_int_equal(spec.num_suffix, 2);
    assert_int_equal(spec.suffix[0], 2);
    assert_int_equal(spec.suffix[1], 3);
    tokenizer_spec_finish(&spec);
    refuse("\"ids\":[0]", "\"ids\":[6]", "post_processor: an id is not an integer of 0 to 5");
    refuse("\"ids\":[0]", "\"ids\":[0,0,0,0,0,0,0,0,0]", "more than 8 tokens at one side");
    refuse("\"ids\":[0]", "\"ids\":0", "post_processor.special_tokens.ids is not a list");
    refuse("\"special_tokens\":{\"<s>\"", "\"special_tokens\":{\"<t>\"",
           "post_processor.special_tokens has no \"<s>\"");
    refuse("{\"Sequence\":{\"id\":\"A\"", "{\"Sequence\":{\"id\":\"B\"",
           "other texts than one \"A\"");
    refuse(",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", "", "post_processor.single has no text");
    refuse("{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", "{}", "a piece is neither");
    refuse("\"single\"", "\"s\"", "post_processor.single is missing");
}

static void test_long_templates(void **state) {
    static const char piece[] = "{\"SpecialToken\":{\"id\":\"e\"}},";
    char *many = calloc(64 * 1024, 1);
    assert_non_null(many);
    strcpy(many, "\"single\":[");
    for (int i = 0; i < 63; i++)
        strcat(many, piece);
    refuse("\"single\":[", many, "post_processor.single has more than 64 pieces");
    size_t used = (size_t)sprintf(many, "\"special_tokens\":{");
    for (int i = 0; i < 4096; i++)
        used += (size_t)sprintf(many + used, "\"%x\":[],", (unsigned)i);
    refuse("\"special_tokens\":{", many, "special_tokens has more than 4096 entries");
    free(many);
}

static void test_decoder(void **state) {
    static const char decoder[] = "\"decoder\":{\"type\":\"ByteLevel\"";
    static const struct {
        const char *to, *why;
    } cases[] = {
        {"\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0",
         "Strip is not of spaces at the start of the fused text"},
        {"\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0",
         "decoder.start is no such integer"},
        {"\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"",
         "Replace is not of"},
        {"\"decoder\":{\"type\":\"Fuse\"", "do not agree on ByteLevel"},
        {"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},{\"type\":"
         "\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"}]",
         "ByteLevel stands with Replace or Strip"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        refuse(decoder, cases[i].to, cases[i].why);
}

static void test_config(void **state) {
    struct tokenizer_spec spec;
    accept(good,
           "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"b\"},\"add_bos_token\":false,"
           "\"add_eos_token\":true}",
           &spec);
    assert_int_equal(spec.bos, 0);
    assert_int_equal(spec.num_eos, 1);
    assert_int_equal(spec.eos[0], 2);
    assert_int_equal(spec.num_prefix, 0);
    assert_int_equal(spec.num_suffix, 1);
    assert_int_equal(spec.suffix[0], 2);
    assert_int_equal(spec.num_added, 3);
    tokenizer_spec_finish(&spec);
    accept(good, "{\"pad_token\":\"ab\"}", &spec);
    assert_int_equal(spec.types[3], TOKEN_CONTROL);
    tokenizer_spec_finish(&spec);
    accept(good,
           "{\"pad_token\":\"ab\",\"unk_token\":\"not there\","
           "\"additional_special_tokens\":[\"b\",{\"content\":\"a\"},\"nor there\"]}",
           &spec);
    assert_int_equal(spec.num_named, 3);
    assert_string_equal(spec.named[0].name, "pad_token");
    assert_int_equal(spec.named[0].id, 3);
    assert_string_equal(spec.named[1].name, "additional_special_tokens");
    assert_int_equal(spec.named[1].id, 2);
    assert_string_equal(spec.named[2].name, "additional_special_tokens");
    assert_int_equal(spec.named[2].id, 1);
    tokenizer_spec_finish(&spec);
    accept(good, "{\"bos_token\":null,\"pad_token\":\"not there\"}", &spec);
    assert_int_equal(spec.bos, -1);
    assert_int_equal(spec.num_prefix, 1);
    tokenizer_spec_finish(&spec);
    accept(good,
           "{\"added_tokens_decoder\":{\"5\":{\"content\":\"<x>\",\"special\":true},\"6\":{"
           "\"content\":\"<y>\",\"rstrip\":true}},\"additional_special_tokens\":[\"<y>\"]}",
           &spec);
    assert_int_equal(spec.num_tokens, 7);
    assert_int_equal(spec.num_added, 3);
    assert_true(spec.added[1].special && !spec.added[1].lstrip && !spec.added[1].normalized);
    assert_true(spec.added[2].special && spec.added[2].rstrip);
    tokenizer_spec_finish(&spec);
    refuse_text(good, "{\"bos_token\":7}", "c.json: bos_token is neither a string nor an object");
    accept(good, "{\"bos_token\":\"\",\"eos_token\":\"e\",\"add_eos_token\":true}", &spec);
    assert_int_equal(spec.bos, -1);
    assert_int_equal(spec.num_eos + spec.num_suffix, 0);
    tokenizer_spec_finish(&spec);
    refuse_text(good, "{\"add_bos_token\":1}", "add_bos_token is neither true nor false");
    refuse_text(good, "{\"added_tokens_decoder\":[]}",
                "c.json: added_tokens_decoder is not an object");
    refuse_text(good, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<x>\"}}}",
                "c.json: added_tokens_decoder[\"x\"]: the key is not an id");
    refuse_text(good, "{\"added_tokens_decoder\":{\"3\":{\"content\":\"<x>\"}}}",
                "c.json: added_tokens_decoder[\"3\"]: id 3 of \"<x>\" is that of token \"ab\"");
}

/* A byte of the vocabulary that is named as a special token stays one that text is made of. */
static void test_special_symbols_stay_text(void **state) {
    static const char as_added[] =
        "\"added_tokens\":[{\"id\":2,\"content\":\"b\",\"special\":true},";
    char *listed = changed(good, "\"added_tokens\":[", as_added);
    const char *const files[] = {good, listed};
    for (size_t i = 0; i < 2; i++) {
        struct tokenizer_spec spec;
        struct tokenizer *tokenizer = NULL;
        struct error err = {0};
        int32_t ids[8];
        accept(files[i], "{\"pad_token\":\"b\"}", &spec);
        assert_int_equal(spec.num_added, 3);
        assert_int_equal(tokenizer_create(&spec, &tokenizer, &err), 0);
        assert_int_equal(tokenizer_encode(tokenizer, "bab", 3, 0, ids, 8), 3);
        assert_int_equal(ids[0], 2);
        assert_int_equal(ids[2], 2);
        assert_int_equal(tokenizer_encode(tokenizer, "b", 1, TOKENIZER_PARSE_SPECIAL, ids, 8), 1);
        assert_int_equal(ids[0], 2);
        tokenizer_close(tokenizer);
        tokenizer_spec_finish(&spec);
    }
    free(listed);
}

static void write_file(const char *folder, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void test_folder(void **state) {
    char folder[] = "/tmp/test_tokenizer_json_XXXXXX", path[256];
    struct tokenizer_spec spec;
    struct error err = {0};
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tokenizer_spec_read_json(folder, &spec, &err), -1);
    assert_non_null(strstr(err.message, "tokenizer.json"));
    write_file(folder, "tokenizer.json", good);
    assert_int_equal(tokenizer_spec_read_json(folder, &spec, &err), 0);
    assert_int_equal(spec.num_eos, 0);
    tokenizer_spec_finish(&spec);
    write_file(folder, "tokenizer_config.json", "{\"eos_token\":\"<s>\"}");
    assert_int_equal(tokenizer_spec_read_json(folder, &spec, &err), 0);
    assert_int_equal(spec.num_eos, 1);
    tokenizer_spec_finish(&spec);
    write_file(folder, "tokenizer_config.json", "{");
    assert_int_equal(tokenizer_spec_read_json(folder, &spec, &err), -1);
    assert_non_null(strstr(err.message, "tokenizer_config.json"));
    snprintf(path, sizeof(path), "%s/tokenizer_config.json", folder);
    unlink(path);
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    unlink(path);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_null_and_missing_sections),
        cmocka_unit_test(test_unknown_types_are_named),
        cmocka_unit_test(test_model_flags),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_hashes_differ),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_too_many_steps),
        cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_template),
        cmocka_unit_test(test_long_templates),
        cmocka_unit_test(test_decoder),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_special_symbols_stay_text),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
