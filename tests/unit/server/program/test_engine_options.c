#include "server/program/engine_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_read(const char *text, int32_t num_tokens, int32_t lookup_max,
                        int32_t lookup_min) {
    struct speculative_config config;
    struct error err = {0};
    if (engine_options_read_speculative(text, &config, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(config.num_speculative_tokens, num_tokens);
    assert_int_equal(config.prompt_lookup_max, lookup_max);
    assert_int_equal(config.prompt_lookup_min, lookup_min);
}

#define NGRAM(more) "{\"method\": \"ngram\", " more "}"

static void what_is_given_is_read(void **state) {
    assert_read(NULL, 0, 0, 0);
    assert_read(NGRAM("\"num_speculative_tokens\": 8, \"prompt_lookup_max\": 16, "
                      "\"prompt_lookup_min\": 2"),
                8, 16, 2);
    assert_read(NGRAM("\"num_speculative_tokens\": 16, \"prompt_lookup_max\": 32, "
                      "\"prompt_lookup_min\": 32"),
                16, 32, 32);
    assert_read("{\"prompt_lookup_min\": 1, \"num_speculative_tokens\": 1.0, \"method\": "
                "\"ngram\", \"prompt_lookup_max\": 1}",
                1, 1, 1);
}

static void lookups_default_as_in_vllm(void **state) {
    assert_read(NGRAM("\"num_speculative_tokens\": 3"), 3, 5, 5);
    assert_read(NGRAM("\"num_speculative_tokens\": 3, \"prompt_lookup_max\": 4"), 3, 4, 4);
    assert_read(NGRAM("\"num_speculative_tokens\": 3, \"prompt_lookup_min\": 7"), 3, 7, 7);
    assert_read(NGRAM("\"num_speculative_tokens\": 3, \"prompt_lookup_max\": null"), 3, 5, 5);
}

#define DRAFT(more) "{\"method\": \"draft_model\", " more "}"

static void assert_model(const char *text, const char *model) {
    struct speculative_config config;
    struct error err = {0};
    if (engine_options_read_speculative(text, &config, &err) != 0)
        fail_msg("%s", err.message);
    assert_string_equal(config.model, model);
}

/* A model without a method is a draft model, and n-grams are looked up as without one. */
static void a_draft_model_is_read(void **state) {
    assert_model(NULL, "");
    assert_model(NGRAM("\"num_speculative_tokens\": 3, \"model\": null"), "");
    assert_model(DRAFT("\"model\": \"a/b.gguf\", \"num_speculative_tokens\": 3"), "a/b.gguf");
    assert_model("{\"model\": \"ngram\", \"num_speculative_tokens\": 3}", "ngram");
    assert_read(DRAFT("\"model\": \"a\", \"num_speculative_tokens\": 3"), 3, 5, 5);
    assert_read(DRAFT("\"model\": \"a\", \"num_speculative_tokens\": 16, "
                      "\"prompt_lookup_max\": 8, \"prompt_lookup_min\": 2"),
                16, 8, 2);
}

/* By any of vLLM's names. */
static void a_layer_of_the_model_is_read(void **state) {
    static const char *const names[] = {"mtp", "deepseek_mtp", "glm4_moe_mtp"};
    struct speculative_config config;
    struct error err = {0};
    char text[128];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(text, sizeof(text), "{\"method\": \"%s\", \"num_speculative_tokens\": 2}",
                 names[i]);
        assert_int_equal(engine_options_read_speculative(text, &config, &err), 0);
        assert_true(config.is_mtp);
        assert_string_equal(config.model, "");
        assert_read(text, 2, 5, 5);
    }
    assert_int_equal(
        engine_options_read_speculative(NGRAM("\"num_speculative_tokens\": 3"), &config, &err), 0);
    assert_false(config.is_mtp);
}

/* As --record keeps it, with the path in place of the hub's name. */
static void what_is_written_is_read_again(void **state) {
    static const char *const texts[] = {
        NGRAM("\"num_speculative_tokens\": 3, \"prompt_lookup_max\": 4"),
        DRAFT("\"model\": \"a \\\"b\\\".gguf\", \"num_speculative_tokens\": 16"),
        "{\"method\": \"mtp\", \"num_speculative_tokens\": 2}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct speculative_config config, again;
        struct error err = {0};
        char *text = strdup(texts[i]);
        assert_int_equal(engine_options_read_speculative(text, &config, &err), 0);
        assert_int_equal(engine_options_write_speculative(&config, &text, &err), 0);
        assert_int_equal(engine_options_read_speculative(text, &again, &err), 0);
        assert_memory_equal(&config, &again, sizeof(config));
        free(text);
    }
}

static void assert_refused(const char *text, const char *message) {
    struct speculative_config config;
    struct error err = {0};
    assert_int_equal(engine_options_read_speculative(text, &config, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_string_equal(err.message, message);
}

static void mistakes_name_field_value_and_range(void **state) {
    assert_refused(NGRAM("\"num_speculative_tokens\": 17"),
                   "speculative-config: num_speculative_tokens must be an integer from 1 to 16, "
                   "not 17");
    assert_refused(NGRAM("\"num_speculative_tokens\": 0"),
                   "speculative-config: num_speculative_tokens must be an integer from 1 to 16, "
                   "not 0");
    assert_refused(NGRAM("\"num_speculative_tokens\": 2.5"),
                   "speculative-config: num_speculative_tokens must be an integer from 1 to 16, "
                   "not 2.5");
    assert_refused(NGRAM("\"num_speculative_tokens\": \"5\""),
                   "speculative-config: num_speculative_tokens must be an integer from 1 to 16, "
                   "not \"5\"");
    assert_refused("{\"method\": \"ngram\"}",
                   "speculative-config: num_speculative_tokens must be an integer from 1 to 16, "
                   "not missing");
    assert_refused(NGRAM("\"num_speculative_tokens\": 5, \"prompt_lookup_max\": 33"),
                   "speculative-config: prompt_lookup_max must be an integer from 1 to 32, not 33");
    assert_refused(NGRAM("\"num_speculative_tokens\": 5, \"prompt_lookup_min\": -1"),
                   "speculative-config: prompt_lookup_min must be an integer from 1 to 32, not -1");
    assert_refused(NGRAM("\"num_speculative_tokens\": 5, \"prompt_lookup_max\": 3, "
                         "\"prompt_lookup_min\": 4"),
                   "speculative-config: prompt_lookup_min must be at most prompt_lookup_max, which "
                   "is 3, not 4");
}

static void other_methods_and_keys_are_refused(void **state) {
    assert_refused(
        "{\"num_speculative_tokens\": 5}",
        "speculative-config: method must be \"ngram\", \"draft_model\" or \"mtp\", not missing");
    assert_refused(
        "{\"method\": \"eagle\", \"num_speculative_tokens\": 5}",
        "speculative-config: method must be \"ngram\", \"draft_model\" or \"mtp\", not \"eagle\"");
    assert_refused(
        "{\"method\": \"mtp\", \"model\": \"a\", \"num_speculative_tokens\": 5}",
        "speculative-config: model must be left out with \"method\": \"mtp\", not \"a\"");
    assert_refused("{\"method\": 1, \"num_speculative_tokens\": 5}",
                   "speculative-config: method must be a string, not 1");
    assert_refused(DRAFT("\"model\": \"a\", \"draft_tensor_parallel_size\": 1"),
                   "speculative-config: draft_tensor_parallel_size must not be given; known are "
                   "method, model, num_speculative_tokens, prompt_lookup_max and "
                   "prompt_lookup_min");
}

static void a_draft_model_is_named_or_left_out(void **state) {
    char text[2048], name[SPECULATIVE_MODEL_BYTES + 1];
    struct speculative_config config;
    struct error err = {0};
    assert_refused(NGRAM("\"num_speculative_tokens\": 5, \"model\": \"draft\""),
                   "speculative-config: model must be left out with \"method\": \"ngram\", not "
                   "\"draft\"");
    assert_refused(DRAFT("\"num_speculative_tokens\": 5"),
                   "speculative-config: model must be the draft model: a GGUF file, a folder, or "
                   "ORG/NAME of a hub, not missing");
    assert_refused(DRAFT("\"num_speculative_tokens\": 5, \"model\": \"\""),
                   "speculative-config: model must be the draft model: a GGUF file, a folder, or "
                   "ORG/NAME of a hub, not \"\"");
    assert_refused(DRAFT("\"num_speculative_tokens\": 5, \"model\": 7"),
                   "speculative-config: model must be a string, not 7");
    assert_refused(DRAFT("\"model\": \"a\""),
                   "speculative-config: num_speculative_tokens must be an integer from 1 to 16, "
                   "not missing");
    memset(name, 'a', SPECULATIVE_MODEL_BYTES);
    name[SPECULATIVE_MODEL_BYTES] = '\0';
    snprintf(text, sizeof(text), DRAFT("\"num_speculative_tokens\": 5, \"model\": \"%s\""), name);
    assert_int_equal(engine_options_read_speculative(text, &config, &err), -1);
    assert_non_null(strstr(err.message, "model must be the draft model"));
}

static void what_is_no_json_is_refused(void **state) {
    static const char *const texts[] = {"ngram",
                                        "[]",
                                        "{\"method\": \"ngram\"",
                                        "{} {}",
                                        "{\"method\": \"ngram\", \"method\": \"ngram\"}",
                                        "{\"method\": {\"a\": {\"b\": {}}}}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct speculative_config config;
        struct error err = {0};
        assert_int_equal(engine_options_read_speculative(texts[i], &config, &err), -1);
        assert_int_equal(err.code, ERROR_CONFIG);
        assert_memory_equal(err.message, "speculative-config: must be a JSON object: ", 43);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_given_is_read),
        cmocka_unit_test(lookups_default_as_in_vllm),
        cmocka_unit_test(a_draft_model_is_read),
        cmocka_unit_test(a_layer_of_the_model_is_read),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(a_draft_model_is_named_or_left_out),
        cmocka_unit_test(mistakes_name_field_value_and_range),
        cmocka_unit_test(other_methods_and_keys_are_refused),
        cmocka_unit_test(what_is_no_json_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
