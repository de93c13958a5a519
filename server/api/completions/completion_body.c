#include "server/api/completions/completion_body.h"

#include "server/api/completions/fim_prompt.h"
#include "server/api/completions/llama_body.h"
#include "server/api/fields/beam_fields.h"
#include "server/api/fields/request_limits.h"
#include "config/json/json_parse.h"

#include <stdlib.h>

#define MEMBER struct completion_body
#define DEFAULT_MAX_TOKENS 16 /* OpenAI's */

static const struct json_field fields[] = {
    JSON_OTHER(prompt),
    JSON_INT(MEMBER, logprobs, -1, INT32_MAX), /* --max-logprobs bounds it */
    JSON_BOOL(MEMBER, echo),
    JSON_TEXT(MEMBER, suffix),
    JSON_BOOL(MEMBER, add_special_tokens),
    JSON_BOOL(MEMBER, parse_special),
    JSON_BOOL(MEMBER, timings_per_token),
    JSON_BOOL(MEMBER, return_progress),
    JSON_OTHER(kv_transfer_params),
};

struct json_table completion_body_table(void) {
    return JSON_TABLE(fields);
}

static int refuse(struct api_error *err, const char *param, const char *message) {
    return bad_request(err, "unsupported_value", param, "%s", message);
}

bool completion_body_has_suffix(const struct completion_body *body) {
    return body->infill.is_given || (body->suffix != NULL && body->suffix[0] != '\0');
}

/* Checks what the table cannot express: fields that depend on others. */
static int check_combinations(const struct completion_body *body, struct api_error *err) {
    if (body->sampling.use_beam_search && body->echo && body->logprobs >= 0)
        return refuse(err, "echo",
                      "echo must be false with use_beam_search: true and logprobs, not true");
    if (body->sampling.max_tokens == 0 && !body->echo && body->form == COMPLETION_OPENAI)
        return refuse(err, "max_tokens",
                      "max_tokens must be at least 1, not 0: 0 is allowed with echo: true only");
    return 0;
}

/* Returns the body's name of a field. */
static const char *name_of(const struct completion_body *body, const char *field) {
    return body_names_field(body->sampling.names, body->json, field);
}

static int read_suffix(const struct api_context *context, struct completion_body *body,
                       struct api_error *err) {
    const char *name = name_of(body, "suffix");
    const struct prompt_limits limits = sampling_body_prompt_limits(&body->sampling);
    if (!completion_body_has_suffix(body))
        return 0;
    if (body->sampling.truncation.keeps_start)
        return refuse(
            err, "truncation_side",
            "truncation_side must be left out with suffix: the text around the gap is kept");
    if (fim_prompt_check(context, name, body->infill.is_given, err) != 0)
        return -1;
    return fim_prompt_read_suffix(context, body->suffix, name,
                                  prompt_text_flags(false, body->parse_special), &limits,
                                  &body->suffix_tokens, err);
}

static int read_prompts(const struct api_context *context, struct completion_body *body,
                        struct api_error *err) {
    const struct sampling_body *sampling = &body->sampling;
    if (prompt_list_read(context, body->json, name_of(body, "prompt"),
                         completion_body_has_suffix(body), &body->prompts, err) != 0)
        return -1;
    bool has_best_of = sampling->best_of != 0;
    int64_t num_choices =
        (has_best_of ? sampling->best_of : sampling->n) * body->prompts.num_prompts;
    if (num_choices <= context->max_choices)
        return 0;
    const char *name = name_of(body, has_best_of ? "best_of" : "n");
    return bad_request(err, "out_of_range", name,
                       "%s times the number of prompts must be at most %d, not %lld", name,
                       (int)context->max_choices, (long long)num_choices);
}

/* Called before beams are counted, because each of these tokens may end a beam. */
static int add_ends(const struct api_context *context, struct completion_body *body,
                    struct api_error *err) {
    if (!completion_body_has_suffix(body) || body->sampling.ignore_eos)
        return 0;
    return fim_prompt_add_ends(context, &body->sampling.lists, err);
}

static int read_all(const struct api_context *context, struct completion_body *body,
                    struct api_error *err) {
    const struct body_names *names = body->sampling.names;
    const struct json_table table = body_names_table(names, JSON_TABLE(fields));
    int status = body->form == COMPLETION_OPENAI
                     ? kv_transfer_read(context, body->json, &body->sampling.transfer, err)
                     : kv_transfer_refuse(body->json, err);
    if (status != 0)
        return -1;
    if (request_limits_read(context, body->json, table, body, err) != 0 ||
        sampling_body_read(context, body->json, &body->sampling, err) != 0)
        return -1;
    if (body->form == COMPLETION_INFILL)
        infill_body_leave_room(context, &body->sampling);
    if (add_ends(context, body, err) != 0 ||
        beam_fields_read(context, body->json, &body->sampling, err) != 0 ||
        sampling_body_check_unknown(context, body->json, &body->sampling, JSON_TABLE(fields),
                                    &body->ignored, err) != 0)
        return -1;
    beam_fields_list_idle(body->json, &body->ignored);
    if (check_combinations(body, err) != 0 || read_suffix(context, body, err) != 0)
        return -1;
    if (body_names_given(names, body->json, "logprobs") != NULL)
        body->logprobs = request_limits_logprobs(context, body->logprobs);
    if (sampling_body_check_logprob_tokens(&body->sampling, (int32_t)body->logprobs, err) != 0)
        return -1;
    return read_prompts(context, body, err);
}

/* Converts the values of llama.cpp's forms to those of a completion. */
static int take_form(const struct api_context *context, struct completion_body *body,
                     struct api_error *err) {
    if (body->form == COMPLETION_OPENAI)
        return 0;
    if (llama_body_take_fields(body->json, &body->response_fields, err) != 0)
        return -1;
    if (body->form == COMPLETION_INFILL)
        return infill_body_take(context, body->json, &body->infill, &body->ignored, err);
    return llama_body_take(context, body->json, &body->ignored, err) != 0
               ? -1
               : llama_body_take_prompt(context, body->json, err);
}

/* In llama.cpp's forms, output that does not fit is cut. */
static int read_form(const struct api_context *context, struct completion_body *body,
                     struct api_error *err) {
    if (take_form(context, body, err) != 0 || read_all(context, body, err) != 0)
        return -1;
    if (body->form == COMPLETION_OPENAI)
        return 0;
    body->sampling.max_tokens_field = NULL;
    const struct prompt_limits limits = sampling_body_prompt_limits(&body->sampling);
    return body->form == COMPLETION_LLAMA
               ? 0
               : infill_body_read_tokens(context, &limits, &body->infill, err);
}

static const struct body_names *names_of(enum completion_form form) {
    if (form == COMPLETION_INFILL)
        return &llama_body_infill_names;
    return form == COMPLETION_LLAMA ? &llama_body_names : &openai_names;
}

int completion_body_parse(const struct api_context *context, const char *text, size_t length,
                          enum completion_form form, struct completion_body *out,
                          struct api_error *err) {
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    if (form == COMPLETION_EITHER)
        form = json_given_member(json, "n_predict") != NULL ? COMPLETION_LLAMA : COMPLETION_OPENAI;
    bool is_openai = form == COMPLETION_OPENAI;
    struct completion_body body = {
        .json = json,
        .sampling = sampling_body_defaults(context, names_of(form),
                                           is_openai ? DEFAULT_MAX_TOKENS : SAMPLING_TO_THE_END),
        .form = form,
        .logprobs = -1,
        .add_special_tokens = true,
        .parse_special = true,
    };
    /* Code may contain the text of control tokens: llama.cpp's /infill does not parse them
     * either. */
    const cJSON *suffix = json_member(body.json, "suffix");
    if (form == COMPLETION_INFILL || (cJSON_IsString(suffix) && suffix->valuestring[0] != '\0'))
        body.parse_special = false;
    if (read_form(context, &body, err) != 0) {
        completion_body_finish(&body);
        return -1;
    }
    *out = body;
    return 0;
}

int completion_body_tokens(const struct api_context *context, const struct completion_body *body,
                           const cJSON *item, const char *path, struct prompt_tokens *out,
                           int32_t *out_begin, int32_t *out_end, struct api_error *err) {
    unsigned flags = prompt_text_flags(body->add_special_tokens, body->parse_special);
    const struct prompt_limits limits = sampling_body_prompt_limits(&body->sampling);
    const struct fim_prompt fim = {.item = item,
                                   .path = path,
                                   .suffix = &body->suffix_tokens,
                                   .between = &body->infill.between,
                                   .in_front = &body->infill.in_front,
                                   .flags = flags};
    if (completion_body_has_suffix(body))
        return fim_prompt_tokens(context, &fim, &limits, out, out_begin, out_end, err);
    if (prompt_read_tokens(context, item, path, flags, &limits, out, err) != 0)
        return -1;
    int before = 0, behind = 0;
    if (cJSON_IsString(item) && body->add_special_tokens)
        tokenizer_num_added(context->tokenizer, &before, &behind);
    *out_begin = before;
    *out_end = out->count - behind;
    return 0;
}

void completion_body_finish(struct completion_body *body) {
    sampling_body_finish(&body->sampling);
    free(body->suffix_tokens.ids);
    body->suffix_tokens.ids = NULL;
    infill_body_finish(&body->infill);
    cJSON_Delete(body->response_fields);
    cJSON_Delete(body->json);
    body->json = NULL;
    byte_buffer_finish(&body->ignored);
}

struct sampling_params completion_body_params(const struct completion_body *body,
                                              const struct api_context *context,
                                              int32_t num_prompt_tokens, uint64_t seed) {
    struct sampling_params params = sampling_body_params(
        &body->sampling, context, num_prompt_tokens, (int32_t)body->logprobs, seed);
    bool shows_prompt = body->echo && body->form != COMPLETION_LLAMA;
    if (shows_prompt && body->logprobs > params.num_prompt_logprobs)
        params.num_prompt_logprobs = (int32_t)body->logprobs;
    return params;
}
