/* Drives messages with hand-written engine events and reads the bytes back as a client would. */
#include "server/api/call/endpoints.h"

#include "config/json/json_parse.h"

#include "tests/unit/server/api/chat_fixture.h"
#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

#define MAX_EVENTS 64
#define HELLO "\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOLS "\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]"
#define STREAM ",\"stream\":true"
#define THINK ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5"
#define CALL(arguments) "<tool_call>\n{\"name\": \"f\", \"arguments\": " arguments "}\n</tool_call>"

static struct api_context context;

static int setup(void **state) {
    chat_fixture_init(&context, 256);
    return 0;
}

static int teardown(void **state) {
    chat_fixture_finish(&context);
    return 0;
}

static struct api_call *begin(const char *fields) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    char body[1024];
    snprintf(body, sizeof(body), "{%s}", fields);
    if (messages_endpoint_parse(&context, body, strlen(body), &call, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return call;
}

/* The engine's side. stop: number of a stop sequence, -1 none. */
static void say_until(struct api_call *call, const char *text, enum finish_reason finish,
                      int32_t stop, struct byte_buffer *out) {
    struct token_event event = {
        .kind = TOKEN_EVENT_TEXT,
        .text = text,
        .text_bytes = strlen(text),
        .finish = finish,
        .stop_token = -1,
        .stop_string = stop,
        .num_generated = 5,
        .num_cached_tokens = 2,
    };
    struct request *request = api_call_request(call, 0);
    assert_int_equal(token_stream_push(&request->stream, &event), 0);
    api_call_read(call, request, out);
}

static void say(struct api_call *call, const char *text, enum finish_reason finish,
                struct byte_buffer *out) {
    say_until(call, text, finish, -1, out);
}

static const cJSON *at(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (item == NULL)
        fail_msg("no %s", name);
    return item;
}

static void expect_text(const cJSON *json, const char *name, const char *expected) {
    const cJSON *item = at(json, name);
    if (expected == NULL)
        assert_true(cJSON_IsNull(item));
    else
        assert_string_equal(cJSON_GetStringValue(item), expected);
}

static void expect_json(const cJSON *json, const char *expected) {
    char *text = cJSON_PrintUnformatted(json);
    assert_string_equal(text, expected);
    cJSON_free(text);
}

static cJSON *answer_until(const char *fields, const char *text, enum finish_reason finish,
                           int32_t stop) {
    struct byte_buffer out = {0};
    struct api_call *call = begin(fields);
    say_until(call, text, finish, stop, &out);
    assert_true(api_call_is_done(call));
    cJSON *json = cJSON_ParseWithLength(out.data, out.length);
    assert_non_null(json);
    byte_buffer_finish(&out);
    api_call_destroy(call);
    return json;
}

/* Returns the whole answer of a call that one event ends. */
static cJSON *answer(const char *fields, const char *text, enum finish_reason finish) {
    return answer_until(fields, text, finish, -1);
}

/* --- Streams --- */

struct events {
    const char *names[MAX_EVENTS]; /* the "type" of each */
    cJSON *items[MAX_EVENTS];
    int count;
};

/* Each event is named by its type. */
static struct events split(const struct byte_buffer *out) {
    struct events events = {.count = 0};
    const char *data = out->data, *end = out->data + out->length;
    while (data < end) {
        const char *stop = memmem(data, (size_t)(end - data), "\n\n", 2);
        const char *line = memchr(data, '\n', (size_t)(end - data));
        assert_non_null(stop);
        assert_memory_equal(data, "event: ", 7);
        assert_memory_equal(line, "\ndata: ", 7);
        assert_true(events.count < MAX_EVENTS);
        cJSON *item = cJSON_ParseWithLength(line + 7, (size_t)(stop - line) - 7);
        assert_non_null(item);
        const char *name = cJSON_GetStringValue(at(item, "type"));
        assert_int_equal(strlen(name), line - data - 7);
        assert_memory_equal(data + 7, name, strlen(name));
        events.names[events.count] = name;
        events.items[events.count++] = item;
        data = stop + 2;
    }
    return events;
}

static void finish_events(struct events *events) {
    for (int i = 0; i < events->count; i++)
        cJSON_Delete(events->items[i]);
}

static void expect_names(const struct events *events, const char *expected) {
    char names[1024] = "";
    for (int i = 0; i < events->count; i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s ", events->names[i]);
    assert_string_equal(names, expected);
}

/* Returns the events of a stream that says the text letter by letter. */
static struct events stream(const char *fields, const char *text) {
    struct byte_buffer out = {0};
    struct api_call *call = begin(fields);
    assert_true(api_call_is_stream(call));
    for (const char *letter = text; *letter != '\0'; letter++) {
        char word[2] = {*letter};
        say(call, word, letter[1] == '\0' ? FINISH_STOP : FINISH_NONE, &out);
    }
    struct events events = split(&out);
    byte_buffer_finish(&out);
    api_call_destroy(call);
    return events;
}

/* --- Tests --- */

static void a_whole_answer_is_a_message(void **state) {
    cJSON *json = answer(HELLO, "Hello", FINISH_STOP);
    assert_memory_equal(cJSON_GetStringValue(at(json, "id")), "msg_", 4);
    expect_text(json, "type", "message");
    expect_text(json, "role", "assistant");
    expect_text(json, "model", "m");
    expect_json(at(json, "content"), "[{\"type\":\"text\",\"text\":\"Hello\"}]");
    expect_text(json, "stop_reason", "end_turn");
    expect_text(json, "stop_sequence", NULL);
    expect_json(at(json, "usage"), "{\"input_tokens\":18,\"cache_creation_input_tokens\":0,"
                                   "\"cache_read_input_tokens\":2,\"output_tokens\":5,"
                                   "\"output_tokens_details\":{\"thinking_tokens\":0}}");
    cJSON_Delete(json);
}

static void nothing_said_is_no_block(void **state) {
    cJSON *json = answer(HELLO, "", FINISH_STOP);
    assert_int_equal(cJSON_GetArraySize(at(json, "content")), 0);
    cJSON_Delete(json);
}

static void an_answer_says_why_it_ended(void **state) {
    cJSON *json = answer(HELLO, "a", FINISH_LENGTH);
    expect_text(json, "stop_reason", "max_tokens");
    cJSON_Delete(json);
    json = answer(HELLO, "a", FINISH_DEADLINE);
    expect_text(json, "stop_reason", "max_tokens");
    cJSON_Delete(json);
    json = answer_until(HELLO ",\"stop_sequences\":[\"x\",\"END\"]", "a", FINISH_STOP, 1);
    expect_text(json, "stop_reason", "stop_sequence");
    expect_text(json, "stop_sequence", "END");
    cJSON_Delete(json);
}

static void what_the_context_has_no_room_for_is_cut(void **state) {
    static const char fields[] =
        "\"max_tokens\":100000,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]";
    struct api_call *call = begin(fields);
    assert_int_equal(api_call_request(call, 0)->params.max_tokens, 256 - 20);
    api_call_destroy(call);
    cJSON *json = answer(fields, "a", FINISH_LENGTH);
    expect_text(json, "stop_reason", "model_context_window_exceeded");
    cJSON_Delete(json);
}

static void calls_are_blocks(void **state) {
    cJSON *json = answer(HELLO "," TOOLS, "Look: " CALL("{\"a\": 12345678901234567}") CALL("{}"),
                         FINISH_STOP);
    const cJSON *content = at(json, "content"), *call = cJSON_GetArrayItem(content, 1);
    assert_int_equal(cJSON_GetArraySize(content), 3);
    expect_text(content->child, "text", "Look:");
    expect_text(call, "type", "tool_use");
    expect_text(call, "name", "f");
    assert_memory_equal(cJSON_GetStringValue(at(call, "id")), "toolu_", 6);
    assert_true(at(at(call, "input"), "a")->valuedouble == 12345678901234567.0);
    expect_text(json, "stop_reason", "tool_use");
    cJSON_Delete(json);
}

/* As it is read again: the last of a doubled key, numbers that a double has. */
static void inputs_are_what_is_read_again(void **state) {
    static const struct {
        const char *arguments, *input;
    } cases[] = {
        {"{\"a\": 1, \"b\": 2, \"a\": {\"c\": 1, \"c\": [{\"d\": 1, \"d\": 2}]}, \"a\": 1.0}",
         "{\"a\":1.0,\"b\":2}"},
        {"{\"a\": {\"c\": 1, \"e\": 0, \"c\": [{\"d\": 1, \"d\": 2}]}}",
         "{\"a\":{\"c\":[{\"d\":2}],\"e\":0}}"},
        {"{\"a\": -1e400, \"b\": 1e2}", "{\"a\":-1.7976931348623157e+308,\"b\":1e2}"},
        {"{\"a\": 1234567890123456789012345678901234567890123456789012345678901234567890}",
         "{\"a\":1.2345678901234567e+69}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256], want[256];
        struct byte_buffer out = {0};
        struct api_error err = {0};
        struct api_call *call = begin(HELLO "," TOOLS);
        snprintf(text, sizeof(text), CALL("%s"), cases[i].arguments);
        snprintf(want, sizeof(want), "\"input\":%s}", cases[i].input);
        say_until(call, text, FINISH_STOP, -1, &out);
        assert_non_null(memmem(out.data, out.length, want, strlen(want)));
        cJSON *json = json_parse(out.data, out.length, &err);
        assert_non_null(json);
        cJSON_Delete(json);
        byte_buffer_finish(&out);
        api_call_destroy(call);
    }
}

/* A client that takes the input for an object gets one, where a grammar writes the call; else half
 * a call is text. */
static void a_call_that_was_cut_has_no_input(void **state) {
    static const char text[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1";
    cJSON *json =
        answer(HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"any\"}", text, FINISH_LENGTH);
    expect_json(at(at(json, "content")->child, "input"), "{}");
    expect_text(json, "stop_reason", "max_tokens");
    cJSON_Delete(json);
    json = answer(HELLO "," TOOLS, text, FINISH_LENGTH);
    expect_text(at(json, "content")->child, "text", text);
    expect_text(json, "stop_reason", "max_tokens");
    cJSON_Delete(json);
    json = answer(HELLO "," TOOLS, text, FINISH_STOP);
    expect_text(at(json, "content")->child, "text", text);
    expect_text(json, "stop_reason", "end_turn");
    cJSON_Delete(json);
}

static void one_call_where_parallel_ones_are_disabled(void **state) {
    cJSON *json = answer(HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"auto\","
                               "\"disable_parallel_tool_use\":true}",
                         CALL("{}") CALL("{}"), FINISH_STOP);
    assert_int_equal(cJSON_GetArraySize(at(json, "content")), 1);
    cJSON_Delete(json);
}

static void a_forced_call_has_a_form(void **state) {
    struct api_call *call = begin(HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"any\"}");
    assert_non_null(api_call_request(call, 0)->params.grammar);
    api_call_destroy(call);
}

static void thinking_is_a_block(void **state) {
    struct api_call *call = begin(HELLO THINK "}");
    assert_int_equal(api_call_request(call, 0)->params.thinking.max_tokens, 5);
    api_call_destroy(call);
    cJSON *json = answer(HELLO THINK "}", "so</think>Yes", FINISH_STOP);
    const cJSON *thinking = at(json, "content")->child;
    expect_text(thinking, "type", "thinking");
    expect_text(thinking, "thinking", "so");
    assert_true(strlen(cJSON_GetStringValue(at(thinking, "signature"))) > 4);
    expect_text(thinking->next, "text", "Yes");
    assert_int_equal(
        at(at(at(json, "usage"), "output_tokens_details"), "thinking_tokens")->valueint, 5);
    cJSON_Delete(json);
    json = answer(HELLO THINK ",\"display\":\"omitted\"}", "so</think>Yes", FINISH_STOP);
    expect_text(at(json, "content")->child, "thinking", "");
    expect_text(at(json, "content")->child->next, "text", "Yes");
    cJSON_Delete(json);
}

static void a_stream_has_its_order(void **state) {
    struct events events = stream(HELLO STREAM, "Hi");
    expect_names(&events, "message_start ping content_block_start content_block_delta "
                          "content_block_delta content_block_stop message_delta message_stop ");
    const cJSON *message = at(events.items[0], "message");
    assert_int_equal(cJSON_GetArraySize(at(message, "content")), 0);
    expect_text(message, "stop_reason", NULL);
    assert_int_equal(at(at(message, "usage"), "input_tokens")->valueint, 18);
    expect_json(events.items[2], "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":"
                                 "{\"type\":\"text\",\"text\":\"\"}}");
    expect_json(events.items[4], "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
                                 "{\"type\":\"text_delta\",\"text\":\"i\"}}");
    expect_json(events.items[5], "{\"type\":\"content_block_stop\",\"index\":0}");
    expect_json(at(events.items[6], "delta"),
                "{\"stop_reason\":\"end_turn\",\"stop_sequence\":null}");
    assert_int_equal(at(at(events.items[6], "usage"), "output_tokens")->valueint, 5);
    expect_json(events.items[7], "{\"type\":\"message_stop\"}");
    finish_events(&events);
}

/* Appends the deltas of one kind in the block of that index. */
static void join_deltas(const struct events *events, int index, const char *name, char *out,
                        size_t capacity) {
    out[0] = '\0';
    for (int i = 0; i < events->count; i++) {
        const cJSON *delta = cJSON_GetObjectItemCaseSensitive(events->items[i], "delta");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(delta, name);
        if (text == NULL || at(events->items[i], "index")->valueint != index)
            continue;
        snprintf(out + strlen(out), capacity - strlen(out), "%s", text->valuestring);
    }
}

static void a_streamed_call_is_a_block(void **state) {
    char text[64];
    struct events events = stream(HELLO "," TOOLS STREAM, CALL("{\"a\":1}"));
    const cJSON *block = at(events.items[2], "content_block");
    expect_text(block, "type", "tool_use");
    expect_text(block, "name", "f");
    expect_json(at(block, "input"), "{}");
    join_deltas(&events, 0, "partial_json", text, sizeof(text));
    assert_string_equal(text, "{\"a\":1}");
    expect_text(at(events.items[events.count - 2], "delta"), "stop_reason", "tool_use");
    finish_events(&events);
}

static void streamed_thinking_ends_with_its_signature(void **state) {
    char text[64];
    struct events events = stream(HELLO THINK "}" STREAM, "so</think>Y");
    expect_names(&events,
                 "message_start ping content_block_start content_block_delta content_block_delta "
                 "content_block_delta content_block_stop content_block_start content_block_delta "
                 "content_block_stop message_delta message_stop ");
    expect_json(at(events.items[2], "content_block"),
                "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    join_deltas(&events, 0, "thinking", text, sizeof(text));
    assert_string_equal(text, "so");
    expect_text(at(events.items[5], "delta"), "type", "signature_delta");
    assert_int_equal(at(events.items[7], "index")->valueint, 1);
    finish_events(&events);
    events = stream(HELLO THINK ",\"display\":\"omitted\"}" STREAM, "so</think>Y");
    expect_text(at(events.items[3], "delta"), "type", "signature_delta");
    finish_events(&events);
}

static void an_early_failure_is_an_event(void **state) {
    struct byte_buffer out = {0};
    struct api_error err = {0};
    struct api_call *call = begin(HELLO STREAM);
    say(call, "", FINISH_ERROR, &out);
    assert_true(api_call_error(call, &err));
    assert_int_equal(err.status, 503);
    struct events events = split(&out);
    assert_int_equal(events.count, 1);
    expect_text(events.items[0], "type", "error");
    finish_events(&events);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

static void a_late_failure_is_an_event(void **state) {
    struct byte_buffer out = {0};
    struct api_call *call = begin(HELLO STREAM);
    say(call, "x", FINISH_NONE, &out);
    say(call, "", FINISH_ERROR, &out);
    struct events events = split(&out);
    expect_names(&events, "message_start ping content_block_start content_block_delta error ");
    expect_text(at(events.items[4], "error"), "type", "overloaded_error");
    finish_events(&events);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

static void expect_count(api_transform *endpoint, const char *body, const char *expected) {
    struct byte_buffer out = {0}, ignored = {0};
    struct api_error err = {0};
    if (endpoint(&context, body, strlen(body), &out, &ignored, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
    byte_buffer_finish(&ignored);
}

static void tokens_of_a_prompt_are_counted(void **state) {
    static const char wrong[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"refuse me\"}]}";
    struct byte_buffer out = {0}, ignored = {0};
    struct api_error err = {0};
    expect_count(messages_count_tokens, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
                 "{\"input_tokens\":20}");
    expect_count(messages_count_tokens, "{" HELLO "," TOOLS ",\"system\":\"Be\"}",
                 "{\"input_tokens\":38}");
    expect_count(responses_input_tokens, "{\"input\":\"hi\"}",
                 "{\"object\":\"response.input_tokens\",\"input_tokens\":20}");
    assert_int_equal(messages_count_tokens(&context, wrong, strlen(wrong), &out, &ignored, &err),
                     -1);
    assert_string_equal(err.code, "chat_template_error");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer_is_a_message),
        cmocka_unit_test(nothing_said_is_no_block),
        cmocka_unit_test(an_answer_says_why_it_ended),
        cmocka_unit_test(what_the_context_has_no_room_for_is_cut),
        cmocka_unit_test(calls_are_blocks),
        cmocka_unit_test(inputs_are_what_is_read_again),
        cmocka_unit_test(a_call_that_was_cut_has_no_input),
        cmocka_unit_test(one_call_where_parallel_ones_are_disabled),
        cmocka_unit_test(a_forced_call_has_a_form),
        cmocka_unit_test(thinking_is_a_block),
        cmocka_unit_test(a_stream_has_its_order),
        cmocka_unit_test(a_streamed_call_is_a_block),
        cmocka_unit_test(streamed_thinking_ends_with_its_signature),
        cmocka_unit_test(an_early_failure_is_an_event),
        cmocka_unit_test(a_late_failure_is_an_event),
        cmocka_unit_test(tokens_of_a_prompt_are_counted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
