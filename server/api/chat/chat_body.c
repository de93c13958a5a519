#include "server/api/chat/chat_body.h"

#include "config/json/json_parse.h"
#include "server/api/conversation/conversation_fields.h"

#define MEMBER struct conversation

static const struct json_field fields[] = {
    JSON_OTHER(messages),
    JSON_INT(MEMBER, max_completion_tokens, -1, INT32_MAX),
    JSON_BOOL(MEMBER, logprobs),
    JSON_INT(MEMBER, top_logprobs, -1, INT32_MAX), /* --max-logprobs bounds it */
    JSON_OTHER(tools),
    JSON_OTHER(tool_choice),
    JSON_OTHER(parallel_tool_calls),
    JSON_OTHER(functions),
    JSON_OTHER(function_call),
    JSON_TEXT(MEMBER, reasoning_effort),
    JSON_INT(MEMBER, thinking_token_budget, -1, INT32_MAX),
    JSON_BOOL(MEMBER, include_reasoning),
    JSON_BOOL(MEMBER, echo),
    JSON_OTHER(add_generation_prompt),
    JSON_OTHER(continue_final_message),
    JSON_BOOL(MEMBER, add_special_tokens),
    JSON_BOOL(MEMBER, timings_per_token),
    JSON_BOOL(MEMBER, return_progress),
    JSON_OTHER(chat_template_kwargs),
    JSON_OTHER(documents),
    JSON_OTHER(chat_template),
    JSON_OTHER(modalities),
    JSON_OTHER(kv_transfer_params),
};

static const struct conversation_names names = {CHAT_BODY_NAMES, .tools = "tools",
                                                .tool_choice = "tool_choice"};

struct json_table chat_body_table(void) {
    return JSON_TABLE(fields);
}

static int read_all(const struct api_context *context, const cJSON *body, struct conversation *out,
                    struct api_error *err) {
    const cJSON *messages = json_member(body, "messages");
    chat_messages_list_unknown(messages, &out->ignored);
    if (kv_transfer_read(context, body, &out->sampling.transfer, err) != 0 ||
        conversation_fields_read(context, body, JSON_TABLE(fields), out, err) != 0 ||
        chat_tools_read(body, out, err) != 0 ||
        conversation_fields_check_tools(context, out, err) != 0)
        return -1;
    out->documents = json_given_member(body, "documents");
    return chat_messages_read(messages, out, err);
}

int chat_body_parse(const struct api_context *context, const char *text, size_t length,
                    struct conversation *out, struct api_error *err) {
    struct conversation conversation = conversation_defaults(context, &names);
    cJSON *json = json_parse(text, length, err);
    const cJSON *body = json != NULL ? conversation_own(&conversation, json, err) : NULL;
    if (body == NULL || read_all(context, body, &conversation, err) != 0) {
        conversation_finish(&conversation);
        return -1;
    }
    *out = conversation;
    return 0;
}

int chat_body_read_prompt(const struct api_context *context, const cJSON *body,
                          struct conversation *out, struct api_error *err) {
    struct conversation conversation = conversation_defaults(context, &names);
    if (chat_tools_read(body, &conversation, err) != 0 ||
        conversation_fields_read_template(context, body, &conversation, err) != 0 ||
        chat_messages_read(json_member(body, "messages"), &conversation, err) != 0) {
        conversation_finish(&conversation);
        return -1;
    }
    *out = conversation;
    return 0;
}
