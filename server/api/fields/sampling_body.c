#include "server/api/fields/sampling_body.h"

#include "server/api/call/api_call_type.h"
#include "models/config/sampling_fields.h"
#include "server/api/fields/request_limits.h"
#include "server/api/fields/sampler_order.h"
#include "server/api/call/api_context.h"
#include "server/api/constraint/response_format.h"
#include "server/api/fields/unknown_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Temperatures below the first are treated as greedy, those up to the second as the second: smaller
 * divisors overflow float logits. The bounds are the same as vLLM's. */
#define GREEDY_TEMPERATURE 1e-5F
#define MIN_TEMPERATURE 1e-2F

#define MEMBER struct sampling_body

#define SETTING(member, type, low, least, high, gguf_key)                                          \
    {.name = #member,                                                                              \
     .kind = JSON_FIELD_##type,                                                                    \
     .offset = offsetof(MEMBER, settings.member),                                                  \
     .min = (low),                                                                                 \
     .max = (high),                                                                                \
     .above_min = (least) > (low)},

static const struct json_field fields[] = {
    JSON_TEXT(MEMBER, model),
    JSON_INT(MEMBER, max_tokens, 0, INT32_MAX),
    JSON_INT(MEMBER, min_tokens, 0, INT32_MAX),
    JSON_INT(MEMBER, n, 1, INT32_MAX), /* --max-n bounds both: request_limits.h */
    JSON_INT(MEMBER, best_of, 1, INT32_MAX),
    JSON_BOOL(MEMBER, use_beam_search),
    JSON_NUMBER(MEMBER, length_penalty, -10, 10),
    JSON_OTHER(early_stopping),
    JSON_INT64(MEMBER, seed),
    JSON_INT(MEMBER, priority, INT32_MIN, INT32_MAX),
    JSON_INT(MEMBER, timeout_ms, 1, MAX_TIMEOUT_MS),
    JSON_TEXT(MEMBER, cache_salt),
    JSON_INT(MEMBER, id_slot, -1, INT32_MAX),         /* api_call_set_slot bounds it */
    JSON_INT(MEMBER, prompt_logprobs, -1, INT32_MAX), /* --max-logprobs bounds it */
    JSON_BOOL(MEMBER, ignore_eos),
    JSON_BOOL(MEMBER, include_stop_str_in_output),
    JSON_BOOL(MEMBER, skip_special_tokens),
    JSON_BOOL(MEMBER, return_token_ids),
    JSON_BOOL(MEMBER, return_tokens_as_token_ids),
    JSON_TEXT(MEMBER, request_id),
    JSON_OTHER(truncate_prompt_tokens),
    JSON_OTHER(truncation_side),
    JSON_BOOL(MEMBER, stream),
    JSON_OTHER(stream_options),
    JSON_OTHER(stop),
    JSON_OTHER(stop_token_ids),
    JSON_OTHER(logit_bias),
    JSON_OTHER(allowed_token_ids),
    JSON_OTHER(logprob_token_ids),
    JSON_OTHER(bad_words),
    JSON_OTHER(dry_sequence_breakers),
    JSON_OTHER(samplers),
    JSON_OTHER(response_format),
    JSON_OTHER(structured_outputs),
    JSON_OTHER(regex),
    JSON_OTHER(json_schema),
    JSON_OTHER(guided_json),
    JSON_OTHER(guided_regex),
    JSON_OTHER(guided_choice),
    JSON_OTHER(guided_grammar),
    JSON_OTHER(guided_whitespace_pattern),
    JSON_OTHER(ebnf),
    JSON_OTHER(grammar),
    FOR_SAMPLING_FIELDS(SETTING)};

static const struct json_field stream_option_fields[] = {
    JSON_BOOL(MEMBER, include_usage),
    JSON_BOOL(MEMBER, continuous_usage_stats),
};

struct sampling_body sampling_body_defaults(const struct api_context *context,
                                            const struct body_names *names, int64_t max_tokens) {
    return (struct sampling_body){
        .names = names,
        .n = 1,
        .max_tokens = max_tokens,
        .settings = context->sampling,
        .length_penalty = 1,
        .prompt_logprobs = -1,
        .id_slot = -1,
        .skip_special_tokens = true,
    };
}

struct json_table sampling_body_table(void) {
    return JSON_TABLE(fields);
}

static int refuse(struct api_error *err, const char *param, const char *message) {
    return bad_request(err, "unsupported_value", param, "%s", message);
}

static int read_stream_options(const cJSON *json, struct sampling_body *body,
                               struct api_error *err) {
    const cJSON *options = cJSON_GetObjectItemCaseSensitive(json, "stream_options");
    if (options == NULL || cJSON_IsNull(options))
        return 0;
    if (!cJSON_IsObject(options))
        return json_refuse(options, "stream_options", "an object", err);
    if (!body->stream)
        return refuse(err, "stream_options", "stream_options is only allowed with stream: true");
    if (json_fields_read(options, JSON_TABLE(stream_option_fields), body, err) != 0) {
        char name[sizeof(err->param)];
        snprintf(name, sizeof(name), "%s", err->param);
        snprintf(err->param, sizeof(err->param), "stream_options.%.40s", name);
        return -1;
    }
    return 0;
}

/* Checks what the table cannot express: fields that depend on others. */
static int check_combinations(const cJSON *json, const struct sampling_body *body,
                              struct api_error *err) {
    if (body->transfer.hands_over && body->stream)
        return refuse(err, "stream",
                      "stream must be false with kv_transfer_params.do_remote_decode: true");
    if (body->best_of != 0 && body->best_of < body->n)
        return bad_request(
            err, "out_of_range", "best_of", "best_of must be at least %s (%lld), not %lld",
            body_names_field(body->names, json, "n"), (long long)body->n, (long long)body->best_of);
    if (sampling_body_has_best_of(body) && body->stream)
        return refuse(err, "best_of",
                      "best_of above n is not allowed with stream: true: the best are known only "
                      "at the end");
    if (body->prompt_logprobs > 0 && body->stream)
        return refuse(err, "prompt_logprobs",
                      "prompt_logprobs above 0 is not allowed with stream: true");
    if (body->max_tokens != SAMPLING_TO_THE_END && body->min_tokens > body->max_tokens)
        return bad_request(err, "out_of_range", "min_tokens",
                           "min_tokens must be at most %s (%lld), not %lld",
                           body_names_field(body->names, json, "max_tokens"),
                           (long long)body->max_tokens, (long long)body->min_tokens);
    return 0;
}

int sampling_body_read(const struct api_context *context, const cJSON *json,
                       struct sampling_body *body, struct api_error *err) {
    const struct body_names *names = body->names;
    const struct json_table table = body_names_table(names, JSON_TABLE(fields));
    if (request_limits_read(context, json, table, body, err) != 0)
        return -1;
    if (body_names_given(names, json, "prompt_logprobs") != NULL)
        body->prompt_logprobs = request_limits_logprobs(context, body->prompt_logprobs);
    if (body->transfer.hands_over) /* gateways lower max_tokens alone */
        body->min_tokens = 0;
    if ((body->model != NULL && api_context_check_model(context, body->model, err) != 0) ||
        read_stream_options(json, body, err) != 0 || check_combinations(json, body, err) != 0 ||
        sampler_order_check(json, err) != 0 ||
        prompt_truncation_read(context, json, &body->truncation, err) != 0)
        return -1;
    if (body_names_given(names, json, "max_tokens") != NULL)
        body->max_tokens_field = body_names_field(names, json, "max_tokens");
    body->has_seed = body_names_given(names, json, "seed") != NULL;
    if (sampling_lists_read(json, names, context->tokenizer, &body->lists, err) != 0)
        return -1;
    struct byte_buffer *ignored = context->ignores_schema_keywords ? &body->ignored_keywords : NULL;
    if (response_format_read(json, names, NULL, context->grammars, ignored, &body->grammar, err) ==
        0)
        return 0;
    sampling_body_finish(body);
    return -1;
}

void sampling_body_finish(struct sampling_body *body) {
    sampling_lists_finish(&body->lists);
    grammar_unref(body->grammar);
    byte_buffer_finish(&body->ignored_keywords);
    body->grammar = NULL;
}

int sampling_body_check_unknown(const struct api_context *context, const cJSON *json,
                                const struct sampling_body *body, struct json_table own,
                                struct byte_buffer *out, struct api_error *err) {
    const struct json_table tables[] = {body_names_table(body->names, JSON_TABLE(fields)),
                                        body_names_table(body->names, own)};
    const struct json_table option_tables[] = {JSON_TABLE(stream_option_fields)};
    const cJSON *options = cJSON_GetObjectItemCaseSensitive(json, "stream_options");
    if (unknown_fields_read(json, tables, 2, out, err) != 0)
        return -1;
    json_fields_list_unknown(options, option_tables, 1, NULL, "stream_options.", out);
    if (context->slots == NULL && json_given_member(json, "id_slot") != NULL)
        json_fields_append_name("id_slot", "", out);
    if (body->transfer.is_given)
        kv_transfer_list_unknown(json, out);
    response_format_list_unknown(json, body->names, out);
    if (unknown_fields_check(context, out, err) != 0)
        return -1;
    if (body->ignored_keywords.length > 0) {
        byte_buffer_append_text(out, out->length > 0 ? "," : "");
        byte_buffer_append(out, body->ignored_keywords.data, body->ignored_keywords.length);
    }
    out->failed |= body->ignored_keywords.failed;
    return 0;
}

struct prompt_limits sampling_body_prompt_limits(const struct sampling_body *body) {
    return (struct prompt_limits){.max_tokens = body->max_tokens,
                                  .max_tokens_field = body->max_tokens_field,
                                  .truncation = body->truncation};
}

static int32_t num_wanted(const struct sampling_body *body) {
    return (int32_t)(body->best_of != 0 ? body->best_of : body->n);
}

int32_t sampling_body_num_choices(const struct sampling_body *body) {
    return body->use_beam_search ? (int32_t)body->n : num_wanted(body);
}

int32_t sampling_body_beam_width(const struct sampling_body *body) {
    return body->use_beam_search ? num_wanted(body) : 0;
}

bool sampling_body_has_best_of(const struct sampling_body *body) {
    return sampling_body_num_choices(body) > body->n;
}

int64_t sampling_body_logprob_entries(const struct sampling_body *body, int32_t num_logprobs) {
    if (num_logprobs < 0)
        return 0;
    int32_t num_listed = body->lists.num_logprob_tokens;
    return 1 + (int64_t)(num_listed > 0 ? num_listed : num_logprobs);
}

int sampling_body_check_logprob_tokens(const struct sampling_body *body, int32_t num_logprobs,
                                       struct api_error *err) {
    if (body->lists.num_logprob_tokens == 0)
        return 0;
    if (num_logprobs < 0)
        return refuse(err, "logprob_token_ids", "logprob_token_ids is only allowed with logprobs");
    if (body->max_tokens == 0)
        return refuse(err, "logprob_token_ids",
                      "logprob_token_ids are of generated tokens: max_tokens must be at least 1");
    return 0;
}

/* SplitMix64's output function (Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014): neighbouring counters become unrelated seeds. */
static uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

uint64_t sampling_body_seed(const struct api_context *context, const struct sampling_body *body) {
    if (body->has_seed)
        return (uint64_t)body->seed;
    uint64_t number = context->num_seeds != NULL ? atomic_fetch_add(context->num_seeds, 1) : 0;
    return mix(context->seed ^ mix(number));
}

static int refuse_room(const struct api_context *context, const char *name, int64_t value,
                       const char *prompt, int32_t num_prompt_tokens, struct api_error *err) {
    return bad_request(err, "context_length_exceeded", name,
                       "%s must be at most %d, not %lld: this model's maximum context length is "
                       "%d tokens, and %s has %d",
                       name, (int)context->limits->max_model_len - (int)num_prompt_tokens,
                       (long long)value, (int)context->limits->max_model_len, prompt,
                       (int)num_prompt_tokens);
}

int sampling_body_check_room(const struct sampling_body *body, const struct api_context *context,
                             const char *prompt, int32_t num_prompt_tokens, struct api_error *err) {
    int64_t room = context->limits->max_model_len - num_prompt_tokens;
    if (body->max_tokens_field != NULL && body->max_tokens > room)
        return refuse_room(context, body->max_tokens_field, body->max_tokens, prompt,
                           num_prompt_tokens, err);
    if (body->min_tokens > room)
        return refuse_room(context, "min_tokens", body->min_tokens, prompt, num_prompt_tokens, err);
    return 0;
}

static struct sampling_settings usable_settings(struct sampling_settings settings) {
    if (settings.temperature < GREEDY_TEMPERATURE)
        settings.temperature = 0;
    else if (settings.temperature < MIN_TEMPERATURE)
        settings.temperature = MIN_TEMPERATURE;
    settings.top_p = fmaxf(settings.top_p, (float)SAMPLING_MIN_TOP_P);
    settings.typical_p = fmaxf(settings.typical_p, (float)SAMPLING_MIN_TOP_P);
    settings.xtc_threshold = fmaxf(settings.xtc_threshold, (float)SAMPLING_MIN_TOP_P);
    return settings;
}

/* Returns num_logprobs, or 0 instead of none for best_of, which compares log probabilities. */
static int32_t needed_logprobs(const struct sampling_body *body, int32_t num_logprobs) {
    return num_logprobs < 0 && sampling_body_has_best_of(body) ? 0 : num_logprobs;
}

struct sampling_params sampling_body_params(const struct sampling_body *body,
                                            const struct api_context *context,
                                            int32_t num_prompt_tokens, int32_t num_logprobs,
                                            uint64_t seed) {
    const struct sampling_lists *lists = &body->lists;
    int64_t room = context->limits->max_model_len - num_prompt_tokens;
    bool is_open = body->max_tokens == SAMPLING_TO_THE_END || body->max_tokens > room;
    int64_t max_tokens = is_open ? room : body->max_tokens;
    return (struct sampling_params){
        .num_choices = sampling_body_num_choices(body),
        .beam_width = sampling_body_beam_width(body),
        .length_penalty = body->length_penalty,
        .early_stopping = body->early_stopping,
        .max_tokens = (int32_t)max_tokens,
        .min_tokens = (int32_t)body->min_tokens,
        .settings = usable_settings(body->settings),
        .seed = seed,
        .num_logprobs = needed_logprobs(body, num_logprobs),
        .num_prompt_logprobs = (int32_t)body->prompt_logprobs,
        .ignore_eos = body->ignore_eos,
        .include_stop_string = body->include_stop_str_in_output,
        .skip_special_tokens = body->skip_special_tokens,
        .num_stop_strings = lists->num_stop_strings,
        .stop_strings = lists->stop_strings,
        .num_stop_tokens = lists->num_stop_tokens,
        .stop_tokens = lists->stop_tokens,
        .num_biases = lists->num_biases,
        .biases = lists->biases,
        .num_allowed_tokens = lists->num_allowed_tokens,
        .allowed_tokens = lists->allowed_tokens,
        .num_bad_runs = lists->num_bad_runs,
        .bad_runs = lists->bad_runs,
        .num_dry_breakers = lists->num_dry_breakers,
        .dry_breakers = lists->dry_breakers,
        .num_logprob_tokens = lists->num_logprob_tokens,
        .logprob_tokens = lists->logprob_tokens,
        .grammar = body->grammar,
    };
}
