#include "server/api/call/endpoints.h"

#include "tests/unit/server/api/chat_fixture.h"
#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static char *const names[] = {"m", "ali\"as"};
static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 64},
    .sampling = SAMPLING_SETTINGS_NEUTRAL,
    .model_names = names,
    .num_model_names = 2,
    .created = 1700000000,
};

static void expect_reply(api_transform *endpoint, const char *body, const char *expected) {
    struct byte_buffer out = {0}, ignored = {0};
    struct api_error err = {0};
    if (endpoint(&context, body, strlen(body), &out, &ignored, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    assert_int_equal(ignored.length, 0);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
}

static void expect_error(api_transform *endpoint, const char *body, int status, const char *param) {
    struct byte_buffer out = {0}, ignored = {0};
    struct api_error err = {0};
    if (endpoint(&context, body, strlen(body), &out, &ignored, &err) == 0)
        fail_msg("accepted %s", body);
    assert_int_equal(err.status, status);
    assert_string_equal(err.param, param);
    assert_int_equal(out.length, 0);
    byte_buffer_finish(&out);
}

static void tokenize_answers_in_vllms_shape(void **state) {
    expect_reply(tokenize_endpoint_encode, "{\"prompt\":\"a b\"}",
                 "{\"count\":4,\"max_model_len\":64,\"tokens\":[256,97,32,98],"
                 "\"token_strs\":null}");
    expect_reply(tokenize_endpoint_encode,
                 "{\"model\":\"m\",\"prompt\":\"a b\",\"add_special_tokens\":false,"
                 "\"return_token_strs\":true}",
                 "{\"count\":3,\"max_model_len\":64,\"tokens\":[97,32,98],"
                 "\"token_strs\":[\"a\",\"\xC4\xA0\",\"b\"]}");
    expect_reply(tokenize_endpoint_encode, "{\"prompt\":\"a</s>\"}",
                 "{\"count\":3,\"max_model_len\":64,\"tokens\":[256,97,257],"
                 "\"token_strs\":null}");
    expect_reply(tokenize_endpoint_encode, "{\"prompt\":\"</s>\",\"parse_special\":false}",
                 "{\"count\":5,\"max_model_len\":64,\"tokens\":[256,60,47,115,62],"
                 "\"token_strs\":null}");
    expect_reply(tokenize_endpoint_encode, "{\"prompt\":\"\",\"add_special_tokens\":false}",
                 "{\"count\":0,\"max_model_len\":64,\"tokens\":[],\"token_strs\":null}");
}

static void tokenize_answers_in_llama_cpps_shape(void **state) {
    expect_reply(tokenize_endpoint_encode, "{\"content\":\"ab\"}", "{\"tokens\":[97,98]}");
    expect_reply(tokenize_endpoint_encode, "{\"content\":\"a<s>\"}", "{\"tokens\":[97,256]}");
    expect_reply(tokenize_endpoint_encode, "{\"content\":\"a<s>\",\"parse_special\":false}",
                 "{\"tokens\":[97,60,115,62]}");
    expect_reply(tokenize_endpoint_encode,
                 "{\"content\":\"a\",\"add_special\":true,\"with_pieces\":true}",
                 "{\"tokens\":[{\"id\":256,\"piece\":\"<s>\"},{\"id\":97,\"piece\":\"a\"}]}");
}

static void tokenize_takes_texts_beyond_the_context(void **state) {
    struct byte_buffer body = {0}, out = {0}, ignored = {0};
    struct api_error err;
    byte_buffer_append_text(&body, "{\"prompt\":\"");
    for (int i = 0; i < 10000; i++)
        byte_buffer_append_text(&body, "x");
    byte_buffer_append_text(&body, "\"}");
    assert_int_equal(
        tokenize_endpoint_encode(&context, body.data, body.length, &out, &ignored, &err), 0);
    assert_memory_equal(out.data, "{\"count\":10001,", 15);
    byte_buffer_finish(&body);
    byte_buffer_finish(&out);
}

static void tokenize_refuses_what_it_cannot_do(void **state) {
    expect_error(tokenize_endpoint_encode, "{}", 400, "prompt");
    expect_error(tokenize_endpoint_encode, "{\"prompt\":1}", 400, "prompt");
    expect_error(tokenize_endpoint_encode, "{\"prompt\":[\"a\"]}", 400, "prompt");
    expect_error(tokenize_endpoint_encode, "{\"prompt\":\"a\",\"add_special_tokens\":1}", 400,
                 "add_special_tokens");
    expect_error(tokenize_endpoint_encode, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                 400, ""); /* no chat template */
    expect_error(tokenize_endpoint_encode, "{\"messages\":[]}", 400, "messages");
    expect_error(tokenize_endpoint_encode, "{\"prompt\":\"a\",\"content\":\"a\"}", 400, "content");
    expect_error(tokenize_endpoint_encode, "{\"prompt\":\"a\",\"messages\":[]}", 400, "prompt");
    expect_error(tokenize_endpoint_encode, "{\"prompt\":\"a\",\"with_pieces\":true}", 400,
                 "with_pieces");
    expect_error(tokenize_endpoint_encode, "{\"prompt\":\"a\",\"tools\":[]}", 400, "tools");
    expect_error(tokenize_endpoint_encode, "{\"content\":\"a\",\"return_token_strs\":true}", 400,
                 "return_token_strs");
    expect_error(tokenize_endpoint_encode, "{\"messages\":[],\"parse_special\":true}", 400,
                 "parse_special");
    expect_error(tokenize_endpoint_encode, "{\"prompt\":\"a\",\"model\":\"x\"}", 404, "model");
    expect_error(tokenize_endpoint_encode, "[\"a\"]", 400, "");
}

/* vLLM's name of the text, and llama.cpp's. */
#define TEXT(text) "{\"prompt\":\"" text "\",\"content\":\"" text "\"}"

static void detokenize_joins_pieces(void **state) {
    expect_reply(tokenize_endpoint_decode, "{\"tokens\":[256,258,259,34]}",
                 TEXT("<s>hello world\\\""));
    expect_reply(tokenize_endpoint_decode, "{\"tokens\":[256,258],\"skip_special_tokens\":true}",
                 TEXT("hello"));
    expect_reply(tokenize_endpoint_decode, "{\"tokens\":[226,130,172]}", TEXT("\xE2\x82\xAC"));
    expect_reply(tokenize_endpoint_decode, "{\"tokens\":[226]}", TEXT("\xEF\xBF\xBD"));
    expect_reply(tokenize_endpoint_decode, "{\"model\":\"m\",\"tokens\":[]}", TEXT(""));
}

static void detokenize_refuses_bad_ids(void **state) {
    expect_error(tokenize_endpoint_decode, "{}", 400, "tokens");
    expect_error(tokenize_endpoint_decode, "{\"tokens\":\"a\"}", 400, "tokens");
    expect_error(tokenize_endpoint_decode, "{\"tokens\":[0,300]}", 400, "tokens[1]");
    expect_error(tokenize_endpoint_decode, "{\"tokens\":[-1]}", 400, "tokens[0]");
    expect_error(tokenize_endpoint_decode, "{\"tokens\":[1.5]}", 400, "tokens[0]");
    expect_error(tokenize_endpoint_decode, "{\"tokens\":[1],\"skip_special_tokens\":1}", 400,
                 "skip_special_tokens");
    expect_error(tokenize_endpoint_decode, "{\"tokens\":[1],\"model\":\"x\"}", 404, "model");
}

#define HI "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOKENS(count, ids)                                                                         \
    "{\"count\":" count ",\"max_model_len\":8,\"tokens\":[" ids "],\"token_strs\":null}"
#define SAID "256,117,115,101,114,58,104,105,257"

/* Also where they are longer than the context. */
static void messages_are_tokenized_as_a_chat_has_them(void **state) {
    static const char *const cases[][2] = {
        {HI ",\"add_generation_prompt\":false}", TOKENS("9", SAID)},
        {HI ",\"continue_final_message\":true}", TOKENS("8", "256,117,115,101,114,58,104,105")},
        {HI ",\"add_generation_prompt\":false,\"add_special_tokens\":true}",
         TOKENS("10", "256," SAID)},
    };
    struct api_context chat;
    chat_fixture_init(&chat, 8);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct byte_buffer out = {0}, ignored = {0};
        struct api_error err = {0};
        if (tokenize_endpoint_encode(&chat, cases[i][0], strlen(cases[i][0]), &out, &ignored,
                                     &err) != 0)
            fail_msg("%s", err.message);
        byte_buffer_append(&out, "", 1);
        assert_string_equal(out.data, cases[i][1]);
        byte_buffer_finish(&out);
    }
    chat_fixture_finish(&chat);
}

static void expect_unknown(api_transform *endpoint, const char *body, const char *expected) {
    struct api_context strict = context;
    strict.rejects_unknown_params = true;
    struct byte_buffer out = {0}, ignored = {0};
    struct api_error err = {0};
    assert_int_equal(endpoint(&context, body, strlen(body), &out, &ignored, &err), 0);
    byte_buffer_append(&ignored, "", 1);
    assert_string_equal(ignored.data, expected);
    byte_buffer_clear(&out);
    byte_buffer_clear(&ignored);
    assert_int_equal(endpoint(&strict, body, strlen(body), &out, &ignored, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.code, "unknown_parameter");
    assert_int_equal(strncmp(err.param, expected, strlen(err.param)), 0);
    assert_int_equal(out.length, 0);
    byte_buffer_finish(&out);
    byte_buffer_finish(&ignored);
}

static void unknown_fields_are_named_or_refused(void **state) {
    expect_unknown(tokenize_endpoint_encode, "{\"prompt\":\"a\",\"foo\":1,\"bar\":2}", "foo,bar");
    expect_unknown(tokenize_endpoint_decode, "{\"tokens\":[],\"prompt\":\"a\"}", "prompt");
    expect_reply(tokenize_endpoint_decode, "{\"tokens\":[],\"foo\":null}", TEXT(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_tokenized_as_a_chat_has_them),
        cmocka_unit_test(tokenize_answers_in_vllms_shape),
        cmocka_unit_test(tokenize_answers_in_llama_cpps_shape),
        cmocka_unit_test(tokenize_takes_texts_beyond_the_context),
        cmocka_unit_test(tokenize_refuses_what_it_cannot_do),
        cmocka_unit_test(detokenize_joins_pieces),
        cmocka_unit_test(detokenize_refuses_bad_ids),
        cmocka_unit_test(unknown_fields_are_named_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
