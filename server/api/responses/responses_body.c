#include "server/api/responses/responses_body.h"

#include "config/json/json_write.h"
#include "server/api/conversation/conversation_fields.h"

#include <stdio.h>
#include <string.h>

#define MEMBER struct conversation

static const struct json_alias aliases[] = {
    {"max_tokens", "max_output_tokens"},
    {"reasoning_effort", "reasoning.effort"},
    {"response_format", "text.format"},
    BODY_SYNONYMS,
};

static const struct body_names body_names = {
    .aliases = aliases,
    .num_aliases = sizeof(aliases) / sizeof(aliases[0]),
    .format = "text.format",
    .has_flat_format = true,
};

static const struct conversation_names names = {
    .body = &body_names,
    .messages = "input",
    .tools = "tools",
    .tool_choice = "tool_choice",
    .continue_final = "continue_final_message",
    .wants_logprobs = "message.output_text.logprobs in include",
};

static const struct json_field fields[] = {
    JSON_OTHER(input),
    JSON_OTHER(instructions),
    JSON_OTHER(tools),
    JSON_OTHER(tool_choice),
    JSON_OTHER(parallel_tool_calls),
    JSON_OTHER(text),
    JSON_OTHER(reasoning),
    JSON_OTHER(include),
    JSON_OTHER(metadata),
    JSON_OTHER(store),
    JSON_OTHER(background),
    JSON_OTHER(previous_response_id),
    JSON_OTHER(conversation),
    JSON_OTHER(prompt),
    JSON_OTHER(truncation),
    JSON_OTHER(user),
    JSON_INT(MEMBER, top_logprobs, -1, INT32_MAX), /* --max-logprobs bounds it */
    JSON_INT(MEMBER, thinking_token_budget, -1, INT32_MAX),
    JSON_BOOL(MEMBER, include_reasoning),
    JSON_BOOL(MEMBER, add_special_tokens),
    JSON_OTHER(add_generation_prompt),
    JSON_OTHER(continue_final_message),
    JSON_OTHER(chat_template_kwargs),
    JSON_OTHER(chat_template),
    JSON_OTHER(modalities),
};

/* --- What this server does not support --- */

static int check_absent(const cJSON *body, struct api_error *err) {
    static const char *const stored[] = {"conversation", "prompt"};
    const cJSON *options = json_member(body, "stream_options");
    for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++)
        if (json_given_member(body, stored[i]) != NULL)
            return bad_request(err, "unsupported_value", stored[i],
                               "%s is not supported: the server stores no such objects; "
                               "send the whole input, or previous_response_id",
                               stored[i]);
    if (cJSON_IsTrue(json_member(options, "continuous_usage_stats")))
        return bad_request(err, "unsupported_value", "stream_options.continuous_usage_stats",
                           "stream_options.continuous_usage_stats is not supported: usage comes "
                           "with the last event");
    return 0;
}

/* Fields of chats that would mean something here, but are not part of this endpoint. */
static const char *const unsupported_items[] = {
    "messages",
    "n",
    "best_of",
    "max_tokens",
    "max_completion_tokens",
    "functions",
    "logprobs",
    "timings_per_token",
    "return_progress",
    "function_call",
    "response_format",
    "reasoning_effort",
    "echo",
    "documents",
    "use_beam_search",
    "length_penalty",
    "early_stopping",
    "prompt_logprobs",
    "return_token_ids",
};

/* If nothing is kept, the answer says so. If the client requested it, the field is listed as
 * ignored, too. */
static void note_store(const cJSON *body, bool is_kept, struct conversation *out) {
    if (cJSON_IsTrue(json_member(body, "store")) && !is_kept)
        conversation_ignore(out, "store");
}

/* "disabled" is what this server does. "auto" is listed as ignored: a prompt that does not fit is
 * refused. */
static int read_truncation(const cJSON *body, struct conversation *out, struct api_error *err) {
    const cJSON *item = json_given_member(body, "truncation");
    const char *word = cJSON_GetStringValue(item);
    if (item == NULL || (word != NULL && strcmp(word, "disabled") == 0))
        return 0;
    if (word == NULL || strcmp(word, "auto") != 0)
        return json_refuse(item, "truncation", "\"auto\" or \"disabled\"", err);
    conversation_ignore(out, "truncation");
    return 0;
}

/* --- Messages --- */

static int read_messages(const cJSON *body, const struct responses_conversation *continued,
                         struct conversation *out, struct api_error *err) {
    const cJSON *instructions = json_given_member(body, "instructions");
    if (instructions != NULL && !cJSON_IsString(instructions))
        return json_refuse(instructions, "instructions", "a string", err);
    struct message *message =
        instructions != NULL ? conversation_add_message(out, "system", err) : NULL;
    if (instructions != NULL &&
        (message == NULL || message_add_part(message, instructions->valuestring, err) != 0))
        return -1;
    if (continued->previous != NULL && responses_input_read(continued->previous, out, err) != 0)
        return -1;
    if (responses_input_read(json_member(body, "input"), out, err) != 0)
        return -1;
    return out->num_messages > 0
               ? 0
               : bad_request(err, "invalid_type", "input",
                             "input must not be empty: reasoning alone is not enough");
}

/* --- text, reasoning, include --- */

/* The others concern tools and inputs that are not supported here, or encrypted reasoning, which is
 * returned as plain text anyway. They are listed as ignored. */
static int read_included(const cJSON *item, struct conversation *out, struct api_error *err) {
    static const char *const absent[] = {
        "reasoning.encrypted_content",   "file_search_call.results",
        "web_search_call.results",       "web_search_call.action.sources",
        "message.input_image.image_url", "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
    };
    const char *name = cJSON_IsString(item) ? item->valuestring : "";
    char path[64];
    if (strcmp(name, "message.output_text.logprobs") == 0) {
        out->logprobs = true;
        return 0;
    }
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        if (strcmp(name, absent[i]) != 0)
            continue;
        snprintf(path, sizeof(path), "include.%s", name);
        conversation_ignore(out, path);
        return 0;
    }
    return json_refuse(item, "include",
                       "an array of values that OpenAI's API has, for example "
                       "[\"message.output_text.logprobs\"]",
                       err);
}

static int read_include(const cJSON *body, struct conversation *out, struct api_error *err) {
    const cJSON *include = json_given_member(body, "include"), *item;
    if (include != NULL && !cJSON_IsArray(include))
        return json_refuse(include, "include", "an array of strings", err);
    cJSON_ArrayForEach(item, include) {
        if (read_included(item, out, err) != 0)
            return -1;
    }
    return 0;
}

static int check_kind(const cJSON *body, const char *name, bool is_object, struct api_error *err) {
    const cJSON *item = json_given_member(body, name);
    return item == NULL || (is_object ? cJSON_IsObject(item) : cJSON_IsString(item))
               ? 0
               : json_refuse(item, name, is_object ? "an object" : "a string", err);
}

static int read_text(const cJSON *text, struct conversation *out, struct api_error *err) {
    static const char *const members[] = {"format"};
    static const char *const levels[] = {"low", "medium", "high"};
    const cJSON *verbosity = json_given_member(text, "verbosity");
    const char *level = cJSON_IsString(verbosity) ? verbosity->valuestring : "";
    bool is_level = false;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        is_level = is_level || strcmp(level, levels[i]) == 0;
    if (verbosity != NULL && !is_level)
        return json_refuse(verbosity, "text.verbosity", "\"low\", \"medium\" or \"high\"", err);
    CONVERSATION_IGNORE(out, text, "text", members);
    return 0;
}

static int read_reasoning(const cJSON *reasoning, struct conversation *out, struct api_error *err) {
    static const char *const members[] = {"effort"};
    const cJSON *effort = json_given_member(reasoning, "effort");
    if (effort != NULL && !cJSON_IsString(effort))
        return json_refuse(effort, "reasoning.effort", "a string", err);
    out->reasoning_effort = cJSON_GetStringValue(effort);
    CONVERSATION_IGNORE(out, reasoning, "reasoning", members);
    return 0;
}

static int read_settings(const cJSON *body, struct conversation *out, struct api_error *err) {
    if (check_kind(body, "user", false, err) != 0 || check_kind(body, "text", true, err) != 0 ||
        check_kind(body, "reasoning", true, err) != 0 ||
        check_kind(body, "metadata", true, err) != 0)
        return -1;
    if (read_include(body, out, err) != 0 || read_text(json_member(body, "text"), out, err) != 0)
        return -1;
    return read_reasoning(json_member(body, "reasoning"), out, err);
}

/* --- All fields --- */

static int read_all(const struct api_context *context, const cJSON *body,
                    const struct responses_conversation *continued, struct conversation *out,
                    struct api_error *err) {
    if (check_absent(body, err) != 0 || read_messages(body, continued, out, err) != 0 ||
        responses_tools_read(body, out, err) != 0 || read_settings(body, out, err) != 0)
        return -1;
    note_store(body, continued->is_kept, out);
    if (read_truncation(body, out, err) != 0 ||
        CONVERSATION_FIELDS_REFUSE(body, unsupported_items, err) != 0 ||
        conversation_fields_read(context, body, JSON_TABLE(fields), out, err) != 0)
        return -1;
    return conversation_fields_check_tools(context, out, err);
}

int responses_body_read(const struct api_context *context, const cJSON *body,
                        const struct responses_conversation *continued, struct conversation *out,
                        struct api_error *err) {
    struct conversation conversation = conversation_defaults(context, &names);
    if (read_all(context, body, continued, &conversation, err) != 0) {
        conversation_finish(&conversation);
        return -1;
    }
    *out = conversation;
    return 0;
}

/* --- What the answer repeats --- */

/* Writes a member as the body gave it; if it did not, writes `otherwise`, which is JSON. */
static void echo(const cJSON *parent, const char *name, const char *otherwise,
                 struct byte_buffer *out) {
    const cJSON *item = json_given_member(parent, name);
    json_write_key(out, name);
    if (item != NULL)
        json_write_tree(out, item);
    else
        json_write_raw(out, otherwise);
}

static void echo_text(const cJSON *text, struct byte_buffer *out) {
    json_write_key(out, "text");
    json_write_begin_object(out);
    echo(text, "format", "{\"type\":\"text\"}", out);
    if (json_given_member(text, "verbosity") != NULL)
        echo(text, "verbosity", "null", out);
    json_write_end_object(out);
}

void responses_body_echo(const cJSON *body, bool is_kept, float temperature, float top_p,
                         struct byte_buffer *out) {
    echo(body, "instructions", "null", out);
    echo(body, "max_output_tokens", "null", out);
    echo(body, "metadata", "{}", out);
    echo(body, "parallel_tool_calls", "true", out);
    echo(body, "tool_choice", "\"auto\"", out);
    echo(body, "tools", "[]", out);
    echo_text(json_member(body, "text"), out);
    echo(body, "reasoning", "{\"effort\":null,\"summary\":null}", out);
    echo(body, "top_logprobs", "0", out);
    echo(body, "user", "null", out);
    json_write_key(out, "temperature");
    json_write_float(out, temperature);
    json_write_key(out, "top_p");
    json_write_float(out, top_p);
    echo(body, "background", "false", out);
    echo(body, "previous_response_id", "null", out);
    json_write_raw_member(out, "store", is_kept ? "true" : "false");
    json_write_text_member(out, "truncation", "disabled");
}
