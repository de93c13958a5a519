#include "server/api/chat/chat_body.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *const names[] = {"m"};
static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 64, .max_logprobs = 20},
    .sampling = SAMPLING_SETTINGS_NEUTRAL,
    .model_names = names,
    .num_model_names = 1,
    .max_n = 8,
};

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"

static struct conversation read(const char *body) {
    struct conversation request;
    struct api_error err = {0};
    if (chat_body_parse(&context, body, strlen(body), &request, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return request;
}

static void expect_error(const char *fields, const char *param) {
    struct conversation request = {.num_tools = -7};
    struct api_error err = {0};
    char body[512];
    snprintf(body, sizeof(body), "{" MESSAGES ",%s}", fields);
    if (chat_body_parse(&context, body, strlen(body), &request, &err) == 0)
        fail_msg("accepted %s", body);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
    assert_int_equal(request.num_tools, -7);
}

static void defaults_are_those_of_chats(void **state) {
    struct conversation request =
        read("{" MESSAGES ",\"chat_template\":null,\"modalities\":[\"text\"]}");
    assert_int_equal(request.sampling.max_tokens, SAMPLING_TO_THE_END);
    assert_int_equal(conversation_num_logprobs(&request), -1);
    assert_true(request.include_reasoning);
    assert_true(request.add_generation_prompt);
    assert_false(request.add_special_tokens);
    assert_false(request.continue_final_message);
    assert_int_equal(request.tool_choice, TOOL_CHOICE_NONE);
    assert_int_equal(request.ignored.length, 0);
    conversation_finish(&request);
}

static void the_newer_limit_of_tokens_wins(void **state) {
    struct conversation request =
        read("{" MESSAGES ",\"max_tokens\":3,\"max_completion_tokens\":5}");
    assert_int_equal(request.sampling.max_tokens, 5);
    conversation_finish(&request);
    request = read("{" MESSAGES ",\"max_tokens\":3,\"max_completion_tokens\":null}");
    assert_int_equal(request.sampling.max_tokens, 3);
    conversation_finish(&request);
    expect_error("\"max_tokens\":0", "max_tokens");
    expect_error("\"max_completion_tokens\":0", "max_completion_tokens");
    expect_error("\"max_completion_tokens\":2,\"min_tokens\":3", "min_tokens");
}

static void logprobs_are_asked_for_by_two_fields(void **state) {
    struct conversation request = read("{" MESSAGES ",\"logprobs\":true}");
    assert_int_equal(conversation_num_logprobs(&request), 0);
    conversation_finish(&request);
    request = read("{" MESSAGES ",\"logprobs\":true,\"top_logprobs\":20}");
    assert_int_equal(conversation_num_logprobs(&request), 20);
    conversation_finish(&request);
    request = read("{" MESSAGES ",\"logprobs\":false,\"top_logprobs\":0}");
    assert_int_equal(conversation_num_logprobs(&request), -1);
    conversation_finish(&request);
    expect_error("\"top_logprobs\":1", "top_logprobs");
    expect_error("\"logprobs\":true,\"top_logprobs\":21", "top_logprobs");
    expect_error("\"logprobs\":5", "logprobs");
}

#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

static void what_is_not_known_is_named(void **state) {
    struct conversation request = read("{" MESSAGES ",\"metadata\":{},\"top_k\":3,\"foo\":1}");
    byte_buffer_append(&request.ignored, "", 1);
    assert_string_equal(request.ignored.data, "metadata,foo");
    conversation_finish(&request);
}

static void members_of_messages_that_are_not_known_are_named_once(void **state) {
    struct conversation request =
        read("{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"foo\":1,\"annotations\":[]},"
             "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"bar\":{"
             "\"a\":1}}],"
             "\"refusal\":null,\"reasoning\":\"r\",\"name\":\"n\",\"foo\":2,\"b\\n\":true}],"
             "\"metadata\":{}}");
    byte_buffer_append(&request.ignored, "", 1);
    assert_string_equal(request.ignored.data,
                        "messages[].foo,messages[].b_,messages[].content[].bar,metadata");
    conversation_finish(&request);
}

static void wrong_fields_are_refused(void **state) {
    expect_error("\"tools\":1", "tools");
    expect_error("\"chat_template\":\"{{ 1 }}\"", "chat_template");
    expect_error("\"modalities\":[\"text\",\"audio\"]", "modalities");
    expect_error("\"modalities\":\"text\"", "modalities");
    expect_error("\"functions\":1", "functions");
    expect_error("\"n\":9", "n");
    expect_error("\"n\":0", "n");
    expect_error("\"temperature\":3", "temperature");
    expect_error("\"temperature\":3,\"functions\":[]", "temperature");
    expect_error("\"reasoning_effort\":1", "reasoning_effort");
    expect_error("\"response_format\":1", "response_format");
    expect_error("\"response_format\":{\"type\":\"pig\"}", "response_format.type");
    expect_error("\"model\":\"m\",\"stream_options\":{}", "stream_options");
    expect_error("\"use_beam_search\":true,\"tools\":[" TOOL "],\"tool_choice\":\"required\"",
                 "tool_choice");
    expect_error("\"use_beam_search\":true,\"stream\":true", "stream");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_chats),
        cmocka_unit_test(the_newer_limit_of_tokens_wins),
        cmocka_unit_test(logprobs_are_asked_for_by_two_fields),
        cmocka_unit_test(what_is_not_known_is_named),
        cmocka_unit_test(members_of_messages_that_are_not_known_are_named_once),
        cmocka_unit_test(wrong_fields_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
