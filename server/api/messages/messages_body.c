#include "server/api/messages/messages_body.h"

#include "server/api/chat/chat_error_names.h"
#include "server/api/chat/chat_model.h"
#include "server/api/chat/chat_translation.h"
#include "server/api/messages/messages_input.h"
#include "server/api/messages/messages_tools.h"
#include "config/json/json_field.h"

#include <string.h>

struct translation {
    const struct api_context *context;
    const cJSON *body;
    cJSON *chat;
    struct api_error *err;
};

static int refer(struct translation *t, const char *name, const cJSON *member) {
    return chat_translation_refer(t->chat, name, member, t->err);
}

static const cJSON *given(const struct translation *t, const char *name) {
    return json_given_member(t->body, name);
}

/* --- thread, max_tokens, stop_sequences, metadata --- */

/* The code is Anthropic's: its SDK sends all messages then. */
static int check_stateless(struct translation *t) {
    if (given(t, "thread") == NULL)
        return 0;
    return bad_request(t->err, "thread_unsupported_request", "thread",
                       "thread is not supported: this server stores nothing between requests; "
                       "send all messages");
}

static int translate_bounds(struct translation *t, bool counts_only) {
    const cJSON *max_tokens = given(t, "max_tokens"), *stop = given(t, "stop_sequences");
    if (max_tokens == NULL && !counts_only)
        return bad_request(t->err, "missing_required_parameter", "max_tokens",
                           "max_tokens is missing: this endpoint requires it");
    if (stop != NULL && !cJSON_IsArray(stop))
        return json_refuse(stop, "stop_sequences", "an array of strings", t->err);
    if (refer(t, "max_tokens", max_tokens) != 0)
        return -1;
    return refer(t, "stop", stop);
}

/* Passed on, so that it is named as ignored. */
static int translate_metadata(struct translation *t) {
    const cJSON *metadata = given(t, "metadata"), *user = json_given_member(metadata, "user_id");
    if (metadata == NULL)
        return 0;
    if (!cJSON_IsObject(metadata))
        return json_refuse(metadata, "metadata", "an object", t->err);
    if (user != NULL && !cJSON_IsString(user))
        return json_refuse(user, "metadata.user_id", "a string", t->err);
    if (user != NULL && strlen(user->valuestring) > MESSAGES_MAX_USER_ID_BYTES)
        return bad_request(t->err, "out_of_range", "metadata.user_id",
                           "metadata.user_id has %zu bytes: at most %d are allowed",
                           strlen(user->valuestring), MESSAGES_MAX_USER_ID_BYTES);
    return refer(t, "metadata", metadata);
}

/* --- context_management --- */

/* Returns whether an edit keeps all: {"type":"clear_thinking_20251015","keep":"all"}. */
static bool is_idle_edit(const cJSON *edit) {
    const char *type = cJSON_GetStringValue(json_member(edit, "type"));
    const cJSON *keep = json_member(edit, "keep");
    const char *word =
        cJSON_GetStringValue(cJSON_IsObject(keep) ? json_member(keep, "type") : keep);
    return type != NULL && strncmp(type, "clear_thinking_", strlen("clear_thinking_")) == 0 &&
           word != NULL && strcmp(word, "all") == 0;
}

/* Clients send edits that change nothing; others would make another prompt. */
static int check_context_management(struct translation *t) {
    const cJSON *management = given(t, "context_management"), *edit;
    if (management == NULL)
        return 0;
    if (!cJSON_IsObject(management))
        return json_refuse(management, "context_management", "an object", t->err);
    cJSON_ArrayForEach(edit, json_member(management, "edits")) {
        if (!is_idle_edit(edit))
            return bad_request(t->err, "unsupported_value", "context_management",
                               "context_management is not supported but for clear_thinking that "
                               "keeps all: the client decides what it sends");
    }
    return 0;
}

/* --- thinking --- */

/* Sets the variables by which templates of models that think on demand are told to, beside those
 * that the body has itself: Qwen 3's and GLM's, and DeepSeek's and Granite's. */
static int switch_thinking(struct translation *t, bool is_on) {
    static const char *const names[] = {"enable_thinking", "thinking"};
    const cJSON *kwargs = given(t, "chat_template_kwargs"), *item;
    if (kwargs != NULL && !cJSON_IsObject(kwargs))
        return 0; /* refused with the other fields */
    cJSON *made = cJSON_CreateObject();
    if (chat_translation_add(t->chat, "chat_template_kwargs", made, t->err) != 0)
        return -1;
    cJSON_ArrayForEach(item, kwargs) {
        if (chat_translation_add(made, item->string, chat_translation_reference(item), t->err) != 0)
            return -1;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (json_member(kwargs, names[i]) == NULL &&
            chat_translation_add(made, names[i], cJSON_CreateBool(is_on), t->err) != 0)
            return -1;
    return 0;
}

/* The budget of a model whose reasoning is not known here is named as ignored: clients send one to
 * any model. */
static int translate_budget(struct translation *t, const cJSON *thinking) {
    const struct chat_model *model = t->context->chat;
    const cJSON *item = json_member(thinking, "budget_tokens");
    int64_t budget = 0;
    bool reasons = model != NULL && model->reasoning != REASONING_FORMAT_NONE;
    if (json_read_int(item, "thinking.budget_tokens", 1, INT32_MAX, &budget, t->err) != 0)
        return -1;
    return refer(t, reasons ? "thinking_token_budget" : "thinking.budget_tokens", item);
}

static int check_display(struct translation *t, const cJSON *thinking) {
    const cJSON *display = json_given_member(thinking, "display");
    const char *word = cJSON_GetStringValue(display);
    if (display == NULL ||
        (word != NULL && (strcmp(word, "summarized") == 0 || strcmp(word, "omitted") == 0)))
        return 0;
    return json_refuse(display, "thinking.display", "\"summarized\" or \"omitted\"", t->err);
}

static int translate_thinking(struct translation *t) {
    static const char *const known[] = {"type", "budget_tokens", "display"};
    const cJSON *thinking = given(t, "thinking"), *type = json_member(thinking, "type");
    const char *word = cJSON_IsString(type) ? type->valuestring : "";
    if (thinking == NULL)
        return 0;
    if (!cJSON_IsObject(thinking))
        return json_refuse(thinking, "thinking", "an object", t->err);
    if (check_display(t, thinking) != 0 ||
        CHAT_TRANSLATION_PASS_ON(t->chat, thinking, "thinking", known, t->err) != 0)
        return -1;
    if (strcmp(word, "adaptive") == 0) /* as the template has it */
        return 0;
    if (strcmp(word, "disabled") == 0)
        return switch_thinking(t, false);
    if (strcmp(word, "enabled") != 0)
        return json_refuse(type, "thinking.type", "\"enabled\", \"disabled\" or \"adaptive\"",
                           t->err);
    return translate_budget(t, thinking) == 0 ? switch_thinking(t, true) : -1;
}

bool messages_body_omits_thinking(const cJSON *body) {
    const char *display =
        cJSON_GetStringValue(json_member(json_member(body, "thinking"), "display"));
    return display != NULL && strcmp(display, "omitted") == 0;
}

/* --- output_config --- */

static int translate_format(struct translation *t, const cJSON *format) {
    static const char *const known[] = {"type", "schema"};
    const cJSON *type = json_member(format, "type");
    if (!cJSON_IsObject(format))
        return json_refuse(format, "output_config.format", "an object", t->err);
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "json_schema") != 0)
        return json_refuse(type, "output_config.format.type", "\"json_schema\"", t->err);
    cJSON *made = cJSON_CreateObject(), *schema = cJSON_CreateObject();
    if (chat_translation_add(t->chat, "response_format", made, t->err) != 0) {
        cJSON_Delete(schema);
        return -1;
    }
    if (chat_translation_add(made, "json_schema", schema, t->err) != 0 ||
        chat_translation_refer(made, "type", type, t->err) != 0 ||
        chat_translation_refer(schema, "schema", json_member(format, "schema"), t->err) != 0)
        return -1;
    return CHAT_TRANSLATION_PASS_ON(t->chat, format, "output_config.format", known, t->err);
}

static int translate_effort(struct translation *t, const cJSON *effort) {
    static const char *const words[] = {"low", "medium", "high", "xhigh", "max"};
    if (!cJSON_IsString(effort) || !CHAT_TRANSLATION_HAS(words, effort->valuestring))
        return json_refuse(effort, "output_config.effort",
                           "\"low\", \"medium\", \"high\", \"xhigh\" or \"max\"", t->err);
    return refer(t, "reasoning_effort", effort);
}

static int translate_output_config(struct translation *t) {
    static const char *const known[] = {"format", "effort"};
    const cJSON *config = given(t, "output_config"), *format = json_given_member(config, "format"),
                *effort = json_given_member(config, "effort");
    if (config == NULL)
        return 0;
    if (!cJSON_IsObject(config))
        return json_refuse(config, "output_config", "an object", t->err);
    if ((format != NULL && translate_format(t, format) != 0) ||
        (effort != NULL && translate_effort(t, effort) != 0))
        return -1;
    return CHAT_TRANSLATION_PASS_ON(t->chat, config, "output_config", known, t->err);
}

/* --- The rest --- */

/* Fields with a place of their own above. */
static const char *const taken[] = {
    "system",         "messages", "tools",    "tool_choice",   "max_tokens",
    "stop_sequences", "metadata", "thinking", "output_config", "context_management",
};

/* Fields of the chat that would mean something here without being part of this endpoint. */
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

static int translate_others(struct translation *t) {
    const cJSON *item;
    cJSON_ArrayForEach(item, t->body) {
        if (!json_is_given(item) || CHAT_TRANSLATION_HAS(taken, item->string))
            continue;
        if (CHAT_TRANSLATION_HAS(chat_fields, item->string))
            return bad_request(t->err, "unknown_parameter", item->string,
                               "%s is a field of /v1/chat/completions, not of this", item->string);
        bool is_made = strcmp(item->string, "chat_template_kwargs") == 0 &&
                       json_member(t->chat, item->string) != NULL;
        if (!is_made && refer(t, item->string, item) != 0)
            return -1;
    }
    return 0;
}

cJSON *messages_body_to_chat(const struct api_context *context, const cJSON *body, bool counts_only,
                             struct api_error *err) {
    struct translation t = {
        .context = context, .body = body, .chat = cJSON_CreateObject(), .err = err};
    if (t.chat == NULL) {
        api_error_set_memory(err);
        return NULL;
    }
    if (check_stateless(&t) == 0 && messages_input_read(body, t.chat, err) == 0 &&
        translate_bounds(&t, counts_only) == 0 && messages_tools_read(body, t.chat, err) == 0 &&
        translate_thinking(&t) == 0 && check_context_management(&t) == 0 &&
        translate_output_config(&t) == 0 && translate_metadata(&t) == 0 &&
        translate_others(&t) == 0)
        return t.chat;
    cJSON_Delete(t.chat);
    return NULL;
}

/* --- Errors of the chat --- */

static const struct chat_error_names error_names = {
    .tool_members =
        (const struct chat_error_name[]){
            {".function.parameters", ".input_schema"},
            {".function", ""},
            {NULL},
        },
    .fields =
        (const struct chat_error_name[]){
            {"stop_token_ids", "stop_token_ids"},
            {"stop", "stop_sequences"},
            {"response_format.json_schema", "output_config.format"},
            {"reasoning_effort", "output_config.effort"},
            {"thinking_token_budget", "thinking.budget_tokens"},
            {"continue_final_message", "messages"},
            {NULL},
        },
    .words =
        (const struct chat_error_name[]){
            {"response_format", "output_config.format"},
            {"reasoning_effort", "output_config.effort"},
            {"use thinking_token_budget", "use thinking.budget_tokens"},
            {NULL},
        },
};

void messages_body_rename_error(struct api_error *err) {
    chat_error_rename(err, &error_names);
}

int messages_body_read(const struct api_context *context, const cJSON *body, bool counts_only,
                       struct chat_body *out, struct api_error *err) {
    cJSON *chat = messages_body_to_chat(context, body, counts_only, err);
    if (chat == NULL)
        return -1;
    if (chat_body_read(context, chat, out, err) != 0) {
        messages_body_rename_error(err);
        return -1;
    }
    chat_error_rename_ignored(&out->ignored, &error_names, NULL, NULL);
    out->sampling.max_tokens_field = NULL; /* what the context has no room for is cut */
    return 0;
}
