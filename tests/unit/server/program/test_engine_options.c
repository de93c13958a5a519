#include "server/program/engine_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
    assert_refused("{\"num_speculative_tokens\": 5}",
                   "speculative-config: method must be \"ngram\", not missing");
    assert_refused("{\"method\": \"eagle\", \"num_speculative_tokens\": 5}",
                   "speculative-config: method must be \"ngram\", not \"eagle\"");
    assert_refused("{\"method\": 1, \"num_speculative_tokens\": 5}",
                   "speculative-config: method must be a string, not 1");
    assert_refused(NGRAM("\"num_speculative_tokens\": 5, \"model\": \"draft\""),
                   "speculative-config: model must not be given; known are method, "
                   "num_speculative_tokens, prompt_lookup_max and prompt_lookup_min");
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
        cmocka_unit_test(mistakes_name_field_value_and_range),
        cmocka_unit_test(other_methods_and_keys_are_refused),
        cmocka_unit_test(what_is_no_json_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
