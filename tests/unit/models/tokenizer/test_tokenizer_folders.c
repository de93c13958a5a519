/* Equality with Hugging Face's tokenizers on the small tokenizers of tokenizers/, one folder for
 * each family, which scripts/golden/make_tokenizers.py makes together with their cases. Lines of
 * cases.txt:
 *
 *   FLAGS TEXT DECODED ID...   FLAGS: s special tokens are parsed, a the template's are added;
 *                              texts in hexadecimal, "-" where empty, "=" the same as TEXT
 */
#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/tokenizer_spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES 8192
#define MAX_IDS 4096

static const char *folder;

static size_t read_hex(const char *word, char *out) {
    size_t length = 0;
    if (word[0] == '-')
        return 0;
    for (; word[0] != '\0'; word += 2) {
        char digits[3] = {word[0], word[1], '\0'};
        assert_in_range(length, 0, MAX_BYTES - 1);
        out[length++] = (char)strtol(digits, NULL, 16);
    }
    return length;
}

static void check_encoding(const struct tokenizer *tokenizer, const char *name, unsigned flags,
                           const char *text, size_t length, const int32_t *expected, size_t count) {
    int32_t ids[MAX_IDS];
    int64_t got = tokenizer_encode(tokenizer, text, length, flags, ids, MAX_IDS);
    assert_in_range(got, 0, MAX_IDS);
    for (size_t i = 0; i < count && i < (size_t)got; i++) {
        if (ids[i] != expected[i])
            fail_msg("%s: token %zu of \"%.*s\" is %d, not %d", name, i, (int)length, text, ids[i],
                     expected[i]);
    }
    if ((size_t)got != count)
        fail_msg("%s: \"%.*s\" has %d tokens, not %zu", name, (int)length, text, (int)got, count);
}

static void check_decoding(const struct tokenizer *tokenizer, const char *name, const int32_t *ids,
                           size_t count, const char *expected, size_t length) {
    char text[MAX_BYTES];
    size_t got = tokenizer_decode(tokenizer, ids, count, false, text, MAX_BYTES);
    assert_in_range(got, 0, MAX_BYTES);
    if (got != length || memcmp(text, expected, length) != 0)
        fail_msg("%s: \"%.*s\" is decoded as \"%.*s\"", name, (int)length, expected, (int)got,
                 text);
}

/* Cuts up `line`. */
static void check_case(const struct tokenizer *tokenizer, const char *name, char *line) {
    char text[MAX_BYTES], decoded[MAX_BYTES];
    int32_t ids[MAX_IDS];
    size_t count = 0;
    char *flags_word = strtok(line, " "), *text_word = strtok(NULL, " ");
    char *decoded_word = strtok(NULL, " ");
    assert_non_null(decoded_word);
    for (char *word = strtok(NULL, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        assert_in_range(count, 0, MAX_IDS - 1);
        ids[count++] = (int32_t)strtol(word, NULL, 10);
    }
    decoded_word[strcspn(decoded_word, "\n")] = '\0';
    unsigned flags = (strchr(flags_word, 's') != NULL ? TOKENIZER_PARSE_SPECIAL : 0) |
                     (strchr(flags_word, 'a') != NULL ? TOKENIZER_ADD_SPECIAL : 0);
    size_t length = read_hex(text_word, text);
    check_encoding(tokenizer, name, flags, text, length, ids, count);
    if (decoded_word[0] == '=') {
        check_decoding(tokenizer, name, ids, count, text, length);
    } else {
        size_t decoded_length = read_hex(decoded_word, decoded);
        check_decoding(tokenizer, name, ids, count, decoded, decoded_length);
    }
}

/* The last token of "gemma" is an added one, 864, that any text may become. */
static void test_a_model_with_fewer_tokens(void **state) {
    char path[PATH_MAX];
    struct model model = {.folder = path};
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    int32_t ids[16];
    snprintf(path, sizeof(path), "%s/gemma", folder);
    model.config.vocab_size = 865;
    assert_int_equal(tokenizer_open(&model, &tokenizer, &err), 0);
    assert_int_equal(tokenizer_encode(tokenizer, "<h1>", 4, 0, ids, 16), 1);
    assert_int_equal(ids[0], 864);
    tokenizer_close(tokenizer);

    model.config.vocab_size = 864;
    model.eos_tokens[0] = 3;
    model.num_eos_tokens = 1;
    assert_int_equal(tokenizer_open(&model, &tokenizer, &err), 0);
    assert_int_equal(tokenizer_vocab_size(tokenizer), 864);
    int64_t count = tokenizer_encode(tokenizer, "<h1>", 4, TOKENIZER_PARSE_SPECIAL, ids, 16);
    assert_in_range(count, 2, 16);
    for (int64_t i = 0; i < count; i++)
        assert_in_range(ids[i], 0, 863);
    tokenizer_close(tokenizer);

    model.config.vocab_size = 600;
    assert_int_equal(tokenizer_open(&model, &tokenizer, &err), -1);
    assert_int_equal(err.code, ERROR_MODEL);
    assert_non_null(strstr(err.message, "token 600 is beyond the model's vocabulary of 600"));
}

static struct tokenizer *open_folder(const char *name) {
    char path[PATH_MAX];
    struct tokenizer_spec spec;
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (tokenizer_spec_read_json(path, &spec, &err) != 0 ||
        tokenizer_create(&spec, &tokenizer, &err) != 0)
        fail_msg("%s", err.message);
    tokenizer_spec_finish(&spec);
    return tokenizer;
}

static void test_cases(void **state) {
    const char *name = *state;
    char path[PATH_MAX], *line = NULL;
    size_t capacity = 0, checked = 0;
    snprintf(path, sizeof(path), "%s/%s/cases.txt", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    struct tokenizer *tokenizer = open_folder(name);
    while (getline(&line, &capacity, file) > 0) {
        check_case(tokenizer, name, line);
        checked++;
    }
    free(line);
    fclose(file);
    tokenizer_close(tokenizer);
    assert_in_range(checked, 100, INT_MAX);
}

#define CASES(name)                                                                                \
    { name, test_cases, NULL, NULL, name }

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_with_fewer_tokens),
        CASES("llama2"),
        CASES("llama2-metaspace"),
        CASES("mistral-v3"),
        CASES("phi3"),
        CASES("gemma"),
        CASES("gpt2"),
        CASES("smollm"),
        CASES("command"),
        CASES("qwen2"),
        CASES("qwen3.5"),
        CASES("llama3"),
        CASES("tekken"),
        CASES("phi4"),
        CASES("o200k"),
        CASES("olmo2"),
        CASES("deepseek"),
        CASES("nfkc"),
        CASES("steps-bytes"),
        CASES("steps-characters"),
    };
    folder = argc > 1 ? argv[1] : "tests/unit/models/tokenizers";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
