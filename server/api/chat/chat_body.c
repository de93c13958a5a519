#include "server/api/chat/chat_body.h"

#include "server/api/fields/beam_fields.h"
#include "server/api/fields/request_limits.h"
#include "server/api/tools/custom_tools.h"
#include "server/api/chat/function_form.h"
#include "server/api/chat/message_members.h"
#include "server/api/tools/tool_grammar.h"
#include "config/json/json_parse.h"

#include <string.h>

#define MEMBER struct chat_body

static const struct json_field fields[] = {
    JSON_OTHER(messages),
    JSON_INT(MEMBER, max_completion_tokens, 1, INT32_MAX),
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
};

struct json_table chat_body_table(void) {
    return JSON_TABLE(fields);
}

int32_t chat_body_num_logprobs(const struct chat_body *body) {
    return body->logprobs ? (int32_t)body->top_logprobs : -1;
}

static int refuse(struct api_error *err, const char *param, const char *message) {
    return bad_request(err, "unsupported_value", param, "%s", message);
}

static const cJSON *member(const struct chat_body *body, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(body->json, name);
}

static int read_max_tokens(struct chat_body *body, struct api_error *err) {
    struct sampling_body *sampling = &body->sampling;
    if (body->max_completion_tokens != 0) {
        sampling->max_tokens = body->max_completion_tokens;
        sampling->max_tokens_field = "max_completion_tokens";
    }
    if (sampling->max_tokens == 0)
        return refuse(err, "max_tokens", "max_tokens must be at least 1, not 0");
    if (sampling->max_tokens == SAMPLING_TO_THE_END || sampling->min_tokens <= sampling->max_tokens)
        return 0;
    return bad_request(err, "out_of_range", "min_tokens",
                       "min_tokens must be at most max_completion_tokens (%lld), not %lld",
                       (long long)sampling->max_tokens, (long long)sampling->min_tokens);
}

/* Refuses fields that would change the answer's meaning if they were ignored. */
static int check_unsupported(const struct chat_body *body, struct api_error *err) {
    const cJSON *modalities = member(body, "modalities"), *modality;
    if (modalities != NULL && !cJSON_IsNull(modalities) && !cJSON_IsArray(modalities))
        return json_refuse(modalities, "modalities", "[\"text\"]", err);
    cJSON_ArrayForEach(modality, modalities) {
        if (!cJSON_IsString(modality) || strcmp(modality->valuestring, "text") != 0)
            return json_refuse(modality, "modalities", "[\"text\"]", err);
    }
    return 0;
}

static int read_logprobs(const struct api_context *context, struct chat_body *body,
                         struct api_error *err) {
    if (body->top_logprobs != 0 && !body->logprobs)
        return refuse(err, "top_logprobs", "top_logprobs is only allowed with logprobs: true");
    body->top_logprobs = request_limits_logprobs(context, body->top_logprobs);
    return sampling_body_check_logprob_tokens(&body->sampling, chat_body_num_logprobs(body), err);
}

static int read_tools(const struct api_context *context, struct chat_body *body,
                      struct api_error *err) {
    if (tool_fields_read(body->json, &body->tools, err) != 0)
        return -1;
    bool is_held = tool_grammar_is_forced(&body->tools) || body->sampling.grammar != NULL;
    struct byte_buffer *ignored =
        is_held && context->ignores_schema_keywords ? &body->ignored : NULL;
    if (tool_grammar_check(&body->tools, ignored, err) != 0)
        return -1;
    if (body->sampling.use_beam_search && tool_grammar_is_forced(&body->tools))
        return refuse(err, "tool_choice",
                      "tool_choice must not force calls with use_beam_search: true");
    return 0;
}

static int read_prompt(const struct api_context *context, struct chat_body *body,
                       struct api_error *err) {
    struct chat_prompt_fields *prompt = &body->prompt;
    prompt->messages = member(body, "messages");
    prompt->tools = body->tools.choice != TOOL_CHOICE_NONE ? body->tools.tools : NULL;
    prompt->documents = member(body, "documents");
    prompt->template_kwargs = member(body, "chat_template_kwargs");
    prompt->reasoning_effort = body->reasoning_effort;
    prompt->add_special_tokens = body->add_special_tokens;
    if (chat_prompt_read_template(context, body->json, prompt, err) != 0)
        return -1;
    return chat_prompt_read_end(body->json, prompt, err);
}

static int read_all(const struct api_context *context, struct chat_body *body,
                    struct api_error *err) {
    if (custom_tools_convert(body->json, &body->custom_names, err) != 0 ||
        request_limits_read(context, body->json, JSON_TABLE(fields), body, err) != 0 ||
        sampling_body_read(context, body->json, &body->sampling, err) != 0 ||
        beam_fields_read(context, body->json, &body->sampling, err) != 0)
        return -1;
    message_members_list_unknown(member(body, "messages"), &body->ignored);
    if (sampling_body_check_unknown(context, body->json, &body->sampling, JSON_TABLE(fields),
                                    &body->ignored, err) != 0)
        return -1;
    beam_fields_list_idle(body->json, &body->ignored);
    if (check_unsupported(body, err) != 0 || read_max_tokens(body, err) != 0 ||
        read_logprobs(context, body, err) != 0 || read_tools(context, body, err) != 0)
        return -1;
    return read_prompt(context, body, err);
}

int chat_body_read(const struct api_context *context, cJSON *json, struct chat_body *out,
                   struct api_error *err) {
    struct chat_body body = {
        .json = json,
        .sampling = sampling_body_defaults(context, &openai_names, SAMPLING_TO_THE_END),
        .include_reasoning = true,
        .thinking_token_budget = -1,
    };
    if (read_all(context, &body, err) != 0) {
        chat_body_rename_error(&body, err);
        chat_body_finish(&body);
        return -1;
    }
    *out = body;
    return 0;
}

int chat_body_parse(const struct api_context *context, const char *text, size_t length,
                    struct chat_body *out, struct api_error *err) {
    bool has_functions = false;
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    if (function_form_translate(json, &has_functions, err) != 0) {
        cJSON_Delete(json);
        return -1;
    }
    if (chat_body_read(context, json, out, err) != 0) {
        if (has_functions)
            function_form_rename_error(err);
        return -1;
    }
    if (has_functions)
        function_form_rename_ignored(&out->ignored);
    out->has_functions = has_functions;
    return 0;
}

void chat_body_rename_error(const struct chat_body *body, struct api_error *err) {
    custom_tools_rename_error(&body->custom_names, body->json, err);
}

void chat_body_finish(struct chat_body *body) {
    sampling_body_finish(&body->sampling);
    cJSON_Delete(body->json);
    body->json = NULL;
    byte_buffer_finish(&body->ignored);
    byte_buffer_finish(&body->custom_names);
}
