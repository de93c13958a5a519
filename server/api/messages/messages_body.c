#include "server/api/messages/messages_body.h"

#include "server/api/conversation/chat_model.h"
#include "server/api/conversation/conversation_fields.h"

#include <string.h>

#define MEMBER struct conversation

static const struct json_alias aliases[] = {
    {"stop", "stop_sequences"},
    {"reasoning_effort", "output_config.effort"},
    {"thinking_token_budget", "thinking.budget_tokens"},
    {"response_format", "output_config.format"},
};

static const struct body_names body_names = {
    .aliases = aliases,
    .num_aliases = sizeof(aliases) / sizeof(aliases[0]),
    .format = "output_config.format",
    .has_flat_format = true,
    .has_schema_alone = true,
};

static const struct conversation_names names = {
    .body = &body_names,
    .messages = "messages",
    .tools = "tools",
    .tool_choice = "tool_choice",
    .continue_final = "messages",
    .wants_logprobs = "logprobs", /* no body has them */
};

static const struct json_field fields[] = {
    JSON_OTHER(system),
    JSON_OTHER(messages),
    JSON_OTHER(tools),
    JSON_OTHER(tool_choice),
    JSON_OTHER(thinking),
    JSON_OTHER(output_config),
    JSON_OTHER(context_management),
    JSON_BOOL(MEMBER, add_special_tokens),
    JSON_OTHER(chat_template_kwargs),
    JSON_OTHER(chat_template),
    JSON_OTHER(modalities),
};

static bool is_one_of(const char *text, const char *const *words, size_t count) {
    size_t i = 0;
    while (i < count && strcmp(text, words[i]) != 0)
        i++;
    return i < count;
}

#define IS_ONE_OF(text, words) is_one_of(text, words, sizeof(words) / sizeof((words)[0]))

/* --- thread, max_tokens, stop_sequences, metadata --- */

/* The code is Anthropic's: its SDK then sends all messages. */
static int check_stateless(const cJSON *body, struct api_error *err) {
    if (json_given_member(body, "thread") == NULL)
        return 0;
    return bad_request(err, "thread_unsupported_request", "thread",
                       "thread is not supported: this server stores nothing between requests; "
                       "send all messages");
}

static int check_bounds(const cJSON *body, bool counts_only, struct api_error *err) {
    const cJSON *stop = json_given_member(body, "stop_sequences");
    if (json_given_member(body, "max_tokens") == NULL && !counts_only)
        return bad_request(err, "missing_required_parameter", "max_tokens",
                           "max_tokens is missing: this endpoint requires it");
    return stop == NULL || cJSON_IsArray(stop)
               ? 0
               : json_refuse(stop, "stop_sequences", "an array of strings", err);
}

/* The field is listed as ignored. */
static int check_metadata(const cJSON *body, struct api_error *err) {
    const cJSON *metadata = json_given_member(body, "metadata"),
                *user = json_given_member(metadata, "user_id");
    if (metadata != NULL && !cJSON_IsObject(metadata))
        return json_refuse(metadata, "metadata", "an object", err);
    if (user != NULL && !cJSON_IsString(user))
        return json_refuse(user, "metadata.user_id", "a string", err);
    if (user != NULL && strlen(user->valuestring) > MESSAGES_MAX_USER_ID_BYTES)
        return bad_request(err, "out_of_range", "metadata.user_id",
                           "metadata.user_id has %zu bytes: at most %d are allowed",
                           strlen(user->valuestring), MESSAGES_MAX_USER_ID_BYTES);
    return 0;
}

/* --- context_management --- */

/* Returns whether an edit keeps everything: {"type":"clear_thinking_20251015","keep":"all"}. */
static bool is_idle_edit(const cJSON *edit) {
    const char *type = cJSON_GetStringValue(json_member(edit, "type"));
    const cJSON *keep = json_member(edit, "keep");
    const char *word =
        cJSON_GetStringValue(cJSON_IsObject(keep) ? json_member(keep, "type") : keep);
    return type != NULL && strncmp(type, "clear_thinking_", strlen("clear_thinking_")) == 0 &&
           word != NULL && strcmp(word, "all") == 0;
}

/* Clients send edits that change nothing. Other edits would change the prompt. */
static int check_context_management(const cJSON *body, struct api_error *err) {
    const cJSON *management = json_given_member(body, "context_management"), *edit;
    if (management != NULL && !cJSON_IsObject(management))
        return json_refuse(management, "context_management", "an object", err);
    cJSON_ArrayForEach(edit, json_member(management, "edits")) {
        if (!is_idle_edit(edit))
            return bad_request(err, "unsupported_value", "context_management",
                               "context_management is not supported, except for clear_thinking "
                               "that keeps all: send only what the model should see");
    }
    return 0;
}

/* --- thinking --- */

/* For a model whose reasoning this server does not recognise, the budget is listed as ignored:
 * clients send one to any model. */
static int read_budget(const struct api_context *context, const cJSON *thinking,
                       struct conversation *out, struct api_error *err) {
    static const char name[] = "thinking.budget_tokens";
    const struct chat_model *model = context->chat;
    int64_t budget = 0;
    if (json_read_int(json_member(thinking, "budget_tokens"), name, 1, INT32_MAX, &budget, err) !=
        0)
        return -1;
    if (model != NULL && model->reasoning != REASONING_FORMAT_NONE)
        out->thinking_token_budget = budget;
    else
        conversation_ignore(out, name);
    return 0;
}

static int check_display(const cJSON *thinking, struct api_error *err) {
    static const char *const words[] = {"summarized", "omitted"};
    const cJSON *display = json_given_member(thinking, "display");
    if (display == NULL || (cJSON_IsString(display) && IS_ONE_OF(display->valuestring, words)))
        return 0;
    return json_refuse(display, "thinking.display", "\"summarized\" or \"omitted\"", err);
}

static int read_thinking(const struct api_context *context, const cJSON *body,
                         struct conversation *out, struct api_error *err) {
    static const char *const known[] = {"type", "budget_tokens", "display"};
    const cJSON *thinking = json_given_member(body, "thinking"),
                *type = json_member(thinking, "type");
    const char *word = cJSON_IsString(type) ? type->valuestring : "";
    if (thinking == NULL)
        return 0;
    if (!cJSON_IsObject(thinking))
        return json_refuse(thinking, "thinking", "an object", err);
    if (check_display(thinking, err) != 0)
        return -1;
    CONVERSATION_IGNORE(out, thinking, "thinking", known);
    if (strcmp(word, "adaptive") == 0) /* left to the template */
        return 0;
    bool is_enabled = strcmp(word, "enabled") == 0;
    if (!is_enabled && strcmp(word, "disabled") != 0)
        return json_refuse(type, "thinking.type", "\"enabled\", \"disabled\" or \"adaptive\"", err);
    out->thinking = is_enabled ? THINKING_ON : THINKING_OFF;
    return is_enabled ? read_budget(context, thinking, out, err) : 0;
}

bool messages_body_omits_thinking(const cJSON *body) {
    const char *display =
        cJSON_GetStringValue(json_member(json_member(body, "thinking"), "display"));
    return display != NULL && strcmp(display, "omitted") == 0;
}

/* --- output_config --- */

static int check_format(const cJSON *format, struct api_error *err) {
    const cJSON *type = json_member(format, "type");
    if (!cJSON_IsObject(format))
        return json_refuse(format, "output_config.format", "an object", err);
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "json_schema") != 0)
        return json_refuse(type, "output_config.format.type", "\"json_schema\"", err);
    return 0;
}

static int read_effort(const cJSON *effort, struct conversation *out, struct api_error *err) {
    static const char *const words[] = {"low", "medium", "high", "xhigh", "max"};
    if (!cJSON_IsString(effort) || !IS_ONE_OF(effort->valuestring, words))
        return json_refuse(effort, "output_config.effort",
                           "\"low\", \"medium\", \"high\", \"xhigh\" or \"max\"", err);
    out->reasoning_effort = effort->valuestring;
    return 0;
}

static int read_output_config(const cJSON *body, struct conversation *out, struct api_error *err) {
    static const char *const known[] = {"format", "effort"};
    const cJSON *config = json_given_member(body, "output_config"),
                *format = json_given_member(config, "format"),
                *effort = json_given_member(config, "effort");
    if (config != NULL && !cJSON_IsObject(config))
        return json_refuse(config, "output_config", "an object", err);
    if ((format != NULL && check_format(format, err) != 0) ||
        (effort != NULL && read_effort(effort, out, err) != 0))
        return -1;
    CONVERSATION_IGNORE(out, config, "output_config", known);
    return 0;
}

/* --- All fields --- */

/* Fields of chats that would mean something here, but are not part of this endpoint. */
static const char *const chat_fields[] = {
    "add_generation_prompt",
    "best_of",
    "continue_final_message",
    "documents",
    "early_stopping",
    "echo",
    "function_call",
    "functions",
    "include_reasoning",
    "length_penalty",
    "logprob_token_ids",
    "logprobs",
    "timings_per_token",
    "return_progress",
    "max_completion_tokens",
    "n",
    "parallel_tool_calls",
    "prompt_logprobs",
    "reasoning_effort",
    "response_format",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "stop",
    "stream_options",
    "thinking_token_budget",
    "top_logprobs",
    "use_beam_search",
};

static int read_all(const struct api_context *context, const cJSON *body, bool counts_only,
                    struct conversation *out, struct api_error *err) {
    if (check_stateless(body, err) != 0 || messages_input_read(body, out, err) != 0 ||
        check_bounds(body, counts_only, err) != 0 || messages_tools_read(body, out, err) != 0 ||
        read_thinking(context, body, out, err) != 0 || check_context_management(body, err) != 0 ||
        read_output_config(body, out, err) != 0 || check_metadata(body, err) != 0 ||
        CONVERSATION_FIELDS_REFUSE(body, chat_fields, err) != 0 ||
        conversation_fields_read(context, body, JSON_TABLE(fields), out, err) != 0)
        return -1;
    out->sampling.max_tokens_field = NULL; /* output that does not fit into the context is cut */
    return conversation_fields_check_tools(context, out, err);
}

int messages_body_read(const struct api_context *context, const cJSON *body, bool counts_only,
                       struct conversation *out, struct api_error *err) {
    struct conversation conversation = conversation_defaults(context, &names);
    if (read_all(context, body, counts_only, &conversation, err) != 0) {
        conversation_finish(&conversation);
        return -1;
    }
    *out = conversation;
    return 0;
}
