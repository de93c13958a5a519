/* The messages of a chat as they are read; what a template sees of them is tested with
 * template_messages.h. */
#include "server/api/chat/chat_body.h"

#include "tests/unit/server/api/conversation_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NAME_16 "Role_0123456789-"
#define NAME_64 NAME_16 NAME_16 NAME_16 NAME_16

static struct conversation read(const char *messages) {
    struct conversation out;
    struct api_error err = {0};
    char body[2048];
    snprintf(body, sizeof(body), "{\"messages\":%s}", messages);
    if (conversation_fixture_read(body, &out, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return out;
}

static void refuse_with(const char *body, struct api_error *err) {
    struct conversation out;
    if (conversation_fixture_read(body, &out, err) == 0)
        fail_msg("accepted %s", body);
    assert_int_equal(err->status, 400);
    assert_ptr_equal(strstr(err->message, err->param), err->message);
}

static void expect_error(const char *messages, const char *param, const char *code) {
    struct api_error err = {0};
    char body[2048];
    snprintf(body, sizeof(body), "{\"messages\":%s}", messages);
    refuse_with(body, &err);
    assert_string_equal(err.param, param);
    assert_string_equal(err.code, code);
}

static void each_message_has_its_members(void **state) {
    struct conversation conversation =
        read("[{\"role\":\"user\",\"name\":\"Ann\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
             "\"b\"]},{\"role\":\"assistant\",\"reasoning\":\"so\",\"tool_calls\":[{\"id\":\"i\","
             "\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"g\","
             "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"i\",\"content\":[]}]");
    const struct message *said = &conversation.messages[0], *called = &conversation.messages[1],
                         *result = &conversation.messages[2];
    assert_int_equal(conversation.num_messages, 3);
    assert_int_equal(said->role, MESSAGE_USER);
    assert_string_equal(said->name, "Ann");
    assert_int_equal(said->num_parts, 2);
    assert_string_equal(said->parts[0], "a");
    assert_string_equal(said->parts[1], "b");
    assert_int_equal(called->role, MESSAGE_ASSISTANT);
    assert_string_equal(called->reasoning, "so");
    assert_false(called->has_content);
    assert_int_equal(called->num_calls, 2);
    assert_string_equal(called->calls[0].id, "i");
    assert_string_equal(called->calls[0].object->child->string, "a");
    assert_null(called->calls[0].text);
    assert_null(called->calls[1].id);
    assert_string_equal(called->calls[1].text, "{}");
    assert_int_equal(result->role, MESSAGE_TOOL);
    assert_string_equal(result->tool_call_id, "i");
    assert_true(result->has_content);
    assert_int_equal(result->num_parts, 0);
    assert_ptr_equal(conversation_last(&conversation), result);
    conversation_finish(&conversation);
}

#define USER(content) "[{\"role\":\"user\",\"content\":" content "}]"
#define ASSISTANT(members) "[{\"role\":\"assistant\",\"content\":\"\"," members "}]"

static void what_is_no_message_is_refused(void **state) {
    static const char bad[] = "invalid_type";
    expect_error("{}", "messages", bad);
    expect_error("[]", "messages", bad);
    expect_error("null", "messages", bad);
    expect_error("[1]", "messages[0]", bad);
    expect_error("[{\"content\":\"x\"}]", "messages[0].role", bad);
    expect_error("[{\"role\":\"\",\"content\":\"x\"}]", "messages[0].role", bad);
    expect_error("[{\"role\":\"a robot\",\"content\":\"x\"}]", "messages[0].role", bad);
    expect_error("[{\"role\":\"<|user|>\",\"content\":\"x\"}]", "messages[0].role", bad);
    expect_error("[{\"role\":\"" NAME_64 "x\",\"content\":\"x\"}]", "messages[0].role", bad);
    expect_error("[{\"role\":\"observation\"}]", "messages[0].content", bad);
    expect_error("[{\"role\":\"observation\",\"content\":\"x\",\"tool_call_id\":1}]",
                 "messages[0].tool_call_id", bad);
    expect_error("[{\"role\":\"user\"}]", "messages[0].content", bad);
    expect_error(USER("null"), "messages[0].content", bad);
    expect_error(USER("3"), "messages[0].content", bad);
    expect_error(USER("[1]"), "messages[0].content[0]", bad);
    expect_error(USER("[{}]"), "messages[0].content[0].type", bad);
    expect_error(USER("[{\"type\":\"text\"}]"), "messages[0].content[0].text", bad);
    expect_error("[{\"role\":\"user\",\"content\":\"x\",\"name\":1}]", "messages[0].name", bad);
}

static void broken_tool_calls_are_refused(void **state) {
    static const char bad[] = "invalid_type";
    expect_error(ASSISTANT("\"tool_calls\":{}"), "messages[0].tool_calls", bad);
    expect_error(ASSISTANT("\"tool_calls\":[1]"), "messages[0].tool_calls[0]", bad);
    expect_error(ASSISTANT("\"tool_calls\":[{\"id\":1}]"), "messages[0].tool_calls[0].id", bad);
    expect_error(ASSISTANT("\"tool_calls\":[{\"type\":\"x\"}]"), "messages[0].tool_calls[0].type",
                 bad);
    expect_error(ASSISTANT("\"tool_calls\":[{}]"), "messages[0].tool_calls[0].function", bad);
    expect_error(ASSISTANT("\"tool_calls\":[{\"function\":{}}]"),
                 "messages[0].tool_calls[0].function.name", bad);
    expect_error(ASSISTANT("\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":1}}]"),
                 "messages[0].tool_calls[0].function.arguments", bad);
    expect_error("[{\"role\":\"user\",\"content\":\"\",\"function_call\":{\"name\":\"f\"}}]",
                 "messages[0].function_call", "unsupported_parameter");
    expect_error(ASSISTANT("\"prefix\":true"), "messages[0].prefix", "unsupported_parameter");
    expect_error(ASSISTANT("\"partial\":true"), "messages[0].partial", "unsupported_parameter");
    expect_error("[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":\"x\","
                 "\"tools\":[{}]}]",
                 "messages[1].tools", "unsupported_parameter");
}

static void calls_are_bounded(void **state) {
    struct byte_buffer body = {0};
    struct api_error err = {0};
    byte_buffer_append_text(&body, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[");
    for (int i = 0; i <= MESSAGE_MAX_CALLS; i++)
        byte_buffer_printf(&body, "%s{\"function\":{\"name\":\"f\"}}", i > 0 ? "," : "");
    byte_buffer_append(&body, "]}]}", 5);
    refuse_with(body.data, &err);
    assert_string_equal(err.param, "messages[0].tool_calls");
    assert_string_equal(err.code, "array_above_max_length");
    byte_buffer_finish(&body);
}

static void other_content_than_text_is_refused(void **state) {
    static const char *const types[] = {"image_url", "input_audio", "file", "video_url"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct api_error err = {0};
        char body[256];
        snprintf(body, sizeof(body),
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\","
                 "\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"%s\"}]}]}",
                 types[i]);
        refuse_with(body, &err);
        assert_string_equal(err.param, "messages[1].content[1].type");
        assert_string_equal(err.code, "unsupported_content");
        assert_non_null(strstr(err.message, types[i]));
        assert_non_null(strstr(err.message, "text only"));
    }
    expect_error(ASSISTANT("\"audio\":{\"id\":\"a\"}"), "messages[0].audio", "unsupported_content");
}

static void messages_are_bounded(void **state) {
    struct byte_buffer body = {0};
    struct api_error err = {0};
    byte_buffer_append_text(&body, "{\"messages\":[");
    for (int i = 0; i <= CONVERSATION_MAX_MESSAGES; i++)
        byte_buffer_printf(&body, "%s{\"role\":\"user\",\"content\":\"\"}", i > 0 ? "," : "");
    byte_buffer_append(&body, "]}", 3);
    refuse_with(body.data, &err);
    assert_string_equal(err.code, "array_above_max_length");
    byte_buffer_finish(&body);
}

/* --- function_call and the role function --- */

#define ASKED "{\"role\":\"user\",\"content\":\"a\"}"

static void no_function_call_is_none(void **state) {
    struct conversation conversation =
        read("[" ASKED ",{\"role\":\"assistant\",\"function_call\":null}]");
    assert_int_equal(conversation.messages[1].num_calls, 0);
    conversation_finish(&conversation);
}

static void calls_and_results_have_an_id_in_common(void **state) {
    struct conversation conversation = read(
        "[" ASKED ",{\"role\":\"assistant\",\"content\":null,\"function_call\":{\"name\":\"f\","
        "\"arguments\":\"{}\"},\"tool_calls\":[]},{\"role\":\"function\",\"name\":\"f\","
        "\"content\":null}]");
    const struct message *called = &conversation.messages[1], *result = &conversation.messages[2];
    assert_false(called->has_content);
    assert_int_equal(called->num_calls, 1);
    assert_string_equal(called->calls[0].id, "call00001");
    assert_string_equal(called->calls[0].name, "f");
    assert_string_equal(called->calls[0].text, "{}");
    assert_false(called->calls[0].is_custom);
    assert_int_equal(result->role, MESSAGE_TOOL);
    assert_string_equal(result->role_name, "tool");
    assert_string_equal(result->name, "f");
    assert_int_equal(result->num_parts, 1);
    assert_string_equal(result->parts[0], "");
    assert_string_equal(result->tool_call_id, "call00001");
    conversation_finish(&conversation);
    conversation = read("[{\"role\":\"function\",\"name\":\"f\",\"content\":\"4\"}]");
    assert_string_equal(conversation.messages[0].role_name, "tool");
    assert_string_equal(conversation.messages[0].parts[0], "4");
    assert_null(conversation.messages[0].tool_call_id);
    conversation_finish(&conversation);
}

static void wrong_function_calls_are_refused(void **state) {
    static const char bad[] = "invalid_type";
    expect_error("[" ASKED ",{\"role\":\"assistant\",\"function_call\":\"f\"}]",
                 "messages[1].function_call", bad);
    expect_error("[{\"role\":\"assistant\",\"function_call\":{\"arguments\":\"{}\"}}]",
                 "messages[0].function_call.name", bad);
    expect_error("[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\",\"arguments\":1}}]",
                 "messages[0].function_call.arguments", bad);
    expect_error(
        "[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"},\"tool_calls\":[{}]}]",
        "messages[0].function_call", "unsupported_value");
    expect_error("[{\"role\":\"function\",\"content\":\"a\"}]", "messages[0].name", bad);
    expect_error("[{\"role\":\"function\",\"name\":\"f\"}]", "messages[0].content", bad);
    expect_error("[{\"role\":\"function\",\"name\":\"f\",\"content\":\"x\",\"tool_call_id\":1}]",
                 "messages[0].tool_call_id", bad);
}

/* --- Calls of custom tools --- */

static void calls_of_custom_tools_have_an_input(void **state) {
    struct conversation conversation = read(
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"type\":\"custom\",\"custom\":{"
        "\"name\":\"a\",\"input\":\"x\\n\"}}]}]");
    const struct message_call *call = &conversation.messages[0].calls[0];
    assert_int_equal(conversation.messages[0].num_calls, 1);
    assert_true(call->is_custom);
    assert_string_equal(call->id, "i");
    assert_string_equal(call->name, "a");
    assert_string_equal(call->text, "x\n");
    conversation_finish(&conversation);
}

#define CUSTOM(custom) ASSISTANT("\"tool_calls\":[{\"type\":\"custom\"" custom "}]")

static void wrong_calls_of_custom_tools_are_refused(void **state) {
    static const char bad[] = "invalid_type";
    expect_error(CUSTOM(""), "messages[0].tool_calls[0].custom", bad);
    expect_error(CUSTOM(",\"custom\":{\"name\":\"\",\"input\":\"\"}"),
                 "messages[0].tool_calls[0].custom.name", bad);
    expect_error(CUSTOM(",\"custom\":{\"name\":\"a\"}"), "messages[0].tool_calls[0].custom.input",
                 bad);
    expect_error(CUSTOM(",\"id\":1,\"custom\":{\"name\":\"a\",\"input\":\"\"}"),
                 "messages[0].tool_calls[0].id", bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_has_its_members),
        cmocka_unit_test(what_is_no_message_is_refused),
        cmocka_unit_test(broken_tool_calls_are_refused),
        cmocka_unit_test(calls_are_bounded),
        cmocka_unit_test(other_content_than_text_is_refused),
        cmocka_unit_test(messages_are_bounded),
        cmocka_unit_test(no_function_call_is_none),
        cmocka_unit_test(calls_and_results_have_an_id_in_common),
        cmocka_unit_test(wrong_function_calls_are_refused),
        cmocka_unit_test(calls_of_custom_tools_have_an_input),
        cmocka_unit_test(wrong_calls_of_custom_tools_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
