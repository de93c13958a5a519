/* Fails the first, second, third ... allocation of a whole chat, as one of /v1/chat/completions, of
 * /v1/responses, /v1/messages, /api/chat and /api/generate, until one run needs no more: each run
 * answers in full or with status 500, and frees what it took. */
#include "server/api/call/endpoints.h"

#include "server/api/responses/response_store.h"

#include "tests/unit/server/api/chat_fixture.h"
#include "tests/unit/failing_allocations.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

static struct api_context context;

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define SCHEMA "{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}"

static const char full_body[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]},"
    "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\","
    "\"arguments\":\"{\\\"a\\\":[1\"}}]},{\"role\":\"tool\",\"content\":\"4\\u0000\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"logprobs\":true,"
    "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":["
    "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}},"
    "\"return_token_ids\":true,\"n\":2,\"chat_template_kwargs\":{\"thinking\":true},"
    "\"stop\":[\"x\"],\"f\\u006fo\":1}";
static const char forced_body[] =
    "{" MESSAGES ",\"n\":2,\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\","
    "\"function\":{\"name\":\"f\",\"parameters\":" SCHEMA "}}]}";
static const char functions_body[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
    "\"function_call\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"role\":\"function\","
    "\"name\":\"f\",\"content\":null}],\"n\":2,\"functions\":[{\"name\":\"f\"}],"
    "\"function_call\":{\"name\":\"f\"}}";
static const char responses_body[] =
    "{\"instructions\":\"i\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
    "\"text\":\"hi\"}]},{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\","
    "\"text\":\"s\"}]},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\","
    "\"arguments\":\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"1\"}],"
    "\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],\"tool_choice\":{\"type\":"
    "\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]},"
    "\"text\":{\"format\":{\"type\":"
    "\"json_schema\",\"name\":\"n\",\"schema\":" SCHEMA "}},\"metadata\":{\"k\":\"v\"},"
    "\"include\":[\"message.output_text.logprobs\"],\"f\\u006fo\":1}";
static const char namespaces_body[] =
    "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"namespace\":\"s\",\"name\":"
    "\"f\",\"arguments\":\"{}\"},{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[{\"type\":"
    "\"namespace\",\"name\":\"s\",\"description\":\"d\",\"tools\":[{"
    "\"type\":\"function\",\"name\":\"f\",\"description\":\"e\"},{\"type\":\"custom\",\"name\":"
    "\"g\",\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\",\"definition\":\"start: /a/\"}}]},"
    "{\"type\":\"function\",\"name\":\"f\"}],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":"
    "\"auto\",\"tools\":[{\"type\":\"custom\",\"namespace\":\"s\",\"name\":\"g\"},{\"type\":"
    "\"function\",\"name\":\"f\"}]}}";
#define GRAMMAR "\"syntax\":\"regex\",\"definition\":\"[a-z]\""
static const char custom_body[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"tool_calls\":"
    "[{\"id\":\"c\",\"type\":\"custom\",\"custom\":{\"name\":\"f\",\"input\":\"i\"}}]},{\"role\":"
    "\"tool\",\"content\":\"4\"}],\"n\":2,\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":"
    "\"f\","
    "\"format\":{\"type\":\"grammar\",\"grammar\":{" GRAMMAR "}}}}],\"tool_choice\":{\"type\":"
    "\"custom\",\"custom\":{\"name\":\"f\"}}}";
/* Of a server that keeps responses, and has this one. */
static const char kept_body[] =
    "{\"previous_response_id\":\"resp_1\",\"input\":[{\"type\":\"custom_tool_call_output\","
    "\"call_id\":\"c\",\"output\":\"1\"},{\"role\":\"user\",\"content\":\"hi\"}],\"background\":"
    "true,"
    "\"tools\":[{\"type\":\"custom\",\"name\":\"f\",\"format\":{\"type\":\"grammar\"," GRAMMAR
    "}}]}";
static const char messages_body[] =
    "{\"max_tokens\":9,\"system\":\"x-anthropic-billing-header: "
    "a\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},"
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"s\",\"signature\":"
    "\"\"},{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\","
    "\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"is_error\":true,\"content\":"
    "\"1\"},{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{}}]}],\"stop_sequences\":[\"x\"],"
    "\"tools\":[{\"name\":\"f\",\"input_schema\":" SCHEMA "}],\"tool_choice\":{\"type\":\"tool\","
    "\"name\":\"f\"},\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5},"
    "\"chat_template_kwargs\":{\"a\":[1]},\"metadata\":{\"user_id\":\"u\"},"
    "\"output_config\":{\"effort\":\"low\"},\"f\\u006fo\":1}";
#define OLLAMA "{\"model\":\"m:latest\",\"stream\":false,\"think\":\"low\",\"format\":" SCHEMA ","
static const char ollama_body[] =
    OLLAMA "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
           "\"thinking\":\"s\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
           "{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"1\"}],\"tools\":[{\"type\":"
           "\"function\",\"function\":{\"name\":\"f\",\"parameters\":" SCHEMA "}}],\"options\":{"
           "\"num_predict\":9,\"stop\":[\"x\"],\"num_ctx\":1},\"logprobs\":true,\"foo\":1}";
static const char generate_body[] =
    OLLAMA "\"system\":\"a\",\"prompt\":\"b\",\"options\":{\"num_predict\":9}}";
static const char suffix_body[] = OLLAMA "\"suffix\":\"c\",\"options\":{\"num_predict\":9}}";
static const char text[] = "so</think>Well <tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}"
                           "</tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
                           "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";

/* Events are pushed with memory at hand: they are the engine's. */
static void push(struct api_call *call, int32_t choice) {
    struct token_record record = {.token = 'a', .logprob = -1.0f};
    struct token_event event = {.kind = TOKEN_EVENT_TEXT,
                                .choice = choice,
                                .text = text,
                                .text_bytes = strlen(text),
                                .num_tokens = 1,
                                .tokens = &record,
                                .finish = FINISH_STOP,
                                .stop_token = -1,
                                .stop_string = -1};
    long left = allocations_left;
    allocations_left = -1;
    assert_int_equal(token_stream_push(&api_call_request(call, 0)->stream, &event), 0);
    allocations_left = left;
}

/* True when the call was answered in full. */
static bool answer(struct api_call *call, struct byte_buffer *out) {
    struct api_error err = {0};
    for (int i = 0; i < api_call_request(call, 0)->params.num_choices && !api_call_is_done(call);
         i++) {
        push(call, i);
        api_call_read(call, api_call_request(call, 0), out);
    }
    assert_true(api_call_is_done(call));
    if (api_call_error(call, &err)) {
        assert_int_equal(err.status, 503);
        assert_int_equal(out->length, 0);
        return false;
    }
    return !out->failed;
}

static bool run_call(api_call_parse *parse, const char *body, long num_allocations) {
    struct api_call *call = NULL;
    struct api_error err = {0};
    struct byte_buffer out = {0};
    allocations_left = num_allocations;
    bool is_whole = false;
    if (parse(&context, body, strlen(body), &call, &err) != 0)
        assert_int_equal(err.status, 503);
    else
        is_whole = answer(call, &out);
    allocations_left = -1;
    if (is_whole) {
        cJSON *json = cJSON_ParseWithLength(out.data, out.length);
        bool is_generate = parse == ollama_endpoint_parse_generate;
        const char *list = parse == chat_endpoint_parse          ? "choices"
                           : parse == messages_endpoint_parse    ? "content"
                           : parse == ollama_endpoint_parse_chat ? "message"
                           : is_generate                         ? "response"
                                                                 : "output";
        const cJSON *member = cJSON_GetObjectItemCaseSensitive(json, list);
        if (is_generate ? !cJSON_IsString(member) : cJSON_GetArraySize(member) < 2)
            fail_msg("%.*s", (int)out.length, out.data);
        cJSON_Delete(json);
    }
    byte_buffer_finish(&out);
    api_call_destroy(call);
    return is_whole;
}

static void try_call(api_call_parse *parse, const char *body) {
    long count = 0;
    while (!run_call(parse, body, count))
        assert_true(++count < 10000);
    assert_true(count > 30);
}

static void open_store(void) {
    static const char items[] =
        "{\"id\":\"a\",\"type\":\"message\",\"role\":\"user\",\"content\":\"hi\"}\n"
        "{\"id\":\"b\",\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"f\",\"input\":"
        "\"i\"}\n";
    const struct stored_response first = {
        .id = "resp_1",
        .object = {"{}", 2},
        .items = {items, strlen(items)},
        .input_bytes = strlen(items),
    };
    context.responses = response_store_create(RESPONSE_STORE_MIN_BYTES);
    assert_true(response_store_put(context.responses, &first));
}

static void every_failed_allocation_is_survived(void **state) {
    cJSON_Hooks hooks = {.malloc_fn = __wrap_malloc, .free_fn = free};
    chat_fixture_init(&context, 1024);
    cJSON_InitHooks(&hooks);
    try_call(chat_endpoint_parse, full_body);
    try_call(chat_endpoint_parse, forced_body);
    try_call(chat_endpoint_parse, functions_body);
    try_call(responses_endpoint_parse, responses_body);
    try_call(responses_endpoint_parse, namespaces_body);
    try_call(messages_endpoint_parse, messages_body);
    try_call(chat_endpoint_parse, custom_body);
    try_call(ollama_endpoint_parse_chat, ollama_body);
    try_call(ollama_endpoint_parse_generate, generate_body);
    try_call(ollama_endpoint_parse_generate, suffix_body);
    open_store();
    try_call(responses_endpoint_parse, kept_body);
    response_store_destroy(context.responses);
    cJSON_InitHooks(NULL);
    chat_fixture_finish(&context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failed_allocation_is_survived)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
