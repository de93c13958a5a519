/* Drives chats with hand-written engine events and reads the bytes back as a client would. */
#include "server/api/call/endpoints.h"

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

#define MAX_FRAMES 32
#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
#define FUNCTIONS "\"functions\":[{\"name\":\"f\"}]"
#define NAMED_F "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"

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
    if (chat_endpoint_parse(&context, body, strlen(body), &call, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return call;
}

/* The engine's side: an event of one token 'a'. stop: number of a stop string, -1 none. */
static void say_until(struct api_call *call, int32_t choice, const char *text,
                      enum finish_reason finish, int32_t stop, struct byte_buffer *out) {
    struct token_record record = {.token = 'a', .logprob = -0.5f, .num_top = 1};
    struct top_logprob top = {.token = 'b', .logprob = -0.25f};
    struct token_event event = {
        .kind = TOKEN_EVENT_TEXT,
        .choice = choice,
        .text = text,
        .text_bytes = strlen(text),
        .num_tokens = 1,
        .tokens = &record,
        .top = &top,
        .num_top = 1,
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

static void say(struct api_call *call, int32_t choice, const char *text, enum finish_reason finish,
                struct byte_buffer *out) {
    say_until(call, choice, text, finish, -1, out);
}

static const cJSON *at(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (item == NULL)
        fail_msg("no %s", name);
    return item;
}

static const cJSON *item_at(const cJSON *array, int index) {
    const cJSON *item = cJSON_GetArrayItem(array, index);
    assert_non_null(item);
    return item;
}

static void expect_text(const cJSON *json, const char *name, const char *expected) {
    const cJSON *item = at(json, name);
    if (expected == NULL)
        assert_true(cJSON_IsNull(item));
    else
        assert_string_equal(cJSON_GetStringValue(item), expected);
}

static void expect_number(const cJSON *json, const char *name, double expected) {
    assert_true(at(json, name)->valuedouble == expected);
}

/* The whole answer of a call that one event ends. */
static cJSON *answer(const char *fields, const char *text) {
    struct byte_buffer out = {0};
    struct api_call *call = begin(fields);
    say(call, 0, text, FINISH_STOP, &out);
    assert_true(api_call_is_done(call));
    cJSON *json = cJSON_ParseWithLength(out.data, out.length);
    assert_non_null(json);
    byte_buffer_finish(&out);
    api_call_destroy(call);
    return json;
}

/* The frames of a stream; the last one, [DONE], is checked and left out. */
static int split(const struct byte_buffer *out, cJSON **frames) {
    int count = 0;
    const char *data = out->data, *end = out->data + out->length;
    while (data < end) {
        const char *stop = memmem(data, (size_t)(end - data), "\n\n", 2);
        assert_non_null(stop);
        assert_memory_equal(data, "data: ", 6);
        if (stop + 2 == end) {
            assert_memory_equal(data, "data: [DONE]", 12);
            return count;
        }
        assert_true(count < MAX_FRAMES);
        frames[count++] = cJSON_ParseWithLength(data + 6, (size_t)(stop - data) - 6);
        assert_non_null(frames[count - 1]);
        data = stop + 2;
    }
    fail_msg("the stream has no end");
    return 0;
}

static void delete_frames(cJSON **frames, int count) {
    for (int i = 0; i < count; i++)
        cJSON_Delete(frames[i]);
}

static void a_whole_answer_is_a_chat_completion(void **state) {
    cJSON *json = answer(HELLO, "Hello");
    const cJSON *choice = item_at(at(json, "choices"), 0), *usage = at(json, "usage");
    assert_memory_equal(cJSON_GetStringValue(at(json, "id")), "chatcmpl-", 9);
    expect_text(json, "object", "chat.completion");
    expect_text(json, "model", "m");
    expect_text(json, "system_fingerprint", "fp");
    expect_number(choice, "index", 0);
    expect_text(at(choice, "message"), "role", "assistant");
    expect_text(at(choice, "message"), "content", "Hello");
    expect_text(choice, "finish_reason", "stop");
    assert_true(cJSON_IsNull(at(choice, "logprobs")));
    expect_number(usage, "prompt_tokens", 20);
    expect_number(usage, "completion_tokens", 5);
    expect_number(usage, "total_tokens", 25);
    expect_number(at(usage, "prompt_tokens_details"), "cached_tokens", 2);
    cJSON_Delete(json);
}

static void without_a_limit_the_answer_may_fill_the_context(void **state) {
    struct api_call *call = begin(HELLO);
    assert_int_equal(api_call_num_requests(call), 1);
    assert_int_equal(api_call_request(call, 0)->params.max_tokens, 256 - 20);
    assert_true(api_call_request(call, 0)->params.skip_special_tokens);
    api_call_destroy(call);
}

static void calls_are_taken_out_of_the_text(void **state) {
    cJSON *json = answer(HELLO "," TOOLS, "Look: " CALL);
    const cJSON *choice = item_at(at(json, "choices"), 0), *message = at(choice, "message");
    const cJSON *call = item_at(at(message, "tool_calls"), 0);
    expect_text(message, "content", "Look:");
    expect_text(call, "type", "function");
    expect_text(at(call, "function"), "name", "f");
    expect_text(at(call, "function"), "arguments", "{}");
    expect_text(choice, "finish_reason", "tool_calls");
    cJSON_Delete(json);
}

/* Adds what a stream says to its content and its calls' arguments; returns its finish reason. */
static const char *collect(cJSON **frames, int count, struct byte_buffer *content,
                           struct byte_buffer *arguments) {
    const char *reason = NULL;
    for (int i = 0; i < count; i++) {
        const cJSON *choice = item_at(at(frames[i], "choices"), 0), *delta = at(choice, "delta");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(delta, "content"), *call;
        if (cJSON_IsString(text))
            byte_buffer_append_text(content, text->valuestring);
        cJSON_ArrayForEach(call, cJSON_GetObjectItemCaseSensitive(delta, "tool_calls"))
            byte_buffer_append_text(arguments,
                                    cJSON_GetStringValue(at(at(call, "function"), "arguments")));
        if (cJSON_IsString(at(choice, "finish_reason")))
            reason = at(choice, "finish_reason")->valuestring;
    }
    byte_buffer_append(content, "", 1);
    byte_buffer_append(arguments, "", 1);
    return reason;
}

/* No half of a call is said to be a call: streamed letter by letter, and whole. */
static void a_broken_call_is_text(void **state) {
    static const char half[] = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"rm -rf ";
    static const struct {
        const char *before, *text, *content, *arguments, *reason;
        enum finish_reason finish;
        int32_t stop;
    } ends[] = {
        {"",
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"command\":\"rm -rf "
         "\\$HOME/tmp/x\"}}</tool_call>",
         "", "{\"command\":\"rm -rf \\\\$HOME/tmp/x\"}", "tool_calls", FINISH_STOP, -1},
        {"", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"b\" \"c\"}}</tool_call>",
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"b\" \"c\"}}</tool_call>", "", "stop",
         FINISH_STOP, -1},
        {"", half, half, "", "stop", FINISH_STOP, -1},
        {"", half, half, "", "stop", FINISH_STOP, 0},
        {"", half, half, "", "length", FINISH_LENGTH, -1},
        {CALL, half, half, "{}", "stop", FINISH_STOP, 0},
        {CALL, half, half, "{}", "tool_calls", FINISH_STOP, -1},
        {"", "Look:\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n```",
         "Look:", "{\"a\": 1}", "tool_calls", FINISH_STOP, -1},
    };
    for (size_t i = 0; i < 2 * sizeof(ends) / sizeof(ends[0]); i++) {
        struct byte_buffer out = {0}, content = {0}, arguments = {0};
        cJSON *frames[MAX_FRAMES];
        size_t k = i / 2;
        bool is_whole = i % 2 == 0;
        struct api_call *call = begin(HELLO "," TOOLS ",\"stream\":true,\"stop\":[\"x\"]");
        say(call, 0, ends[k].before, FINISH_NONE, &out);
        for (const char *at = ends[k].text; !is_whole && *at != '\0'; at++)
            say(call, 0, (char[]){*at, '\0'}, FINISH_NONE, &out);
        say_until(call, 0, is_whole ? ends[k].text : "", ends[k].finish, ends[k].stop, &out);
        int count = split(&out, frames);
        const char *reason = collect(frames, count, &content, &arguments);
        assert_string_equal(content.data, ends[k].content);
        assert_string_equal(arguments.data, ends[k].arguments);
        assert_string_equal(reason, ends[k].reason);
        delete_frames(frames, count);
        byte_buffer_finish(&out);
        byte_buffer_finish(&content);
        byte_buffer_finish(&arguments);
        api_call_destroy(call);
    }
}

/* The grammar is the engine's to keep; what the answer has besides calls was cut off. */
static void a_forced_call_has_a_form(void **state) {
    static const char *const choices[] = {"\"required\"", NAMED_F};
    static const char *const reasons[] = {"tool_calls", "stop"};
    for (int i = 0; i < 2; i++) {
        char fields[512];
        snprintf(fields, sizeof(fields), HELLO "," TOOLS ",\"tool_choice\":%s", choices[i]);
        struct api_call *call = begin(fields);
        assert_non_null(api_call_request(call, 0)->params.grammar);
        api_call_destroy(call);
        cJSON *json = answer(fields, CALL "\n<tool_call>\n{\"na");
        const cJSON *choice = item_at(at(json, "choices"), 0), *message = at(choice, "message");
        assert_true(cJSON_IsNull(at(message, "content")));
        assert_int_equal(cJSON_GetArraySize(at(message, "tool_calls")), 1);
        expect_text(choice, "finish_reason", reasons[i]);
        cJSON_Delete(json);
    }
    struct api_call *call = begin(HELLO "," TOOLS);
    assert_null(api_call_request(call, 0)->params.grammar);
    api_call_destroy(call);
}

static void functions_answer_in_their_own_form(void **state) {
    cJSON *json = answer(HELLO "," FUNCTIONS, "Look: " CALL CALL);
    const cJSON *choice = item_at(at(json, "choices"), 0), *message = at(choice, "message");
    assert_null(cJSON_GetObjectItemCaseSensitive(message, "tool_calls"));
    expect_text(at(message, "function_call"), "name", "f");
    expect_text(at(message, "function_call"), "arguments", "{}");
    expect_text(message, "content", "Look:" CALL);
    expect_text(choice, "finish_reason", "function_call");
    cJSON_Delete(json);
    json = answer(HELLO "," FUNCTIONS ",\"function_call\":{\"name\":\"f\"}", CALL);
    expect_text(item_at(at(json, "choices"), 0), "finish_reason", "stop");
    cJSON_Delete(json);
}

static void without_tools_calls_are_text(void **state) {
    static const char *const fields[] = {HELLO, HELLO "," TOOLS ",\"tool_choice\":\"none\""};
    for (int i = 0; i < 2; i++) {
        cJSON *json = answer(fields[i], CALL);
        const cJSON *choice = item_at(at(json, "choices"), 0);
        expect_text(at(choice, "message"), "content", CALL);
        expect_text(choice, "finish_reason", "stop");
        cJSON_Delete(json);
    }
}

static void reasoning_is_counted(void **state) {
    cJSON *json = answer(HELLO ",\"chat_template_kwargs\":{\"thinking\":true}", "so</think>Yes");
    const cJSON *message = at(item_at(at(json, "choices"), 0), "message");
    expect_text(message, "reasoning", "so");
    expect_text(message, "content", "Yes");
    expect_number(at(at(json, "usage"), "completion_tokens_details"), "reasoning_tokens", 5);
    cJSON_Delete(json);
}

static void echo_begins_with_the_final_message(void **state) {
    cJSON *json = answer("\"messages\":[{\"role\":\"assistant\",\"content\":\"I am\"}],"
                         "\"continue_final_message\":true,\"echo\":true",
                         " fine");
    expect_text(at(item_at(at(json, "choices"), 0), "message"), "content", "I am fine");
    cJSON_Delete(json);
}

static void logprobs_and_token_ids_are_told(void **state) {
    cJSON *json =
        answer(HELLO ",\"logprobs\":true,\"top_logprobs\":1,\"return_token_ids\":true", "a");
    const cJSON *choice = item_at(at(json, "choices"), 0);
    const cJSON *entry = item_at(at(at(choice, "logprobs"), "content"), 0);
    expect_text(entry, "token", "a");
    expect_text(item_at(at(entry, "top_logprobs"), 0), "token", "b");
    assert_true(item_at(at(choice, "token_ids"), 0)->valuedouble == 'a');
    assert_int_equal(cJSON_GetArraySize(at(json, "prompt_token_ids")), 20);
    cJSON_Delete(json);
}

static void every_choice_answers(void **state) {
    struct byte_buffer out = {0};
    struct api_call *call = begin(HELLO ",\"n\":2");
    say(call, 1, "one", FINISH_LENGTH, &out);
    assert_int_equal(out.length, 0);
    say(call, 0, "zero", FINISH_STOP, &out);
    cJSON *json = cJSON_ParseWithLength(out.data, out.length);
    const cJSON *choices = at(json, "choices");
    expect_text(at(item_at(choices, 0), "message"), "content", "zero");
    expect_text(at(item_at(choices, 1), "message"), "content", "one");
    expect_text(item_at(choices, 1), "finish_reason", "length");
    cJSON_Delete(json);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

static void a_stream_has_its_order(void **state) {
    struct byte_buffer out = {0};
    cJSON *frames[MAX_FRAMES];
    struct api_call *call =
        begin(HELLO ",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    assert_true(api_call_is_stream(call));
    say(call, 0, "Hel", FINISH_NONE, &out);
    say(call, 0, "", FINISH_NONE, &out);
    say(call, 0, "lo", FINISH_STOP, &out);
    int count = split(&out, frames);
    assert_int_equal(count, 4);
    for (int i = 0; i < count; i++) {
        expect_text(frames[i], "object", "chat.completion.chunk");
        expect_text(frames[i], "id", cJSON_GetStringValue(at(frames[0], "id")));
    }
    const cJSON *first = item_at(at(frames[0], "choices"), 0);
    expect_text(at(first, "delta"), "role", "assistant");
    expect_text(at(first, "delta"), "content", "");
    assert_true(cJSON_IsNull(at(frames[0], "usage")));
    const cJSON *second = at(item_at(at(frames[1], "choices"), 0), "delta");
    expect_text(second, "content", "Hel");
    assert_null(cJSON_GetObjectItemCaseSensitive(second, "role"));
    expect_text(item_at(at(frames[2], "choices"), 0), "finish_reason", "stop");
    assert_int_equal(cJSON_GetArraySize(at(frames[3], "choices")), 0);
    expect_number(at(frames[3], "usage"), "completion_tokens", 5);
    delete_frames(frames, count);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

static void expect_usage(const cJSON *frame, int num_tokens) {
    expect_number(at(frame, "usage"), "completion_tokens", num_tokens);
}

/* What a frame counts is what was sent by then: none with the role. */
static void usage_grows_with_the_text(void **state) {
    static const int counts[] = {0, 5, 5, 5};
    struct byte_buffer out = {0};
    cJSON *frames[MAX_FRAMES];
    struct api_call *call =
        begin(HELLO ",\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                    "\"continuous_usage_stats\":true}");
    say(call, 0, "Hel", FINISH_NONE, &out);
    say(call, 0, "", FINISH_NONE, &out);
    say(call, 0, "lo", FINISH_STOP, &out);
    int count = split(&out, frames);
    assert_int_equal(count, 4);
    for (int i = 0; i < count; i++)
        expect_usage(frames[i], counts[i]);
    delete_frames(frames, count);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

/* vLLM's keys are there when nothing is in them. */
static void unused_keys_are_null(void **state) {
    cJSON *json = answer(HELLO, "a");
    const cJSON *choice = item_at(at(json, "choices"), 0);
    assert_true(cJSON_IsNull(at(json, "prompt_logprobs")));
    assert_true(cJSON_IsNull(at(json, "prompt_token_ids")));
    assert_true(cJSON_IsNull(at(choice, "token_ids")));
    assert_true(cJSON_IsNull(at(at(choice, "message"), "reasoning")));
    assert_true(cJSON_IsNull(at(at(choice, "message"), "reasoning_content")));
    cJSON_Delete(json);
}

static void a_streamed_call_is_named_once(void **state) {
    struct byte_buffer out = {0};
    cJSON *frames[MAX_FRAMES];
    int num_names = 0;
    struct api_call *call = begin(HELLO "," TOOLS ",\"stream\":true");
    static const char text[] = CALL;
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        char letter[2] = {text[i]};
        say(call, 0, letter, i + 2 == sizeof(text) ? FINISH_STOP : FINISH_NONE, &out);
    }
    int count = split(&out, frames);
    for (int i = 0; i < count; i++) {
        const cJSON *delta = at(item_at(at(frames[i], "choices"), 0), "delta");
        const cJSON *calls = cJSON_GetObjectItemCaseSensitive(delta, "tool_calls");
        if (calls == NULL)
            continue;
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(calls->child, "id");
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(at(calls->child, "function"), "name");
        assert_int_equal(id != NULL, name != NULL);
        num_names += name != NULL;
    }
    assert_int_equal(num_names, 1);
    expect_text(item_at(at(frames[count - 1], "choices"), 0), "finish_reason", "tool_calls");
    delete_frames(frames, count);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

static void a_streamed_function_call_is_named_once(void **state) {
    struct byte_buffer out = {0}, arguments = {0};
    cJSON *frames[MAX_FRAMES];
    int num_names = 0;
    struct api_call *call = begin(HELLO "," FUNCTIONS ",\"stream\":true");
    static const char text[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\":";
    say(call, 0, text, FINISH_NONE, &out);
    say(call, 0, " 1}}</tool_call>", FINISH_STOP, &out);
    int count = split(&out, frames);
    for (int i = 0; i < count; i++) {
        const cJSON *delta = at(item_at(at(frames[i], "choices"), 0), "delta");
        const cJSON *part = cJSON_GetObjectItemCaseSensitive(delta, "function_call");
        assert_null(cJSON_GetObjectItemCaseSensitive(delta, "tool_calls"));
        if (part == NULL)
            continue;
        num_names += cJSON_GetObjectItemCaseSensitive(part, "name") != NULL;
        byte_buffer_append_text(&arguments, cJSON_GetStringValue(at(part, "arguments")));
    }
    byte_buffer_append(&arguments, "", 1);
    assert_int_equal(num_names, 1);
    assert_string_equal(arguments.data, "{\"a\": 1}");
    expect_text(item_at(at(frames[count - 1], "choices"), 0), "finish_reason", "function_call");
    delete_frames(frames, count);
    byte_buffer_finish(&arguments);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

static void an_early_failure_is_an_event(void **state) {
    struct byte_buffer out = {0};
    struct api_error err = {0};
    cJSON *frames[MAX_FRAMES];
    struct api_call *call = begin(HELLO ",\"stream\":true");
    say(call, 0, "", FINISH_ERROR, &out);
    assert_true(api_call_is_done(call));
    assert_true(api_call_error(call, &err));
    assert_int_equal(err.status, 503);
    int count = split(&out, frames);
    assert_int_equal(count, 1);
    expect_text(at(frames[0], "error"), "code", "engine_error");
    delete_frames(frames, count);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

static void a_late_failure_is_an_event(void **state) {
    struct byte_buffer out = {0};
    cJSON *frames[MAX_FRAMES];
    struct api_call *call = begin(HELLO ",\"stream\":true");
    say(call, 0, "x", FINISH_NONE, &out);
    say(call, 0, "", FINISH_ERROR, &out);
    int count = split(&out, frames);
    assert_int_equal(count, 3);
    expect_text(at(frames[2], "error"), "code", "engine_error");
    delete_frames(frames, count);
    byte_buffer_finish(&out);
    api_call_destroy(call);
}

static void the_most_logprobs_are_bounded(void **state) {
    struct api_error err = {0};
    struct api_call *call;
    static const char body[] = "{" HELLO ",\"logprobs\":true,\"top_logprobs\":20,\"n\":16}";
    const struct serving_limits *usual = context.limits;
    struct serving_limits long_limits = *usual;
    long_limits.max_model_len = 1 << 20;
    context.limits = &long_limits;
    assert_int_equal(chat_endpoint_parse(&context, body, strlen(body), &call, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, "top_logprobs");
    context.limits = usual;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer_is_a_chat_completion),
        cmocka_unit_test(without_a_limit_the_answer_may_fill_the_context),
        cmocka_unit_test(calls_are_taken_out_of_the_text),
        cmocka_unit_test(a_forced_call_has_a_form),
        cmocka_unit_test(a_broken_call_is_text),
        cmocka_unit_test(without_tools_calls_are_text),
        cmocka_unit_test(reasoning_is_counted),
        cmocka_unit_test(echo_begins_with_the_final_message),
        cmocka_unit_test(logprobs_and_token_ids_are_told),
        cmocka_unit_test(every_choice_answers),
        cmocka_unit_test(a_stream_has_its_order),
        cmocka_unit_test(usage_grows_with_the_text),
        cmocka_unit_test(unused_keys_are_null),
        cmocka_unit_test(a_streamed_call_is_named_once),
        cmocka_unit_test(functions_answer_in_their_own_form),
        cmocka_unit_test(a_streamed_function_call_is_named_once),
        cmocka_unit_test(an_early_failure_is_an_event),
        cmocka_unit_test(a_late_failure_is_an_event),
        cmocka_unit_test(the_most_logprobs_are_bounded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
