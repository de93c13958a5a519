#include "server/program/draft_model.h"

#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MAX_TOKENS 8

/* A vocabulary of these tokens; "-": unused, under a name of its own. */
static struct tokenizer *make(const char *const *tokens) {
    static const char *const padding[] = {"[PAD0]", "[PAD1]", "[PAD2]", "[PAD3]",
                                          "[PAD4]", "[PAD5]", "[PAD6]", "[PAD7]"};
    struct text texts[MAX_TOKENS];
    uint8_t types[MAX_TOKENS];
    int32_t count = 0;
    for (; tokens[count] != NULL; count++) {
        bool is_unused = strcmp(tokens[count], "-") == 0;
        const char *text = is_unused ? padding[count] : tokens[count];
        texts[count] = (struct text){text, strlen(text)};
        types[count] = is_unused ? TOKEN_UNUSED : TOKEN_NORMAL;
    }
    const struct tokenizer_spec spec = {.alphabet = ALPHABET_CHARACTERS,
                                        .num_tokens = count,
                                        .tokens = texts,
                                        .types = types,
                                        .bos = -1,
                                        .unknown = -1};
    struct tokenizer *made;
    struct error err = {0};
    if (tokenizer_create(&spec, &made, &err) != 0)
        fail_msg("%s", err.message);
    return made;
}

#define TOKENS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* message: NULL: they are the same. */
static void assert_compared(const char *const *draft, const char *const *target,
                            const char *message) {
    struct tokenizer *a = make(draft), *b = make(target);
    struct error err = {0};
    int status = draft_model_compare("small.gguf", a, b, &err);
    tokenizer_close(a);
    tokenizer_close(b);
    assert_int_equal(status, message == NULL ? 0 : -1);
    if (message != NULL) {
        assert_int_equal(err.code, ERROR_CONFIG);
        assert_string_equal(err.message, message);
    }
}

static void padding_does_not_count(void **state) {
    assert_compared(TOKENS("a", "b"), TOKENS("a", "b"), NULL);
    assert_compared(TOKENS("a", "b", "-", "-"), TOKENS("a", "b"), NULL);
    assert_compared(TOKENS("a", "b", "-"), TOKENS("a", "b", "-", "-"), NULL);
    assert_compared(TOKENS("a", "-", "b"), TOKENS("a", "-", "b"), NULL);
}

static void the_first_token_that_differs_is_named(void **state) {
    assert_compared(TOKENS("a", "b", "c"), TOKENS("a", "x", "y"),
                    "speculative-config: model: token 1 is \"b\" in small.gguf, and \"x\" in the "
                    "model itself: both must have the same vocabulary");
    assert_compared(TOKENS("a", "-"), TOKENS("a", "b"),
                    "speculative-config: model: token 1 is \"[PAD1]\" in small.gguf, and \"b\" in "
                    "the model itself: both must have the same vocabulary");
}

static void a_further_token_is_named(void **state) {
    assert_compared(TOKENS("a", "b"), TOKENS("a", "b", "-", "c"),
                    "speculative-config: model: only the model itself has token 3, \"c\": both "
                    "must have the same vocabulary");
    assert_compared(TOKENS("a", "b", "c"), TOKENS("a", "b"),
                    "speculative-config: model: only small.gguf has token 2, \"c\": both must have "
                    "the same vocabulary");
}

static void none_is_no_mistake(void **state) {
    const struct draft_model none = {0};
    struct executor_config config = {.limits.window = 7};
    struct error err = {0};
    assert_int_equal(draft_model_check(&none, NULL, &err), 0);
    assert_null(draft_model_path(&none));
    draft_model_use(&none, &config);
    assert_null(config.draft_model);
    assert_int_equal(config.limits.window, 7);
}

/* Blocks are kept for whichever of the two looks back further. */
static void assert_window(int32_t of_draft, int32_t of_target, int32_t kept) {
    struct model model = {.config.num_layers = 1};
    model.config.layers[0].window = of_draft;
    const struct draft_model draft = {.config.model = "small.gguf", .model = &model};
    struct executor_config config = {.limits.window = of_target};
    draft_model_use(&draft, &config);
    assert_ptr_equal(config.draft_model, &model);
    assert_int_equal(config.limits.window, kept);
}

static void the_larger_window_counts(void **state) {
    assert_window(0, 0, 0);
    assert_window(0, 128, 0);
    assert_window(128, 0, 0);
    assert_window(64, 128, 128);
    assert_window(256, 128, 256);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_does_not_count),
        cmocka_unit_test(the_first_token_that_differs_is_named),
        cmocka_unit_test(a_further_token_is_named),
        cmocka_unit_test(none_is_no_mistake),
        cmocka_unit_test(the_larger_window_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
