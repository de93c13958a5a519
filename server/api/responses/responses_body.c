#include "server/api/responses/responses_body.h"

#include "server/api/call/api_call_type.h"
#include "server/api/chat/chat_error_names.h"
#include "server/api/chat/chat_translation.h"
#include "server/api/responses/responses_tools.h"
#include "config/json/json_field.h"
#include "config/json/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATH 64

struct translation {
    const cJSON *body;
    const struct responses_conversation *conversation;
    cJSON *chat;
    struct api_error *err;
};

static int add(struct translation *t, cJSON *object, const char *name, cJSON *member) {
    return chat_translation_add(object, name, member, t->err);
}

static int refer(struct translation *t, cJSON *object, const char *name, const cJSON *member) {
    return chat_translation_refer(object, name, member, t->err);
}

static int refuse(struct translation *t, const char *param, const char *message) {
    return bad_request(t->err, "unsupported_value", param, "%s", message);
}

static int check_object(struct translation *t, const char *name) {
    const cJSON *item = json_member(t->body, name);
    return !json_is_given(item) || cJSON_IsObject(item)
               ? 0
               : json_refuse(item, name, "an object", t->err);
}

#define PASS_ON(t, object, prefix, known)                                                          \
    CHAT_TRANSLATION_PASS_ON((t)->chat, object, prefix, known, (t)->err)

/* --- What this server does not have --- */

static int check_absent(struct translation *t) {
    static const char *const stored[] = {"conversation", "prompt"};
    for (size_t i = 0; i < sizeof(stored) / sizeof(stored[0]); i++)
        if (json_is_given(json_member(t->body, stored[i])))
            return bad_request(t->err, "unsupported_value", stored[i],
                               "%s is not supported: this server has no objects of its own; "
                               "send the whole input, or previous_response_id",
                               stored[i]);
    if (cJSON_IsTrue(json_member(json_member(t->body, "stream_options"), "continuous_usage_stats")))
        return refuse(t, "stream_options.continuous_usage_stats",
                      "stream_options.continuous_usage_stats is not supported: usage comes with "
                      "the last event");
    return 0;
}

/* Where nothing is kept the answer says so; a client that requested it finds it named as ignored as
 * well. */
static int translate_store(struct translation *t) {
    const cJSON *store = json_member(t->body, "store");
    bool is_ignored = cJSON_IsTrue(store) && !t->conversation->is_kept;
    return is_ignored ? refer(t, t->chat, "store", store) : 0;
}

/* "disabled" is what happens; "auto" is passed on, so that it is named as ignored: what does not
 * fit is refused. */
static int translate_truncation(struct translation *t) {
    const cJSON *item = json_member(t->body, "truncation");
    bool is_text = cJSON_IsString(item);
    if (!json_is_given(item) || (is_text && strcmp(item->valuestring, "disabled") == 0))
        return 0;
    if (!is_text || strcmp(item->valuestring, "auto") != 0)
        return json_refuse(item, "truncation", "\"auto\" or \"disabled\"", t->err);
    return refer(t, t->chat, "truncation", item);
}

/* --- Messages --- */

static int translate_messages(struct translation *t) {
    const cJSON *instructions = json_member(t->body, "instructions");
    cJSON *messages = cJSON_AddArrayToObject(t->chat, "messages");
    if (messages == NULL)
        return api_error_set_memory(t->err);
    if (json_is_given(instructions)) {
        if (!cJSON_IsString(instructions))
            return json_refuse(instructions, "instructions", "a string", t->err);
        cJSON *message = cJSON_CreateObject();
        if (message == NULL || !cJSON_AddItemToArray(messages, message))
            return api_error_set_memory(t->err);
        if (add(t, message, "role", cJSON_CreateStringReference("system")) != 0 ||
            refer(t, message, "content", instructions) != 0)
            return -1;
    }
    if (t->conversation->previous != NULL &&
        responses_input_read(t->conversation->previous, messages, t->err) != 0)
        return -1;
    return responses_input_read(json_member(t->body, "input"), messages, t->err);
}

/* --- text, reasoning, include --- */

static int translate_format(struct translation *t) {
    static const char *const members[] = {"type", "name", "description", "schema", "strict"};
    const cJSON *format = json_member(json_member(t->body, "text"), "format"),
                *type = json_member(format, "type");
    if (!json_is_given(format))
        return 0;
    if (!cJSON_IsObject(format))
        return json_refuse(format, "text.format", "an object", t->err);
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "json_schema") != 0)
        return refer(t, t->chat, "response_format", format);
    cJSON *made = cJSON_AddObjectToObject(t->chat, "response_format");
    if (made == NULL)
        return api_error_set_memory(t->err);
    if (refer(t, made, members[0], type) != 0)
        return -1;
    cJSON *schema = cJSON_AddObjectToObject(made, "json_schema");
    if (schema == NULL)
        return api_error_set_memory(t->err);
    for (size_t i = 1; i < sizeof(members) / sizeof(members[0]); i++)
        if (refer(t, schema, members[i], json_member(format, members[i])) != 0)
            return -1;
    return PASS_ON(t, format, "text.format", members);
}

/* The others are of tools and inputs that are not here, or, encrypted reasoning, come as plain text
 * anyway: they are passed on, so that they are named as ignored. */
static int translate_include_item(struct translation *t, const cJSON *item) {
    static const char *const absent[] = {
        "reasoning.encrypted_content",   "file_search_call.results",
        "web_search_call.results",       "web_search_call.action.sources",
        "message.input_image.image_url", "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
    };
    const char *name = cJSON_IsString(item) ? item->valuestring : "";
    char path[MAX_PATH];
    if (strcmp(name, "message.output_text.logprobs") == 0) {
        snprintf(path, sizeof(path), "logprobs");
    } else if (CHAT_TRANSLATION_HAS(absent, name)) {
        snprintf(path, sizeof(path), "include.%s", name);
    } else {
        return json_refuse(item, "include",
                           "an array of values that OpenAI's API has, for example "
                           "[\"message.output_text.logprobs\"]",
                           t->err);
    }
    return json_member(t->chat, path) != NULL ? 0 : add(t, t->chat, path, cJSON_CreateTrue());
}

static int translate_include(struct translation *t) {
    const cJSON *include = json_member(t->body, "include"), *item;
    if (!json_is_given(include))
        return 0;
    if (!cJSON_IsArray(include))
        return json_refuse(include, "include", "an array of strings", t->err);
    cJSON_ArrayForEach(item, include) {
        if (translate_include_item(t, item) != 0)
            return -1;
    }
    return 0;
}

static int translate_settings(struct translation *t) {
    static const char *const text_members[] = {"format"}, *const reasoning_members[] = {"effort"};
    static const char *const levels[] = {"low", "medium", "high"};
    const cJSON *user = json_member(t->body, "user");
    const cJSON *verbosity = json_given_member(json_member(t->body, "text"), "verbosity");
    if (json_is_given(user) && !cJSON_IsString(user))
        return json_refuse(user, "user", "a string", t->err);
    if (check_object(t, "text") != 0 || check_object(t, "reasoning") != 0 ||
        check_object(t, "metadata") != 0)
        return -1;
    if (verbosity != NULL &&
        !(cJSON_IsString(verbosity) && CHAT_TRANSLATION_HAS(levels, verbosity->valuestring)))
        return json_refuse(verbosity, "text.verbosity", "\"low\", \"medium\" or \"high\"", t->err);
    if (translate_include(t) != 0 ||
        PASS_ON(t, json_member(t->body, "text"), "text", text_members) != 0 ||
        PASS_ON(t, json_member(t->body, "reasoning"), "reasoning", reasoning_members) != 0)
        return -1;
    if (refer(t, t->chat, "reasoning_effort",
              json_member(json_member(t->body, "reasoning"), "effort")) != 0 ||
        refer(t, t->chat, "max_completion_tokens", json_member(t->body, "max_output_tokens")) != 0)
        return -1;
    return translate_format(t);
}

/* --- The rest --- */

/* Fields with a place of their own above, or whose value the answer repeats. */
static const char *const taken[] = {
    "input",      "instructions",         "tools",        "tool_choice", "text",
    "reasoning",  "max_output_tokens",    "include",      "metadata",    "store",
    "background", "previous_response_id", "conversation", "prompt",      "truncation",
    "user",
};

/* Fields of the chat that would mean something here without being part of this endpoint. */
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

static int translate_others(struct translation *t) {
    const cJSON *item;
    cJSON_ArrayForEach(item, t->body) {
        if (CHAT_TRANSLATION_HAS(taken, item->string))
            continue;
        if (CHAT_TRANSLATION_HAS(unsupported_items, item->string) && json_is_given(item))
            return bad_request(t->err, "unknown_parameter", item->string,
                               "%s is a field of /v1/chat/completions, not of this", item->string);
        if (refer(t, t->chat, item->string, item) != 0)
            return -1;
    }
    return 0;
}

cJSON *responses_body_to_chat(const cJSON *body, const struct responses_conversation *conversation,
                              struct api_error *err) {
    struct translation t = {
        .body = body,
        .conversation = conversation,
        .chat = cJSON_CreateObject(),
        .err = err,
    };
    if (t.chat == NULL) {
        api_error_set_memory(err);
        return NULL;
    }
    if (check_absent(&t) == 0 && translate_messages(&t) == 0 &&
        responses_tools_read(body, t.chat, err) == 0 && translate_settings(&t) == 0 &&
        translate_store(&t) == 0 && translate_truncation(&t) == 0 && translate_others(&t) == 0)
        return t.chat;
    cJSON_Delete(t.chat);
    return NULL;
}

/* --- Errors of the chat --- */

/* Here tools, and the choice of some, have their members without objects around them. */
static const struct chat_error_names error_names = {
    .tool_members =
        (const struct chat_error_name[]){
            {".custom.format.grammar", ".format"}, {".custom", ""}, {".function", ""}, {NULL}},
    .fields =
        (const struct chat_error_name[]){
            {"response_format.json_schema", "text.format"},
            {"response_format", "text.format"},
            {"max_completion_tokens", "max_output_tokens"},
            {"reasoning_effort", "reasoning.effort"},
            {"messages", "input"},
            {"tool_choice.allowed_tools", "tool_choice"},
            {NULL},
        },
    .words =
        (const struct chat_error_name[]){
            {"max_completion_tokens", "max_output_tokens"},
            {"logprobs: true", "message.output_text.logprobs in include"},
            {NULL},
        },
};

void responses_body_rename_error(const cJSON *body, struct api_error *err) {
    chat_error_rename(err, &error_names);
    responses_tools_rename_error(body, err);
}

int responses_body_read(const struct api_context *context, const cJSON *body,
                        const struct responses_conversation *conversation, struct chat_body *out,
                        struct api_error *err) {
    cJSON *chat = responses_body_to_chat(body, conversation, err);
    if (chat == NULL)
        return -1;
    if (chat_body_read(context, chat, out, err) != 0) {
        responses_body_rename_error(body, err);
        return -1;
    }
    chat_error_rename_ignored(&out->ignored, &error_names, responses_tools_rename_error, body);
    return 0;
}

/* --- What the answer repeats --- */

/* Writes a member as the body gave it; otherwise: ready-made JSON. */
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
