/* /v1/chat/completions/render and /v1/completions/render. A body is read, rendered and tokenised as
 * if it were to be answered. What the engine would be given is written in the form of vLLM's
 * GenerateRequest (vllm/entrypoints/serve/disagg/protocol.py). */
#include "server/api/call/endpoints.h"

#include "config/base/random_id.h"
#include "server/api/call/api_call_type.h"
#include "server/api/call/api_context.h"
#include "server/api/chat/chat_body.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/completions/completion_body.h"
#include "config/json/json_write.h"

#include <stdio.h>
#include <stdlib.h>

#define ID_BYTES API_CALL_ID_BYTES

/* The parts of a body that both have in common. */
struct rendered {
    const struct api_context *context;
    const struct sampling_body *sampling;
    const char *id_prefix;
    int32_t num_logprobs;
};

static void write_float(const char *name, float value, struct byte_buffer *out) {
    json_write_key(out, name);
    json_write_float(out, value);
}

static void write_bool(const char *name, bool value, struct byte_buffer *out) {
    json_write_key(out, name);
    json_write_bool(out, value);
}

/* Writes a number, or null if it is not given. */
static void write_optional(const char *name, int64_t value, bool is_given,
                           struct byte_buffer *out) {
    json_write_key(out, name);
    if (is_given)
        json_write_int(out, value);
    else
        json_write_null(out);
}

static void write_stops(const struct sampling_lists *lists, struct byte_buffer *out) {
    json_write_key(out, "stop");
    json_write_begin_array(out);
    for (int32_t i = 0; i < lists->num_stop_strings; i++)
        json_write_string(out, lists->stop_strings[i].data, lists->stop_strings[i].length);
    json_write_end_array(out);
    json_write_key(out, "stop_token_ids");
    json_write_begin_array(out);
    for (int32_t i = 0; i < lists->num_stop_tokens; i++)
        json_write_int(out, lists->stop_tokens[i]);
    json_write_end_array(out);
}

static void write_sampling(const struct rendered *rendered, int32_t num_prompt_tokens,
                           struct byte_buffer *out) {
    const struct sampling_body *body = rendered->sampling;
    const struct sampling_settings *settings = &body->settings;
    const struct sampling_params params = sampling_body_params(
        body, rendered->context, num_prompt_tokens, rendered->num_logprobs, (uint64_t)body->seed);
    json_write_key(out, "sampling_params");
    json_write_begin_object(out);
    json_write_int_member(out, "n", body->n);
    write_float("temperature", settings->temperature, out);
    write_float("top_p", settings->top_p, out);
    json_write_int_member(out, "top_k", settings->top_k);
    write_float("min_p", settings->min_p, out);
    write_float("presence_penalty", settings->presence_penalty, out);
    write_float("frequency_penalty", settings->frequency_penalty, out);
    write_float("repetition_penalty", settings->repetition_penalty, out);
    write_optional("seed", body->seed, body->has_seed, out);
    write_stops(&body->lists, out);
    write_bool("ignore_eos", body->ignore_eos, out);
    write_bool("include_stop_str_in_output", body->include_stop_str_in_output, out);
    write_bool("skip_special_tokens", body->skip_special_tokens, out);
    json_write_int_member(out, "max_tokens", params.max_tokens);
    json_write_int_member(out, "min_tokens", body->min_tokens);
    write_optional("logprobs", rendered->num_logprobs, rendered->num_logprobs >= 0, out);
    write_optional("prompt_logprobs", body->prompt_logprobs, body->prompt_logprobs >= 0, out);
    json_write_end_object(out);
}

/* Writes vLLM's prefix and the request's id, or a random one. */
static void write_id(const struct rendered *rendered, struct byte_buffer *out) {
    char id[ID_BYTES];
    const char *given = rendered->sampling->request_id;
    if (random_id(rendered->id_prefix, RANDOM_ID_MAX_DIGITS, id, sizeof(id)) != 0)
        out->failed = true;
    if (given != NULL)
        snprintf(id, sizeof(id), "%s%s", rendered->id_prefix, given);
    json_write_text_member(out, "request_id", id);
}

static int write_request(const struct rendered *rendered, const char *path,
                         const struct prompt_tokens *tokens, struct byte_buffer *out,
                         struct api_error *err) {
    const struct sampling_body *body = rendered->sampling;
    if (sampling_body_check_room(body, rendered->context, path, tokens->count, err) != 0)
        return -1;
    json_write_begin_object(out);
    write_id(rendered, out);
    json_write_key(out, "token_ids");
    json_write_begin_array(out);
    for (int32_t i = 0; i < tokens->count; i++)
        json_write_int(out, tokens->ids[i]);
    json_write_end_array(out);
    json_write_raw_member(out, "features", "null"); /* of images */
    write_sampling(rendered, tokens->count, out);
    json_write_text_member(out, "model",
                           body->model != NULL ? body->model : rendered->context->model_names[0]);
    write_bool("stream", body->stream, out);
    json_write_key(out, "stream_options");
    if (body->stream) {
        json_write_begin_object(out);
        write_bool("include_usage", body->include_usage, out);
        write_bool("continuous_usage_stats", body->continuous_usage_stats, out);
        json_write_end_object(out);
    } else {
        json_write_null(out);
    }
    json_write_text_member(out, "cache_salt", body->cache_salt);
    json_write_int_member(out, "priority", body->priority);
    json_write_end_object(out);
    return 0;
}

static int refuse_beams(struct api_error *err) {
    return bad_request(err, "unsupported_value", "use_beam_search",
                       "use_beam_search must be false: a beam search is more than one request");
}

static void take_ignored(struct byte_buffer *from, struct byte_buffer *to) {
    *to = *from;
    *from = (struct byte_buffer){0};
}

static int render_chat(const struct api_context *context, struct conversation *body,
                       struct byte_buffer *out, struct api_error *err) {
    const struct rendered rendered = {context, &body->sampling, "chatcmpl-",
                                      conversation_num_logprobs(body)};
    const struct prompt_limits limits = sampling_body_prompt_limits(&body->sampling);
    struct chat_prompt prompt;
    if (body->sampling.use_beam_search)
        return refuse_beams(err);
    if (chat_prompt_create(context, body, &limits, &prompt, err) != 0)
        return -1;
    int status = write_request(&rendered, "the prompt", &prompt.tokens, out, err);
    free(prompt.tokens.ids);
    return status;
}

int render_endpoint_chat(const struct api_context *context, const char *text, size_t length,
                         struct byte_buffer *out, struct byte_buffer *ignored,
                         struct api_error *err) {
    struct conversation body;
    if (chat_body_parse(context, text, length, &body, err) != 0)
        return -1;
    take_ignored(&body.ignored, ignored);
    int status = render_chat(context, &body, out, err);
    conversation_finish(&body);
    return status;
}

static int render_prompt(const struct rendered *rendered, const struct completion_body *body,
                         const cJSON *item, int32_t index, int64_t *num_tokens,
                         struct byte_buffer *out, struct api_error *err) {
    char path[PROMPT_PATH_BYTES];
    struct prompt_tokens tokens;
    int32_t begin, end;
    prompt_list_path(&body->prompts, index, path);
    if (completion_body_tokens(rendered->context, body, item, path, &tokens, &begin, &end, err) !=
        0)
        return -1;
    *num_tokens += tokens.count;
    int status = prompt_list_check_total(rendered->context, &body->prompts, *num_tokens, err);
    if (status == 0)
        status = write_request(rendered, path, &tokens, out, err);
    free(tokens.ids);
    return status;
}

static int render_completion(const struct api_context *context, const struct completion_body *body,
                             struct byte_buffer *out, struct api_error *err) {
    const struct rendered rendered = {context, &body->sampling, "cmpl-", (int32_t)body->logprobs};
    const cJSON *item = body->prompts.first;
    int64_t num_tokens = 0;
    if (body->sampling.use_beam_search)
        return refuse_beams(err);
    json_write_begin_array(out);
    for (int32_t i = 0; i < body->prompts.num_prompts; i++, item = item->next)
        if (render_prompt(&rendered, body, item, i, &num_tokens, out, err) != 0)
            return -1;
    json_write_end_array(out);
    return 0;
}

int render_endpoint_completion(const struct api_context *context, const char *text, size_t length,
                               struct byte_buffer *out, struct byte_buffer *ignored,
                               struct api_error *err) {
    struct completion_body body;
    if (completion_body_parse(context, text, length, COMPLETION_OPENAI, &body, err) != 0)
        return -1;
    take_ignored(&body.ignored, ignored);
    int status = render_completion(context, &body, out, err);
    completion_body_finish(&body);
    return status;
}
