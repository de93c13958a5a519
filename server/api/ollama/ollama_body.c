#include "server/api/ollama/ollama_body.h"

#include "config/json/json_integer.h"
#include "config/json/json_parse.h"
#include "server/api/chat/chat_body.h"
#include "server/api/conversation/chat_model.h"
#include "server/api/conversation/conversation_fields.h"
#include "server/api/fields/unknown_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBER struct conversation
#define TAG ":latest"
#define MAX_DURATION_BYTES 64

static const struct json_alias aliases[] = {
    {"max_tokens", "num_predict"},
    {"repetition_penalty", "repeat_penalty"},
    {"response_format", "format"},
};

static const struct body_names body_names = {
    .aliases = aliases,
    .num_aliases = sizeof(aliases) / sizeof(aliases[0]),
    .format = "format",
    .has_flat_format = true,
    .has_schema_alone = true,
};

static const struct conversation_names names = {
    .body = &body_names,
    .messages = "messages",
    .tools = "tools",
    .tool_choice = "tools",
    .continue_final = "messages",
    .wants_logprobs = "logprobs: true",
};

/* Those before `messages` are /api/generate's. */
static const struct json_field fields[] = {
    JSON_OTHER(prompt),
    JSON_OTHER(system),
    JSON_OTHER(suffix),
    JSON_OTHER(template),
    JSON_OTHER(context),
    JSON_OTHER(images),
    JSON_OTHER(raw),
    JSON_OTHER(messages),
    JSON_OTHER(tools),
    JSON_OTHER(format),
    JSON_OTHER(think),
    JSON_OTHER(options),
    JSON_OTHER(keep_alive),
    JSON_OTHER(truncate),
    JSON_OTHER(shift),
    JSON_BOOL(MEMBER, logprobs),
    JSON_INT(MEMBER, top_logprobs, 0, INT32_MAX), /* --max-logprobs bounds it */
    JSON_OTHER(chat_template),
    JSON_OTHER(chat_template_kwargs),
};
#define NUM_OF_GENERATE 7

int ollama_body_put(cJSON *json, const char *name, cJSON *item, struct api_error *err) {
    cJSON_DeleteItemFromObjectCaseSensitive(json, name);
    if (item != NULL && cJSON_AddItemToObject(json, name, item))
        return 0;
    cJSON_Delete(item);
    return api_error_set_memory(err);
}

static int drop(cJSON *json, const char *name) {
    cJSON_DeleteItemFromObjectCaseSensitive(json, name);
    return 0;
}

/* --- model, keep_alive, options --- */

int ollama_body_take_model(const struct api_context *context, cJSON *json, const char *name,
                           struct api_error *err) {
    cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    const char *model = cJSON_GetStringValue(item);
    if (model == NULL || model[0] == '\0')
        return bad_request(err, "missing_required_parameter", name,
                           "%s must be the name of a model, as /api/tags lists it", name);
    size_t length = strlen(model), tag = strlen(TAG);
    if (api_context_check_model(context, model, err) == 0)
        return 0;
    bool is_tagged = length > tag && strcmp(model + length - tag, TAG) == 0;
    if (is_tagged)
        item->valuestring[length - tag] = '\0';
    if (is_tagged && api_context_check_model(context, model, err) == 0)
        return 0;
    return api_error_set(err, 404, "invalid_request_error", "model_not_found", name,
                         "model '%.64s' not found: this server has '%.64s'", model,
                         context->num_model_names > 0 ? context->model_names[0] : "");
}

/* Reads what Go's time.ParseDuration takes, "1h30m" or "-1s", and seconds without a unit. */
static bool read_duration(const char *text, bool *out_is_zero) {
    static const char *const units[] = {"ns", "us", "µs", "ms", "h", "m", "s"};
    bool is_zero = true;
    if (strlen(text) > MAX_DURATION_BYTES)
        return false;
    text += *text == '-' || *text == '+';
    if (*text == '\0')
        return false;
    while (*text != '\0') {
        size_t digits = strspn(text, "0123456789."), i = 0;
        char *end = NULL;
        is_zero = is_zero && strtod(text, &end) == 0;
        if (digits == 0 || end != text + digits)
            return false;
        text = end;
        while (i < sizeof(units) / sizeof(units[0]) &&
               strncmp(text, units[i], strlen(units[i])) != 0)
            i++;
        if (i < sizeof(units) / sizeof(units[0]))
            text += strlen(units[i]);
        else if (*text != '\0')
            return false;
    }
    *out_is_zero = is_zero;
    return true;
}

int ollama_body_read_keep_alive(const cJSON *json, bool *out_is_zero, struct api_error *err) {
    const cJSON *item = json_given_member(json, "keep_alive");
    const char *text = cJSON_GetStringValue(item);
    *out_is_zero = cJSON_IsNumber(item) && item->valuedouble == 0;
    if (item == NULL || cJSON_IsNumber(item) || (text != NULL && read_duration(text, out_is_zero)))
        return 0;
    return json_refuse(item, "keep_alive", "a number of seconds or a duration such as \"5m\"", err);
}

static void drop_up_to(cJSON *json, const char *name, int64_t most) {
    const cJSON *item = json_given_member(json, name);
    int64_t value = 0;
    if (json_integer_read(item, &value) && value <= most)
        drop(json, name);
}

/* Penalties count all that was written, which cannot be limited: a range is listed as ignored, as
 * programs send it with every penalty. In a range of 0 there is nothing to count. */
static void take_range(cJSON *json, struct conversation *out) {
    static const char *const penalties[] = {"repeat_penalty", "presence_penalty",
                                            "frequency_penalty"};
    static const double neutral[] = {1, 0, 0};
    int64_t range = -1;
    bool is_idle = true;
    if (!json_integer_read(json_given_member(json, "repeat_last_n"), &range) || range < 0)
        return;
    drop(json, "repeat_last_n");
    for (size_t i = 0; i < sizeof(penalties) / sizeof(penalties[0]); i++) {
        const cJSON *item = json_given_member(json, penalties[i]);
        is_idle =
            is_idle && (item == NULL || (cJSON_IsNumber(item) && item->valuedouble == neutral[i]));
        if (range == 0)
            drop(json, penalties[i]);
    }
    if (range > 0 && !is_idle)
        conversation_ignore(out, "options.repeat_last_n");
}

static bool is_unsupported(const cJSON *item) {
    size_t count = 0, i = 0;
    const struct unsupported_field *table = unknown_fields_unsupported(&count);
    while (i < count && strcmp(table[i].name, item->string) != 0)
        i++;
    return i < count;
}

/* What the body has itself counts. Options of loading a model (num_ctx, num_gpu) and unknown ones
 * are listed as ignored. */
static int take_options(cJSON *json, struct conversation *out, struct api_error *err) {
    const struct json_table table = body_names_table(&body_names, sampling_body_table());
    cJSON *options = cJSON_GetObjectItemCaseSensitive(json, "options"), *item;
    if (json_is_given(options) && !cJSON_IsObject(options))
        return json_refuse(options, "options", "an object", err);
    if (cJSON_GetArraySize(options) > OLLAMA_MAX_OPTIONS)
        return bad_request(err, "out_of_range", "options",
                           "options has too many members: at most %d are allowed",
                           OLLAMA_MAX_OPTIONS);
    cJSON_ArrayForEach(item, options) {
        if ((json_fields_know(&table, 1, item->string) || is_unsupported(item)) &&
            json_member(json, item->string) == NULL &&
            ollama_body_put(json, item->string, cJSON_Duplicate(item, true), err) != 0)
            return -1;
    }
    json_fields_list_unknown(options, &table, 1, is_unsupported, "options.", &out->ignored);
    drop_up_to(json, "num_predict", 0); /* to the end of the context */
    drop_up_to(json, "seed", -1);       /* any */
    take_range(json, out);
    return 0;
}

int ollama_body_name_option(const cJSON *json, struct api_error *err) {
    char text[sizeof(err->message)];
    const cJSON *options = json_member(json, "options");
    size_t length = strcspn(err->param, ".[");
    char name[sizeof(err->param)];
    snprintf(name, sizeof(name), "%.*s", (int)length, err->param);
    if (length == 0 || strncmp(err->message, name, length) != 0 ||
        json_given_member(options, name) == NULL)
        return -1;
    snprintf(text, sizeof(text), "%s", err->message);
    snprintf(err->message, sizeof(err->message), "options.%.500s", text);
    return -1;
}

/* --- format, think --- */

/* Makes "json" or a schema the format of the other APIs. */
static int take_format(cJSON *json, struct api_error *err) {
    cJSON *format = cJSON_GetObjectItemCaseSensitive(json, "format");
    if (!json_is_given(format) || json_is_text(format, ""))
        return drop(json, "format");
    if (!cJSON_IsObject(format) && !json_is_text(format, "json"))
        return json_refuse(format, "format", "\"json\" or an object, a JSON schema", err);
    bool is_schema = cJSON_IsObject(format);
    cJSON *made = cJSON_CreateObject();
    cJSON *schema = is_schema ? cJSON_DetachItemFromObjectCaseSensitive(json, "format") : NULL;
    if (cJSON_AddStringToObject(made, "type", is_schema ? "json_schema" : "json_object") != NULL &&
        (!is_schema || cJSON_AddItemToObject(made, "schema", schema)))
        return ollama_body_put(json, "format", made, err);
    cJSON_Delete(schema);
    cJSON_Delete(made);
    return api_error_set_memory(err);
}

/* For a model whose reasoning this server does not recognise, think is listed as ignored: programs
 * send it to any model. */
static int read_think(const struct api_context *context, const cJSON *json,
                      struct conversation *out, struct api_error *err) {
    static const char *const levels[] = {"low", "medium", "high", "max"};
    const cJSON *think = json_given_member(json, "think");
    const char *level = NULL;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        if (json_is_text(think, levels[i]))
            level = levels[i];
    if (think == NULL)
        return 0;
    if (!cJSON_IsBool(think) && level == NULL)
        return json_refuse(think, "think", "true, false, \"low\", \"medium\", \"high\" or \"max\"",
                           err);
    bool reasons = context->chat != NULL && context->chat->reasoning != REASONING_FORMAT_NONE;
    out->thinking = cJSON_IsFalse(think) ? THINKING_OFF : reasons ? THINKING_ON : THINKING_AS_IS;
    out->reasoning_effort = reasons ? level : NULL;
    if (!reasons && !cJSON_IsFalse(think))
        conversation_ignore(out, "think");
    return 0;
}

/* --- Messages --- */

/* Moves a text to the name under which chats have it. */
static int rename_text(cJSON *object, const struct json_path *path, const char *from,
                       const char *to, struct api_error *err) {
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(object, from);
    if (cJSON_IsString(item))
        return ollama_body_put(object, to, item, err);
    if (json_is_given(item))
        json_refuse_at(item, JSON_MEMBER_PATH(path, from), "a string", err);
    int result = json_is_given(item) ? -1 : 0;
    cJSON_Delete(item);
    return result;
}

static int check_images(const cJSON *object, const struct json_path *path, struct api_error *err) {
    const cJSON *images = json_given_member(object, "images");
    if (images == NULL || (cJSON_IsArray(images) && images->child == NULL))
        return 0;
    return bad_request_at(err, "unsupported_content", JSON_MEMBER_PATH(path, "images"),
                          " are not supported: this server takes text only");
}

static int take_messages(cJSON *json, struct api_error *err) {
    const struct json_path *path = JSON_MEMBER_PATH(NULL, "messages");
    cJSON *messages = cJSON_GetObjectItemCaseSensitive(json, "messages"), *message;
    int index = 0;
    if (!cJSON_IsArray(messages))
        return 0; /* refused by who reads them */
    cJSON_ArrayForEach(message, messages) {
        const struct json_path *place = JSON_ITEM_PATH(path, index++);
        if (check_images(message, place, err) != 0 ||
            rename_text(message, place, "thinking", "reasoning", err) != 0 ||
            rename_text(message, place, "tool_name", "name", err) != 0)
            return -1;
        drop(message, "images");
    }
    return 0;
}

static int add_message(cJSON *messages, const char *role, const char *text, struct api_error *err) {
    cJSON *message = cJSON_CreateObject();
    if (cJSON_AddStringToObject(message, "role", role) != NULL &&
        cJSON_AddStringToObject(message, "content", text) != NULL &&
        cJSON_AddItemToArray(messages, message))
        return 0;
    cJSON_Delete(message);
    return api_error_set_memory(err);
}

/* Makes system and prompt the messages of a chat. */
static int make_messages(cJSON *json, struct api_error *err) {
    const char *system = cJSON_GetStringValue(json_member(json, "system")),
               *prompt = cJSON_GetStringValue(json_member(json, "prompt"));
    cJSON *messages = cJSON_AddArrayToObject(json, "messages");
    if (messages == NULL)
        return api_error_set_memory(err);
    if (system != NULL && system[0] != '\0' && add_message(messages, "system", system, err) != 0)
        return -1;
    return add_message(messages, "user", prompt, err);
}

/* --- All fields of /api/chat and /api/generate --- */

/* Fields of other APIs that would change what is answered in a way that this form has no place
 * for. */
static const char *const others[] = {
    "add_generation_prompt",
    "best_of",
    "continue_final_message",
    "documents",
    "echo",
    "function_call",
    "functions",
    "include_reasoning",
    "logprob_token_ids",
    "max_completion_tokens",
    "max_tokens",
    "n",
    "parallel_tool_calls",
    "prompt_logprobs",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "stream_options",
    "tool_choice",
    "use_beam_search",
};
static const char *const of_chats[] = {"messages", "tools"};
static const char *const of_generate[] = {"prompt", "system",  "suffix", "template",
                                          "raw",    "context", "images"};

static int check_text(const cJSON *json, const char *name, struct api_error *err) {
    const cJSON *item = json_given_member(json, name);
    return item == NULL || cJSON_IsString(item) ? 0 : json_refuse(item, name, "a string", err);
}

/* Refuses what is given, unless it requests nothing. */
static int refuse_given(const cJSON *json, const char *name, bool is_neutral, const char *why,
                        struct api_error *err) {
    if (is_neutral || json_given_member(json, name) == NULL)
        return 0;
    return bad_request(err, "unsupported_parameter", name, "%s is not supported: %s", name, why);
}

static int check_unsupported(const cJSON *json, struct api_error *err) {
    static const char cut[] = "a prompt that the context does not hold is refused, and output ends "
                              "with the context",
                      source[] = "the server has the model's, or that of --chat-template",
                      history[] = "send the messages to /api/chat";
    const cJSON *context = json_member(json, "context");
    if (refuse_given(json, "template", json_is_text(json_member(json, "template"), ""), source,
                     err) != 0 ||
        refuse_given(json, "context", cJSON_IsArray(context) && context->child == NULL, history,
                     err) != 0 ||
        refuse_given(json, "truncate", cJSON_IsFalse(json_member(json, "truncate")), cut, err) != 0)
        return -1;
    return refuse_given(json, "shift", cJSON_IsFalse(json_member(json, "shift")), cut, err);
}

static int take_generate(const struct api_context *context, cJSON *json, struct ollama_body *out,
                         struct api_error *err) {
    const cJSON *raw = json_given_member(json, "raw");
    if (CONVERSATION_FIELDS_REFUSE(json, of_chats, err) != 0 ||
        check_text(json, "prompt", err) != 0 || check_text(json, "system", err) != 0 ||
        check_text(json, "suffix", err) != 0 || check_images(json, NULL, err) != 0)
        return -1;
    if (raw != NULL && !cJSON_IsBool(raw))
        return json_refuse(raw, "raw", "true or false", err);
    const cJSON *prompt = json_given_member(json, "prompt");
    const char *suffix = cJSON_GetStringValue(json_member(json, "suffix"));
    bool has_template = context->chat != NULL && context->chat->chat_template != NULL;
    out->suffix = suffix != NULL && suffix[0] != '\0' ? suffix : NULL;
    bool is_load = out->suffix == NULL && (prompt == NULL || prompt->valuestring[0] == '\0');
    out->done_reason = is_load ? "load" : NULL;
    if (!is_load && !cJSON_IsTrue(raw) && out->suffix == NULL && has_template)
        return make_messages(json, err);
    if (prompt == NULL && ollama_body_put(json, "prompt", cJSON_CreateString(""), err) != 0)
        return -1;
    out->prompt = json_member(json, "prompt");
    return 0;
}

static int take_chat(cJSON *json, struct ollama_body *out, struct api_error *err) {
    const cJSON *messages = json_given_member(json, "messages");
    if (CONVERSATION_FIELDS_REFUSE(json, of_generate, err) != 0)
        return -1;
    bool is_load = messages == NULL || (cJSON_IsArray(messages) && messages->child == NULL);
    out->done_reason = is_load ? "load" : NULL;
    return take_messages(json, err);
}

static int take(const struct api_context *context, cJSON *json, struct ollama_body *out,
                struct api_error *err) {
    bool is_zero = false;
    if (ollama_body_take_model(context, json, "model", err) != 0 ||
        ollama_body_read_keep_alive(json, &is_zero, err) != 0 ||
        take_options(json, &out->conversation, err) != 0 ||
        CONVERSATION_FIELDS_REFUSE(json, others, err) != 0 || check_unsupported(json, err) != 0 ||
        take_format(json, err) != 0)
        return -1;
    int result = out->is_chat ? take_chat(json, out, err) : take_generate(context, json, out, err);
    if (out->done_reason != NULL && is_zero)
        out->done_reason = "unload";
    return result;
}

/* The answer continues the assistant's last message. */
static int read_messages(const cJSON *json, struct conversation *out, struct api_error *err) {
    const cJSON *messages = json_given_member(json, "messages");
    chat_messages_list_unknown(messages, &out->ignored);
    if (chat_messages_read(messages, out, err) != 0)
        return -1;
    const struct message *last = conversation_last(out);
    out->continue_final_message = last->role == MESSAGE_ASSISTANT && last->num_calls == 0;
    return 0;
}

static int read_all(const struct api_context *context, const cJSON *json, struct ollama_body *body,
                    struct api_error *err) {
    struct conversation *out = &body->conversation;
    int first = body->is_chat ? NUM_OF_GENERATE : 0;
    const struct json_table own = {.fields = fields + first,
                                   .num_fields = (int)(sizeof(fields) / sizeof(fields[0])) - first};
    bool has_messages = body->prompt == NULL && body->done_reason == NULL;
    if ((has_messages && read_messages(json, out, err) != 0) ||
        read_think(context, json, out, err) != 0 ||
        conversation_fields_read(context, json, own, out, err) != 0)
        return -1;
    out->sampling.max_tokens_field = NULL; /* output that does not fit into the context is cut */
    return chat_tools_read(json, out, err) == 0 ? conversation_fields_check_tools(context, out, err)
                                                : -1;
}

static int read_body(const struct api_context *context, cJSON *json, struct ollama_body *out,
                     struct api_error *err) {
    return take(context, json, out, err) == 0 && read_all(context, json, out, err) == 0
               ? 0
               : ollama_body_name_option(json, err);
}

int ollama_body_parse(const struct api_context *context, const char *text, size_t length,
                      bool is_chat, struct ollama_body *out, struct api_error *err) {
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    struct ollama_body body = {.conversation = conversation_defaults(context, &names),
                               .is_chat = is_chat};
    body.conversation.sampling.stream = true;
    if (conversation_own(&body.conversation, json, err) == NULL ||
        read_body(context, json, &body, err) != 0) {
        ollama_body_finish(&body);
        return -1;
    }
    *out = body;
    return 0;
}

void ollama_body_finish(struct ollama_body *body) {
    conversation_finish(&body->conversation);
}
