#include "server/api/conversation/conversation_fields.h"

#include "models/chat_template/chat_template.h"
#include "server/api/conversation/tool_grammar.h"
#include "server/api/fields/beam_fields.h"
#include "server/api/fields/request_limits.h"

#include <string.h>

static int refuse(struct api_error *err, const char *param, const char *message) {
    return bad_request(err, "unsupported_value", param, "%s", message);
}

/* --- Template --- */

static int read_end(const cJSON *body, struct conversation *out, struct api_error *err) {
    const cJSON *add = json_given_member(body, "add_generation_prompt"),
                *go_on = json_given_member(body, "continue_final_message");
    if (add != NULL && !cJSON_IsBool(add))
        return json_refuse(add, "add_generation_prompt", "true or false", err);
    if (go_on != NULL && !cJSON_IsBool(go_on))
        return json_refuse(go_on, "continue_final_message", "true or false", err);
    if (cJSON_IsTrue(add) && cJSON_IsTrue(go_on))
        return refuse(err, "continue_final_message",
                      "continue_final_message and add_generation_prompt exclude each other: set "
                      "one of them to false");
    out->continue_final_message |= cJSON_IsTrue(go_on);
    out->add_generation_prompt = !cJSON_IsFalse(add) && !out->continue_final_message;
    return 0;
}

static int read_source(const struct api_context *context, const cJSON *body,
                       struct conversation *out, struct api_error *err) {
    static const char name[] = "chat_template";
    const cJSON *source = json_given_member(body, name);
    if (source == NULL)
        return 0;
    if (!context->trusts_chat_template)
        return refuse(err, name,
                      "chat_template is not allowed: the server uses the model's, or "
                      "that of --chat-template; --trust-request-chat-template allows it");
    if (!cJSON_IsString(source))
        return json_refuse(source, name, "a string", err);
    size_t length = strlen(source->valuestring);
    if (length > CHAT_TEMPLATE_CLIENT_MAX_BYTES)
        return bad_request(err, "out_of_range", name,
                           "chat_template has %zu bytes, must have %d at most", length,
                           CHAT_TEMPLATE_CLIENT_MAX_BYTES);
    out->chat_template = source->valuestring;
    return 0;
}

int conversation_fields_read_template(const struct api_context *context, const cJSON *body,
                                      struct conversation *out, struct api_error *err) {
    out->template_kwargs = json_given_member(body, "chat_template_kwargs");
    return read_source(context, body, out, err) == 0 ? read_end(body, out, err) : -1;
}

/* --- What the tables cannot express --- */

/* Checks modalities: the output is only text. */
static int check_modalities(const cJSON *body, struct api_error *err) {
    const cJSON *modalities = json_given_member(body, "modalities"), *modality;
    if (modalities != NULL && !cJSON_IsArray(modalities))
        return json_refuse(modalities, "modalities", "[\"text\"]", err);
    cJSON_ArrayForEach(modality, modalities) {
        if (!cJSON_IsString(modality) || strcmp(modality->valuestring, "text") != 0)
            return json_refuse(modality, "modalities", "[\"text\"]", err);
    }
    return 0;
}

static int read_max_tokens(const cJSON *body, struct conversation *out, struct api_error *err) {
    struct sampling_body *sampling = &out->sampling;
    if (json_given_member(body, "max_completion_tokens") != NULL) {
        sampling->max_tokens = out->max_completion_tokens;
        sampling->max_tokens_field = "max_completion_tokens";
    }
    if (sampling->max_tokens == 0)
        return bad_request(err, "unsupported_value", sampling->max_tokens_field,
                           "%s must be at least 1, not 0", sampling->max_tokens_field);
    if (sampling->max_tokens == SAMPLING_TO_THE_END || sampling->min_tokens <= sampling->max_tokens)
        return 0;
    return bad_request(err, "out_of_range", "min_tokens",
                       "min_tokens must be at most %s (%lld), not %lld", sampling->max_tokens_field,
                       (long long)sampling->max_tokens, (long long)sampling->min_tokens);
}

static int check_logprobs(const struct api_context *context, struct conversation *out,
                          struct api_error *err) {
    if (out->top_logprobs != 0 && !out->logprobs)
        return bad_request(err, "unsupported_value", "top_logprobs",
                           "top_logprobs is only allowed with %s", out->names->wants_logprobs);
    out->top_logprobs = request_limits_logprobs(context, out->top_logprobs);
    return sampling_body_check_logprob_tokens(&out->sampling, conversation_num_logprobs(out), err);
}

/* --- All fields --- */

int conversation_fields_read(const struct api_context *context, const cJSON *body,
                             struct json_table own, struct conversation *out,
                             struct api_error *err) {
    struct sampling_body *sampling = &out->sampling;
    out->body = body;
    if (request_limits_read(context, body, body_names_table(sampling->names, own), out, err) != 0 ||
        sampling_body_read(context, body, sampling, err) != 0 ||
        beam_fields_read(context, body, sampling, err) != 0 ||
        sampling_body_check_unknown(context, body, sampling, own, &out->ignored, err) != 0)
        return -1;
    beam_fields_list_idle(body, &out->ignored);
    if (check_modalities(body, err) != 0 || read_max_tokens(body, out, err) != 0 ||
        check_logprobs(context, out, err) != 0)
        return -1;
    return conversation_fields_read_template(context, body, out, err);
}

int conversation_fields_refuse(const cJSON *body, const char *const *names, size_t num_names,
                               struct api_error *err) {
    for (size_t i = 0; i < num_names; i++)
        if (json_given_member(body, names[i]) != NULL)
            return bad_request(err, "unknown_parameter", names[i],
                               "%s is a field of /v1/chat/completions, not of this endpoint",
                               names[i]);
    return 0;
}

int conversation_fields_check_tools(const struct api_context *context,
                                    struct conversation *conversation, struct api_error *err) {
    bool is_forced = conversation_forces_calls(conversation);
    bool is_held = is_forced || conversation->sampling.grammar != NULL;
    struct byte_buffer *ignored =
        is_held && context->ignores_schema_keywords ? &conversation->ignored : NULL;
    if (tool_grammar_check(conversation, ignored, err) != 0)
        return -1;
    if (conversation->sampling.use_beam_search && is_forced)
        return bad_request(err, "unsupported_value", conversation->names->tool_choice,
                           "%s must not force calls with use_beam_search: true",
                           conversation->names->tool_choice);
    return 0;
}
