/* Equality with Hugging Face's tokenizers on the committed cases of tokenizer_cases.txt, which
 * scripts/compare/check_tokenizer.py --write-cases makes. Its lines:
 *
 *   token TYPE TEXT              the vocabulary, in id order
 *   merge LEFT RIGHT             the merges, in rank order
 *   case PRE SPECIAL HEX ID...   text in hexadecimal ("-": empty) and its ids; SPECIAL 1: parsed
 */
#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"

#include "tests/unit/models/gguf_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#define MAX_LINES 8192
#define MAX_IDS 4096

static struct {
    size_t count;
    char *lines[MAX_LINES];
} cases;

static size_t count_lines(const char *kind) {
    size_t count = 0;
    for (size_t i = 0; i < cases.count; i++)
        count += strncmp(cases.lines[i], kind, strlen(kind)) == 0;
    return count;
}

/* What follows `kind` in line i, or NULL if the line is of another kind. */
static char *line_of(const char *kind, size_t i) {
    size_t length = strlen(kind);
    return strncmp(cases.lines[i], kind, length) == 0 ? cases.lines[i] + length : NULL;
}

static void write_vocabulary(const char *pre, struct gguf_writer *w) {
    gguf_put_header(w, 3, 0, 6);
    gguf_put_key_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_put_key_string(w, "tokenizer.ggml.pre", pre);
    gguf_put_key_u32(w, "tokenizer.ggml.bos_token_id", 0);
    gguf_put_key_array(w, "tokenizer.ggml.tokens", GGUF_STRING, count_lines("token "));
    for (size_t i = 0; i < cases.count; i++) {
        if (line_of("token ", i) != NULL)
            gguf_put_string(w, strchr(line_of("token ", i), ' ') + 1);
    }
    gguf_put_key_array(w, "tokenizer.ggml.token_type", GGUF_INT32, count_lines("token "));
    for (size_t i = 0; i < cases.count; i++) {
        if (line_of("token ", i) != NULL)
            gguf_put_u32(w, (uint32_t)strtol(line_of("token ", i), NULL, 10));
    }
    gguf_put_key_array(w, "tokenizer.ggml.merges", GGUF_STRING, count_lines("merge "));
    for (size_t i = 0; i < cases.count; i++) {
        if (line_of("merge ", i) != NULL)
            gguf_put_string(w, line_of("merge ", i));
    }
    gguf_pad(w, 32);
}

static size_t read_hex(const char *hex, char *out) {
    size_t length = 0;
    for (; hex[0] != ' ' && hex[0] != '\0' && hex[0] != '-'; hex += 2) {
        char digits[3] = {hex[0], hex[1], '\0'};
        out[length++] = (char)strtol(digits, NULL, 16);
    }
    return length;
}

/* `line` starts at SPECIAL. */
static void check_case(const struct tokenizer *tokenizer, const char *line) {
    char text[MAX_IDS];
    int32_t out[MAX_IDS];
    assert_in_range(strlen(line), 0, MAX_IDS * 2);
    unsigned flags = line[0] == '1' ? TOKENIZER_PARSE_SPECIAL : 0;
    size_t length = read_hex(line + 2, text);
    int64_t count = tokenizer_encode(tokenizer, text, length, flags, out, MAX_IDS);
    char *rest = strchr(line + 2, ' ');
    int64_t expected = 0;
    for (; rest != NULL && *rest != '\0'; expected++) {
        long id = strtol(rest, &rest, 10);
        if (expected >= count || out[expected] != id)
            fail_msg("token %d is not %ld in: %s", (int)expected, id, line);
    }
    assert_int_equal(count, expected);
}

/* The cases of a pre-tokenizer, with a file that has this or another name of it. */
static void check_name(const char *pre, const char *name) {
    struct gguf_writer image = {0};
    struct tensor_file *file = NULL;
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    size_t checked = 0;
    write_vocabulary(name, &image);
    assert_int_equal(tensor_file_open_memory(image.data, image.bytes, "cases", &file, &err), 0);
    const struct model model = {.file = file};
    if (tokenizer_open(&model, &tokenizer, &err) != 0)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < cases.count; i++) {
        const char *line = line_of("case ", i);
        if (line == NULL || strncmp(line, pre, strlen(pre)) != 0 || line[strlen(pre)] != ' ')
            continue;
        check_case(tokenizer, line + strlen(pre) + 1);
        checked++;
    }
    assert_in_range(checked, 100, MAX_LINES);
    tokenizer_close(tokenizer);
    tensor_file_close(file);
    gguf_finish(&image);
}

static void check_pretokenizer(const char *pre) {
    check_name(pre, pre);
}

static void test_gpt2(void **state) {
    check_pretokenizer("gpt-2");
}

static void test_smollm(void **state) {
    check_pretokenizer("smollm");
}

static void test_llama_bpe(void **state) {
    check_pretokenizer("llama-bpe");
}

static void test_qwen2(void **state) {
    check_pretokenizer("qwen2");
}

static void test_qwen35(void **state) {
    check_pretokenizer("qwen35");
}

static void test_olmo(void **state) {
    check_pretokenizer("olmo");
}

static void test_command_r(void **state) {
    check_pretokenizer("command-r");
}

static void test_dbrx(void **state) {
    check_pretokenizer("dbrx");
    check_name("dbrx", "glm4");
}

static void test_tekken(void **state) {
    check_pretokenizer("tekken");
}

static void test_gpt_4o(void **state) {
    check_pretokenizer("gpt-4o");
}

static void test_deepseek_coder(void **state) {
    check_pretokenizer("deepseek-coder");
}

static void test_deepseek_v3(void **state) {
    check_pretokenizer("deepseek-v3");
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
        cases.lines[cases.count++] = strdup(line);
    }
    free(line);
    fclose(file);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),           cmocka_unit_test(test_smollm),
        cmocka_unit_test(test_llama_bpe),      cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_qwen35),         cmocka_unit_test(test_olmo),
        cmocka_unit_test(test_command_r),      cmocka_unit_test(test_dbrx),
        cmocka_unit_test(test_tekken),         cmocka_unit_test(test_gpt_4o),
        cmocka_unit_test(test_deepseek_coder), cmocka_unit_test(test_deepseek_v3),
    };
    if (argc != 2 || read_cases(argv[1]) != 0) {
        fprintf(stderr, "usage: test_tokenizer_cases tokenizer_cases.txt\n");
        return 2;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < cases.count; i++)
        free(cases.lines[i]);
    return failed;
}
