#include "server/api/completion_request.h"

#include "server/json/json_parse.h"
#include "server/api/model_name.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Temperatures below the first are taken as greedy, those up to the second as the second: smaller
 * divisors overflow float logits. The same bounds as vLLM's. */
#define GREEDY_TEMPERATURE 1e-5
#define MIN_TEMPERATURE 1e-2

#define AT(member) .offset = offsetof(struct completion_request, member)
#define BOOL(member)                                                                               \
    { #member, JSON_FIELD_BOOL, AT(member) }
#define INT(member, low, high)                                                                     \
    { #member, JSON_FIELD_INT, AT(member), .min = (low), .max = (high) }
#define NUMBER(member, low, high)                                                                  \
    { #member, JSON_FIELD_NUMBER, AT(member), .min = (low), .max = (high) }
#define NUMBER_ABOVE(member, low, high)                                                            \
    { #member, JSON_FIELD_NUMBER, AT(member), .min = (low), .max = (high), .above_min = true }
#define TEXT(member)                                                                               \
    { #member, JSON_FIELD_TEXT, AT(member) }
#define OTHER(field)                                                                               \
    { #field, JSON_FIELD_OTHER }

static const struct json_field fields[] = {
    OTHER(prompt),
    TEXT(model),
    INT(max_tokens, 0, INT32_MAX),
    NUMBER(temperature, 0, 2),
    NUMBER_ABOVE(top_p, 0, 1),
    INT(top_k, -1, INT32_MAX),
    NUMBER(min_p, 0, 1),
    INT(n, 1, MAX_CHOICES),
    INT(best_of, 1, MAX_CHOICES),
    NUMBER(presence_penalty, -2, 2),
    NUMBER(frequency_penalty, -2, 2),
    NUMBER(repetition_penalty, 0.01, 10),
    OTHER(logit_bias),
    INT(seed, -JSON_MAX_INT, JSON_MAX_INT),
    OTHER(stop),
    OTHER(stop_token_ids),
    BOOL(ignore_eos),
    INT(min_tokens, 0, INT32_MAX),
    BOOL(include_stop_str_in_output),
    BOOL(skip_special_tokens),
    INT(logprobs, 0, SAMPLE_MAX_LOGPROBS),
    BOOL(echo),
    BOOL(stream),
    OTHER(stream_options),
    OTHER(suffix),
    TEXT(user),
    INT(priority, INT32_MIN, INT32_MAX),
    BOOL(add_special_tokens),
};

static const struct json_field stream_option_fields[] = {BOOL(include_usage)};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct completion_request defaults = {
    .n = 1,
    .max_tokens = 16,
    .logprobs = -1,
    .seed = COMPLETION_NO_SEED,
    .skip_special_tokens = true,
    .add_special_tokens = true,
};

static struct completion_request defaults_of(const struct sampling_defaults *sampling) {
    struct completion_request request = defaults;
    request.temperature = sampling->temperature;
    request.top_p = sampling->top_p;
    request.min_p = sampling->min_p;
    request.repetition_penalty = sampling->repetition_penalty;
    request.top_k = sampling->top_k;
    return request;
}

const struct json_field *completion_request_fields(int *out_count) {
    *out_count = COUNT(fields);
    return fields;
}

static int refuse(struct api_error *err, const char *param, const char *message) {
    return api_error_set(err, 400, "invalid_request_error", "unsupported_value", param, "%s",
                         message);
}

static int read_stream_options(struct completion_request *request, struct api_error *err) {
    const cJSON *options = cJSON_GetObjectItemCaseSensitive(request->json, "stream_options");
    if (options == NULL || cJSON_IsNull(options))
        return 0;
    if (!cJSON_IsObject(options))
        return json_refuse(options, "stream_options", "an object", err);
    if (!request->stream)
        return refuse(err, "stream_options", "stream_options is only allowed with stream: true");
    if (json_fields_read(options, stream_option_fields, COUNT(stream_option_fields), request,
                         err) != 0) {
        snprintf(err->param, sizeof(err->param), "stream_options.include_usage");
        return -1;
    }
    json_fields_list_unknown(options, stream_option_fields, COUNT(stream_option_fields),
                             "stream_options.", &request->ignored);
    return 0;
}

/* What the table cannot say: fields that depend on others. */
static int check_combinations(const struct completion_request *request, struct api_error *err) {
    const cJSON *suffix = cJSON_GetObjectItemCaseSensitive(request->json, "suffix");
    if (suffix != NULL && !cJSON_IsNull(suffix))
        return refuse(err, "suffix", "suffix is not supported: leave it out or null");
    if (request->best_of != 0 && request->best_of != request->n)
        return refuse(err, "best_of", "best_of is not supported: leave it out or equal to n");
    if (request->max_tokens == 0 && !request->echo)
        return refuse(err, "max_tokens",
                      "max_tokens must be at least 1, not 0: 0 is allowed with echo: true only");
    if (request->min_tokens > request->max_tokens)
        return api_error_set(err, 400, "invalid_request_error", "out_of_range", "min_tokens",
                             "min_tokens must be at most max_tokens (%lld), not %lld",
                             (long long)request->max_tokens, (long long)request->min_tokens);
    return 0;
}

static int read_prompts(const struct api_context *context, struct completion_request *request,
                        struct api_error *err) {
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(request->json, "prompt");
    if (prompt_list_read(context, prompt, &request->prompts, err) != 0)
        return -1;
    int64_t num_choices = request->n * request->prompts.num_prompts;
    if (num_choices > context->max_choices)
        return api_error_set(err, 400, "invalid_request_error", "out_of_range", "n",
                             "n times the number of prompts must be at most %d, not %lld",
                             (int)context->max_choices, (long long)num_choices);
    return 0;
}

static int read_all(const struct api_context *context, struct completion_request *request,
                    struct api_error *err) {
    if (json_fields_read(request->json, fields, COUNT(fields), request, err) != 0 ||
        (request->model != NULL && model_name_check(context, request->model, err) != 0))
        return -1;
    json_fields_list_unknown(request->json, fields, COUNT(fields), "", &request->ignored);
    if (read_stream_options(request, err) != 0 || check_combinations(request, err) != 0 ||
        sampling_lists_read(request->json, tokenizer_vocab_size(context->tokenizer),
                            &request->lists, err) != 0)
        return -1;
    return read_prompts(context, request, err);
}

int completion_request_parse(const struct api_context *context, const char *body, size_t length,
                             struct completion_request *out, struct api_error *err) {
    struct completion_request request = defaults_of(&context->sampling);
    request.json = json_parse(body, length, err);
    if (request.json == NULL)
        return -1;
    if (read_all(context, &request, err) != 0) {
        completion_request_finish(&request);
        return -1;
    }
    *out = request;
    return 0;
}

void completion_request_finish(struct completion_request *request) {
    cJSON_Delete(request->json);
    request->json = NULL;
    byte_buffer_finish(&request->ignored);
}

static float usable_temperature(double temperature) {
    if (temperature < GREEDY_TEMPERATURE)
        return 0.0f;
    return (float)(temperature < MIN_TEMPERATURE ? MIN_TEMPERATURE : temperature);
}

struct sampling_params completion_request_params(const struct completion_request *request,
                                                 const struct api_context *context,
                                                 int32_t num_prompt_tokens, uint64_t seed) {
    int64_t room = context->max_model_len - num_prompt_tokens;
    int64_t max_tokens = request->max_tokens < room ? request->max_tokens : room;
    int64_t min_tokens = request->min_tokens < max_tokens ? request->min_tokens : max_tokens;
    return (struct sampling_params){
        .num_choices = (int32_t)request->n,
        .max_tokens = (int32_t)max_tokens,
        .min_tokens = (int32_t)min_tokens,
        .temperature = usable_temperature(request->temperature),
        .top_p = (float)request->top_p,
        .min_p = (float)request->min_p,
        .top_k = (int32_t)request->top_k,
        .repetition_penalty = (float)request->repetition_penalty,
        .frequency_penalty = (float)request->frequency_penalty,
        .presence_penalty = (float)request->presence_penalty,
        .seed = seed,
        .num_logprobs = (int32_t)request->logprobs,
        .num_prompt_logprobs = request->echo ? (int32_t)request->logprobs : -1,
        .ignore_eos = request->ignore_eos,
        .include_stop_string = request->include_stop_str_in_output,
        .skip_special_tokens = request->skip_special_tokens,
        .num_stop_strings = request->lists.num_stop_strings,
        .stop_strings = request->lists.stop_strings,
        .num_stop_tokens = request->lists.num_stop_tokens,
        .stop_tokens = request->lists.stop_tokens,
        .num_biases = request->lists.num_biases,
        .biases = request->lists.biases,
    };
}
