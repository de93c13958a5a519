/* The table itself; that a running server keeps to it is in tests/e2e/api/test_unsupported.py. */
#include "server/api/fields/unknown_fields.h"

#include "server/api/chat/chat_body.h"
#include "server/api/completions/completion_body.h"
#include "server/api/fields/unknown_fields.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int read_one(const char *body, struct byte_buffer *names, struct api_error *err) {
    const struct json_table tables[] = {sampling_body_table(), completion_body_table()};
    cJSON *json = cJSON_Parse(body);
    assert_non_null(json);
    int result = unknown_fields_read(json, tables, 2, names, err);
    cJSON_Delete(json);
    return result;
}

static void expect_refused(const char *body, const char *param, const char *message) {
    struct byte_buffer names = {0};
    struct api_error err = {0};
    assert_int_equal(read_one(body, &names, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
    assert_string_equal(err.code, "unsupported_parameter");
    assert_string_equal(err.message, message);
    byte_buffer_finish(&names);
}

static void expect_ignored(const char *body, const char *expected) {
    struct byte_buffer names = {0};
    struct api_error err = {0};
    assert_int_equal(read_one(body, &names, &err), 0);
    byte_buffer_append(&names, "", 1);
    assert_string_equal(names.data, expected);
    byte_buffer_finish(&names);
}

static void test_messages(void **state) {
    expect_refused("{\"grammar_string\":\"root ::= 'a'\"}", "grammar_string",
                   "grammar_string is not supported: leave it out or leave it empty; use "
                   "structured_outputs or response_format");
    expect_refused("{\"a\":1,\"mirostat_mode\":2}", "mirostat_mode",
                   "mirostat_mode is not supported: leave it out or set it to 0; use mirostat");
    expect_refused("{\"n_predict\":-1}", "n_predict",
                   "n_predict is not supported: leave it out; use max_tokens");
    expect_refused("{\"endianness\":\"big\"}", "endianness",
                   "endianness is not supported: leave it out or set it to \"little\"");
}

static void test_neutral_values(void **state) {
    expect_ignored(
        "{\"tfs\":1.0,\"t_max_predict_ms\":-1,\"top_a\":0,\"lora\":[],\"grammar_string\":\"\","
        "\"vllm_xargs\":{},\"watermark\":false,\"do_sample\":true,\"n_predict\":null,"
        "\"endianness\":\"little\",\"thinking_token_budget\":-1}",
        "");
    expect_refused("{\"top_a\":false}", "top_a",
                   "top_a is not supported: leave it out or set it to 0");
    expect_refused("{\"lora\":[{}]}", "lora",
                   "lora is not supported: leave it out or leave it empty");
}

static void test_harmless_fields(void **state) {
    expect_ignored(
        "{\"metadata\":{},\"prompt\":\"a\",\"store\":true,\"adaptive_decay\":5,\"seed\":1,"
        "\"service_tier\":\"auto\",\"verbosity\":\"low\"}",
        "metadata,store,adaptive_decay,service_tier,verbosity");
}

/* One line per name, none of which an endpoint that makes text reads itself; but for this one,
 * which those of responses and messages refuse. */
#define OF_SOME_ENDPOINTS "kv_transfer_params"

static void test_table(void **state) {
    const struct json_table tables[] = {sampling_body_table(), completion_body_table()};
    size_t count;
    const struct unsupported_field *fields = unknown_fields_unsupported(&count);
    assert_true(count > 80);
    for (size_t i = 0; i < count; i++) {
        assert_true((fields[i].neutral == NEUTRAL_WORD) == (fields[i].word != NULL));
        if (json_fields_know(tables, 2, fields[i].name) &&
            strcmp(fields[i].name, OF_SOME_ENDPOINTS) != 0)
            fail_msg("%s is supported", fields[i].name);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(fields[j].name, fields[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_neutral_values),
        cmocka_unit_test(test_harmless_fields),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
