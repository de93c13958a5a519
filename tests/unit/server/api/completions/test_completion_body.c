#include "server/api/completions/completion_body.h"

#include "server/api/fields/request_limits.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *const names[] = {"m", "alias"};
static const struct api_context context = {
    .limits = &(const struct serving_limits){.max_model_len = 64, .max_logprobs = 20},
    .model_names = names,
    .num_model_names = 2,
    .max_prompts = 4,
    .max_n = 16,
    .max_choices = 32,
    .max_prompt_tokens = 100,
    .sampling = SAMPLING_SETTINGS_NEUTRAL,
};

static int parse(const char *body, struct completion_body *out, struct api_error *err) {
    return completion_body_parse(&context, body, strlen(body), COMPLETION_OPENAI, out, err);
}

/* A value to try in a field: JSON text, and what it is as a number (NaN: not one). */
struct value {
    char text[48];
    double number;
    bool is_null, is_bool, is_string;
};

static struct value number_value(double number) {
    struct value value = {.number = number};
    snprintf(value.text, sizeof(value.text), "%.17g", number);
    return value;
}

static struct value other_value(const char *text) {
    struct value value = {.number = NAN};
    snprintf(value.text, sizeof(value.text), "%s", text);
    value.is_null = strcmp(text, "null") == 0;
    value.is_bool = strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    value.is_string = text[0] == '"';
    return value;
}

/* The rule the table states, written a second time. */
static bool is_allowed(const struct json_field *field, const struct value *value) {
    if (value->is_null)
        return true;
    switch (field->kind) {
    case JSON_FIELD_BOOL:
        return value->is_bool;
    case JSON_FIELD_TEXT:
        return value->is_string;
    case JSON_FIELD_INT:
    case JSON_FIELD_INT32:
        return !isnan(value->number) && rint(value->number) == value->number &&
               value->number >= (strcmp(field->name, "max_tokens") == 0 ? -1 : field->min) &&
               value->number <= field->max;
    case JSON_FIELD_INT64:
        return !isnan(value->number) && rint(value->number) == value->number &&
               value->number >= -0x1p63 && value->number < 0x1p63;
    case JSON_FIELD_NUMBER:
    case JSON_FIELD_FLOAT:
        return !isnan(value->number) && value->number <= field->max &&
               (field->above_min ? value->number > field->min : value->number >= field->min);
    case JSON_FIELD_OTHER:
        return false;
    }
    return false;
}

/* What else a body needs so that only the field's own value decides. */
static void companion(const struct json_field *field, const struct value *value, char *out,
                      size_t capacity) {
    out[0] = '\0';
    if (strcmp(field->name, "n") == 0 && is_allowed(field, value) && !value->is_null)
        snprintf(out, capacity, ",\"best_of\":%s", value->text);
    if (strcmp(field->name, "max_tokens") == 0)
        snprintf(out, capacity, ",\"echo\":true");
    if (strcmp(field->name, "min_tokens") == 0)
        snprintf(out, capacity, ",\"max_tokens\":2147483647");
}

static void try_value(const struct json_field *field, struct value value) {
    char body[256], more[64];
    companion(field, &value, more, sizeof(more));
    snprintf(body, sizeof(body), "{\"prompt\":\"x\",\"%s\":%s%s}", field->name, value.text, more);
    struct completion_body request;
    struct api_error err = {0};
    int result = parse(body, &request, &err);
    if (result == 0)
        completion_body_finish(&request);
    if ((result == 0) != is_allowed(field, &value))
        fail_msg("%s: result %d, %s", body, result, err.message);
    if (result == 0)
        return;
    assert_int_equal(err.status, 400);
    if (strcmp(err.param, field->name) != 0 || strstr(err.message, field->name) == NULL)
        fail_msg("%s: param \"%s\", message \"%s\"", body, err.param, err.message);
    assert_null(strstr(err.message, "0x"));
}

static void try_overflow(const struct json_field *field) {
    char body[128];
    snprintf(body, sizeof(body), "{\"prompt\":\"x\",\"%s\":1e400}", field->name);
    struct completion_body request;
    struct api_error err;
    assert_int_equal(parse(body, &request, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.code, "invalid_json");
}

static int try_table(struct json_table table) {
    static const double fixed[] = {2147483647.0,
                                   2147483648.0,
                                   -2147483648.0,
                                   -2147483649.0,
                                   9007199254740993.0,
                                   -9007199254740993.0,
                                   9.3e18,
                                   -0.0,
                                   0,
                                   1,
                                   -1,
                                   1.5,
                                   -1.5,
                                   1e300,
                                   -1e300,
                                   1e-300,
                                   17,
                                   1e6};
    static const char *const others[] = {"\"3\"", "\"m\"", "null", "true", "false",
                                         "[]",    "[1]",   "{}",   "\"\""};
    int num_tried = 0;
    for (int f = 0; f < table.num_fields; f++) {
        const struct json_field bounded = request_limits_bind(&context, &table.fields[f]);
        const struct json_field *field = &bounded;
        if (field->kind == JSON_FIELD_OTHER)
            continue;
        num_tried++;
        for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
            try_value(field, number_value(fixed[i]));
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
            bool is_model = strcmp(field->name, "model") == 0;
            if (!(is_model && others[i][0] == '"'))
                try_value(field, other_value(others[i]));
        }
        try_overflow(field);
        if (!json_field_is_bounded(field))
            continue;
        double step = json_field_is_int(field) ? 1 : 0.001;
        try_value(field, number_value(field->min - step));
        try_value(field, number_value(field->min));
        try_value(field, number_value(field->min + step));
        try_value(field, number_value(field->max - step));
        try_value(field, number_value(field->max));
        try_value(field, number_value(field->max + step));
    }
    return num_tried;
}

static void every_scalar_field_is_ranged(void **state) {
    int num_tried = try_table(completion_body_table()) + try_table(sampling_body_table());
    assert_true(num_tried >= 20);
}

/* Body, parameter that must be named, code that must be given (NULL: any), part of the message. */
struct refusal {
    const char *body, *param, *code, *message;
    int status;
};

static const struct refusal refusals[] = {
    {"{}", "prompt", "missing_required_parameter", "missing", 400},
    {"{\"prompt\":null}", "prompt", NULL, "not null", 400},
    {"{\"prompt\":1}", "prompt", NULL, "not 1", 400},
    {"{\"prompt\":{}}", "prompt", NULL, "not an object", 400},
    {"{\"prompt\":\"\"}", "prompt", "empty_prompt", "empty", 400},
    {"{\"prompt\":[]}", "prompt", "empty_prompt", "empty", 400},
    {"{\"prompt\":[[]]}", "prompt[0]", "empty_prompt", "empty", 400},
    {"{\"prompt\":[\"a\",\"\"]}", "prompt[1]", "empty_prompt", "empty", 400},
    {"{\"prompt\":[[1],[]]}", "prompt[1]", "empty_prompt", "empty", 400},
    {"{\"prompt\":[\"a\",1]}", "prompt[1]", NULL, "not 1", 400},
    {"{\"prompt\":[\"a\",null]}", "prompt[1]", NULL, "not null", 400},
    {"{\"prompt\":[true]}", "prompt[0]", NULL, "not true", 400},
    {"{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", "prompt", "array_above_max_length", "4", 400},
    {"{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":16}", "n", "out_of_range", "32, not 48", 400},
    {"{\"prompt\":\"a\",\"model\":\"gpt\"}", "model", "model_not_found", "\"gpt\"", 404},
    {"{\"prompt\":\"a\",\"suffix\":1}", "suffix", NULL, "a string", 400},
    {"{\"prompt\":[],\"suffix\":\"b\"}", "prompt", "empty_prompt", "empty", 400},
    {"{\"prompt\":\"a\",\"suffix\":\"b\",\"truncation_side\":\"right\"}", "truncation_side", NULL,
     "with suffix", 400},
    {"{\"prompt\":\"a\",\"n\":17}", "n", "out_of_range", "from 1 to 16 (--max-n), not 17", 400},
    {"{\"prompt\":\"a\",\"best_of\":5000}", "best_of", "out_of_range",
     "from 1 to 16 (--max-n), not 5000", 400},
    {"{\"prompt\":\"a\",\"n\":2,\"best_of\":1}", "best_of", NULL, "at least n (2), not 1", 400},
    {"{\"prompt\":\"a\",\"best_of\":2,\"stream\":true}", "best_of", NULL, "stream", 400},
    {"{\"prompt\":[\"a\",\"b\",\"c\"],\"best_of\":16}", "best_of", "out_of_range", "32, not 48",
     400},
    {"{\"prompt\":\"a\",\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs", NULL, "stream",
     400},
    {"{\"prompt\":\"a\",\"allowed_token_ids\":[]}", "allowed_token_ids", NULL, "one or more", 400},
    {"{\"prompt\":\"a\",\"allowed_token_ids\":5}", "allowed_token_ids", NULL, "array", 400},
    {"{\"prompt\":\"a\",\"allowed_token_ids\":[1,300]}", "allowed_token_ids[1]", NULL,
     "299, not 300", 400},
    {"{\"prompt\":\"a\",\"bad_words\":\"x\"}", "bad_words", NULL, "array of strings", 400},
    {"{\"prompt\":\"a\",\"bad_words\":[\"x\",\"\"]}", "bad_words[1]", NULL, "0 bytes", 400},
    {"{\"prompt\":\"a\",\"bad_words\":[1]}", "bad_words[0]", NULL, "a string", 400},
    {"{\"prompt\":\"a\",\"bad_words\":[\"0123456789012345678901234567890123456789\"]}",
     "bad_words[0]", NULL, "tokens", 400},
    {"{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":1}}",
     "stream_options.continuous_usage_stats", NULL, "true or false", 400},
    {"{\"prompt\":\"a\",\"max_tokens\":0}", "max_tokens", NULL, "echo", 400},
    {"{\"prompt\":\"a\",\"min_tokens\":17}", "min_tokens", NULL, "(16), not 17", 400},
    {"{\"prompt\":\"a\",\"stream_options\":{}}", "stream_options", NULL, "stream", 400},
    {"{\"prompt\":\"a\",\"stream\":false,\"stream_options\":{\"include_usage\":true}}",
     "stream_options", NULL, "stream", 400},
    {"{\"prompt\":\"a\",\"stream\":true,\"stream_options\":1}", "stream_options", NULL, "object",
     400},
    {"{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":1}}",
     "stream_options.include_usage", NULL, "true or false", 400},
    {"{\"prompt\":\"a\",\"stop\":1}", "stop", NULL, "not 1", 400},
    {"{\"prompt\":\"a\",\"stop\":\"\"}", "stop", NULL, "0 bytes", 400},
    {"{\"prompt\":\"a\",\"stop\":[\"x\",\"\"]}", "stop[1]", NULL, "0 bytes", 400},
    {"{\"prompt\":\"a\",\"stop\":[1]}", "stop[0]", NULL, "a string", 400},
    {"{\"prompt\":\"a\",\"stop_token_ids\":5}", "stop_token_ids", NULL, "array", 400},
    {"{\"prompt\":\"a\",\"stop_token_ids\":[1,300]}", "stop_token_ids[1]", NULL, "299, not 300",
     400},
    {"{\"prompt\":\"a\",\"stop_token_ids\":[-1]}", "stop_token_ids[0]", NULL, "not -1", 400},
    {"{\"prompt\":\"a\",\"logit_bias\":[]}", "logit_bias", NULL, "object", 400},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"300\":1}}", "logit_bias", NULL, "\"300\"", 400},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"-1\":1}}", "logit_bias", NULL, "\"-1\"", 400},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"01\":1}}", "logit_bias", NULL, "\"01\"", 400},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"\":1}}", "logit_bias", NULL, "\"\"", 400},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"99999999999999999999\":1}}", "logit_bias", NULL, "999",
     400},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"5\":101}}", "logit_bias.5", NULL, "100, not 101", 400},
    {"{\"prompt\":\"a\",\"logit_bias\":{\"5\":false}}", "logit_bias.5", NULL, "not false", 400},
    {"{\"prompt\":\"a\",\"top_p\":0}", "top_p", "out_of_range", "above 0", 400},
    {"{\"prompt\":\"a\",\"logprobs\":true}", "logprobs", "invalid_type",
     "logprobs must be an integer from 0 to 20 (--max-logprobs), not true", 400},
    {"{\"prompt\":\"a\",\"logprobs\":-1}", "logprobs", "out_of_range",
     "to 20 (--max-logprobs), not -1", 400},
    {"{\"prompt\":\"a\",\"prompt_logprobs\":21}", "prompt_logprobs", "out_of_range",
     "to 20 (--max-logprobs), not 21", 400},
    {"{\"prompt\":\"a\",\"logprob_token_ids\":[1]}", "logprob_token_ids", NULL, "with logprobs",
     400},
    {"{\"prompt\":\"a\",\"logprobs\":1,\"logprob_token_ids\":5}", "logprob_token_ids", NULL,
     "an array of token ids", 400},
    {"{\"prompt\":\"a\",\"logprobs\":1,\"logprob_token_ids\":[1,-2]}", "logprob_token_ids[1]", NULL,
     "not -2", 400},
    {"{\"prompt\":\"a\",\"logprobs\":1,\"logprob_token_ids\":[1],\"echo\":true,\"max_tokens\":0}",
     "logprob_token_ids", NULL, "at least 1", 400},
    {"{\"prompt\":\"a\",\"temperature\":3}", "temperature", "out_of_range",
     "temperature must be a number from 0 to 2, not 3", 400},
    {"{\"prompt\":\"a\",\"MODEL\":\"x\",\"n\":\"two\"}", "n", "invalid_type", "not \"two\"", 400},
};

static void refusals_name_field_value_and_rule(void **state) {
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *r = &refusals[i];
        struct completion_body request;
        struct api_error err = {0};
        if (parse(r->body, &request, &err) == 0)
            fail_msg("accepted %s", r->body);
        if (err.status != r->status || strcmp(err.param, r->param) != 0 ||
            strstr(err.message, r->message) == NULL ||
            (r->code != NULL && strcmp(r->code, err.code) != 0))
            fail_msg("%s: %d, param \"%s\", code \"%s\", \"%s\"", r->body, err.status, err.param,
                     err.code, err.message);
    }
}

/* As llama.cpp calls them, or as the body does where it has a completion's name. */
static void errors_have_the_forms_names(void **state) {
#define LLAMA(more) COMPLETION_LLAMA, "{\"prompt\":\"a\"," more "}"
#define INFILL(more) COMPLETION_INFILL, "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"," more "}"
    static const struct {
        enum completion_form form;
        const char *body, *param, *message;
    } cases[] = {
        {LLAMA("\"n_predict\":-2"), "n_predict",
         "n_predict must be an integer from -1 to 2147483647, not -2"},
        {LLAMA("\"max_tokens\":-2"), "max_tokens",
         "max_tokens must be an integer from 0 to 2147483647, not -2"},
        {LLAMA("\"n_probs\":21"), "n_probs",
         "n_probs must be an integer from 0 to 20 (--max-logprobs), not 21"},
        {LLAMA("\"n_probs\":-1"), "n_probs",
         "n_probs must be an integer from 0 to 20 (--max-logprobs), not -1"},
        {LLAMA("\"n_cmpl\":0"), "n_cmpl",
         "n_cmpl must be an integer from 1 to 16 (--max-n), not 0"},
        {LLAMA("\"n_cmpl\":2,\"best_of\":1"), "best_of",
         "best_of must be at least n_cmpl (2), not 1"},
        {LLAMA("\"repeat_penalty\":0"), "repeat_penalty", NULL},
        {LLAMA("\"repetition_penalty\":0"), "repetition_penalty", NULL},
        {LLAMA("\"return_tokens\":1"), "return_tokens",
         "return_tokens must be true or false, not 1"},
        {LLAMA("\"n_predict\":3,\"min_tokens\":4"), "min_tokens",
         "min_tokens must be at most n_predict (3), not 4"},
        {LLAMA("\"stop\":[\"\",1]"), "stop[0]", "stop[0] must be a string, not 1"},
        {LLAMA("\"repeat_penalty\":2,\"repeat_last_n\":64"), "repeat_last_n", NULL},
        {COMPLETION_LLAMA, "{\"prompt\":null,\"n_predict\":1}", "prompt", NULL},
        {COMPLETION_LLAMA, "{\"prompt\":[\"a\",\"b\",\"c\"],\"n_cmpl\":16}", "n_cmpl",
         "n_cmpl times the number of prompts must be at most 32, not 48"},
        {COMPLETION_INFILL, "{\"input_prefix\":\"a\"}", "input_suffix",
         "input_suffix must be a string, not missing"},
        {COMPLETION_INFILL, "{\"input_suffix\":\"a\",\"prompt\":\"b\"}", "input_prefix",
         "input_prefix must be a string, not missing"},
        {INFILL("\"prompt\":1"), "prompt", "prompt must be a string, not 1"},
        {INFILL("\"max_tokens\":1"), "max_tokens",
         "max_tokens is not a field of /infill: use n_predict"},
        {INFILL("\"suffix\":\"\""), "suffix", "suffix is not a field of /infill: use input_suffix"},
        {INFILL("\"n_predict\":\"a\""), "n_predict", NULL},
        {COMPLETION_OPENAI, "{\"prompt\":\"a\",\"n_predict\":-2}", "n_predict",
         "n_predict must be an integer from -1 to 2147483647, not -2"},
        {COMPLETION_OPENAI, "{\"prompt\":\"a\",\"repeat_penalty\":0}", "repeat_penalty", NULL},
        {COMPLETION_OPENAI, "{\"prompt\":\"a\",\"n_probs\":1}", "n_probs",
         "n_probs is not supported: leave it out or set it to 0; use logprobs"},
    };
#undef LLAMA
#undef INFILL
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct completion_body request;
        struct api_error err = {0};
        const char *body = cases[i].body, *message = cases[i].message;
        if (completion_body_parse(&context, body, strlen(body), cases[i].form, &request, &err) == 0)
            fail_msg("accepted %s", body);
        if (strcmp(err.param, cases[i].param) != 0 ||
            strncmp(err.message, err.param, strlen(err.param)) != 0 ||
            (message != NULL && strcmp(err.message, message) != 0))
            fail_msg("%s: param \"%s\", \"%s\"", body, err.param, err.message);
    }
}

static void llamas_fields_reach_the_engine(void **state) {
    static const struct {
        const char *body;
        int64_t max_tokens, logprobs, n;
    } cases[] = {
        {"{\"prompt\":\"a\",\"n_predict\":3,\"n_probs\":2,\"n_cmpl\":4}", 3, 2, 4},
        {"{\"prompt\":\"a\",\"max_tokens\":3,\"logprobs\":0,\"n\":4}", 3, 0, 4},
        {"{\"prompt\":\"a\",\"n_predict\":-1,\"n_probs\":0}", SAMPLING_TO_THE_END, -1, 1},
        {"{\"prompt\":\"a\",\"n_predict\":-1,\"max_tokens\":5}", 5, -1, 1},
        {"{\"prompt\":\"a\",\"n_predict\":2,\"max_tokens\":5,\"n_probs\":null}", 2, -1, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct completion_body request;
        struct api_error err = {0};
        const char *body = cases[i].body;
        if (completion_body_parse(&context, body, strlen(body), COMPLETION_LLAMA, &request, &err) !=
            0)
            fail_msg("%s: %s", body, err.message);
        assert_int_equal(request.sampling.max_tokens, cases[i].max_tokens);
        assert_int_equal(request.logprobs, cases[i].logprobs);
        assert_int_equal(request.sampling.n, cases[i].n);
        assert_int_equal(request.ignored.length, 0);
        completion_body_finish(&request);
    }
}

static struct completion_body parse_ok(const char *body) {
    struct completion_body request;
    struct api_error err = {0};
    if (parse(body, &request, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return request;
}

static void a_server_may_have_other_defaults(void **state) {
    struct api_context advised = context;
    struct completion_body request;
    struct api_error err;
    advised.sampling = (struct sampling_settings){
        .temperature = 0.5, .top_p = 0.75, .min_p = 0.25, .repetition_penalty = 1.25, .top_k = 20};
    static const char silent[] = "{\"prompt\":\"x\",\"top_p\":null}";
    assert_int_equal(
        completion_body_parse(&advised, silent, strlen(silent), COMPLETION_OPENAI, &request, &err),
        0);
    assert_true(request.sampling.settings.temperature == 0.5 &&
                request.sampling.settings.top_p == 0.75 && request.sampling.settings.min_p == 0.25);
    assert_true(request.sampling.settings.repetition_penalty == 1.25 &&
                request.sampling.settings.top_k == 20);
    completion_body_finish(&request);
    static const char spoken[] = "{\"prompt\":\"x\",\"top_k\":-1,\"top_p\":1,\"temperature\":0}";
    assert_int_equal(
        completion_body_parse(&advised, spoken, strlen(spoken), COMPLETION_OPENAI, &request, &err),
        0);
    assert_true(request.sampling.settings.temperature == 0 &&
                request.sampling.settings.top_p == 1 && request.sampling.settings.top_k == -1);
    assert_true(request.sampling.settings.min_p == 0.25);
    completion_body_finish(&request);
}

static void defaults_are_openais(void **state) {
    struct completion_body request = parse_ok("{\"prompt\":\"x\"}");
    struct sampling_params params = completion_body_params(&request, &context, 1, 7);
    assert_int_equal(params.num_choices, 1);
    assert_int_equal(params.max_tokens, 16);
    assert_int_equal(params.min_tokens, 0);
    assert_true(params.settings.temperature == 1 && params.settings.top_p == 1 &&
                params.settings.min_p == 0);
    assert_true(params.settings.top_k <= 0);
    assert_true(params.settings.repetition_penalty == 1 && params.settings.frequency_penalty == 0 &&
                params.settings.presence_penalty == 0);
    assert_int_equal(params.seed, 7);
    assert_int_equal(params.num_logprobs, -1);
    assert_int_equal(params.num_prompt_logprobs, -1);
    assert_true(params.skip_special_tokens);
    assert_false(params.ignore_eos || params.include_stop_string);
    assert_int_equal(params.num_stop_strings + params.num_stop_tokens + params.num_biases, 0);
    assert_true(request.add_special_tokens);
    assert_true(request.parse_special);
    assert_false(request.sampling.stream || request.echo || request.sampling.include_usage);
    assert_false(request.sampling.has_seed);
    completion_body_finish(&request);
}

static void all_fields_reach_the_engine(void **state) {
    struct completion_body request = parse_ok(
        "{\"model\":\"alias\",\"prompt\":\"x\",\"max_tokens\":9,\"min_tokens\":3,"
        "\"temperature\":0.5,\"top_p\":0.25,\"top_k\":40,\"min_p\":0.125,\"n\":2,\"best_of\":2,"
        "\"allowed_token_ids\":[7,299,7],\"bad_words\":[\"ab\"],"
        "\"presence_penalty\":-2,\"frequency_penalty\":2,\"repetition_penalty\":1.5,"
        "\"logit_bias\":{\"0\":-100,\"299\":100},\"seed\":-5,\"stop\":[\"ab\",\"c\"],"
        "\"stop_token_ids\":[257,0],\"ignore_eos\":true,\"include_stop_str_in_output\":true,"
        "\"skip_special_tokens\":false,\"logprobs\":5,\"echo\":true,\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true},\"suffix\":\"\","
        "\"priority\":-3,\"add_special_tokens\":false,\"parse_special\":false}");
    struct sampling_params params = completion_body_params(&request, &context, 1, 7);
    assert_int_equal(params.num_choices, 2);
    assert_int_equal(params.max_tokens, 9);
    assert_int_equal(params.min_tokens, 3);
    assert_true(params.settings.temperature == 0.5f && params.settings.top_p == 0.25f &&
                params.settings.min_p == 0.125f);
    assert_int_equal(params.settings.top_k, 40);
    assert_true(params.settings.presence_penalty == -2 && params.settings.frequency_penalty == 2 &&
                params.settings.repetition_penalty == 1.5f);
    assert_int_equal(params.num_biases, 2);
    assert_int_equal(params.biases[1].token, 299);
    assert_true(params.biases[0].bias == -100 && params.biases[1].bias == 100);
    assert_int_equal(params.num_allowed_tokens, 3);
    assert_int_equal(params.allowed_tokens[1], 299);
    assert_int_equal(params.num_bad_runs, 2);
    assert_int_equal(params.bad_runs[0].tokens[0], 'a');
    assert_int_equal(params.bad_runs[1].tokens[0], ' ');
    assert_int_equal(params.num_stop_strings, 2);
    assert_int_equal(params.stop_strings[0].length, 2);
    assert_memory_equal(params.stop_strings[0].data, "ab", 2);
    assert_int_equal(params.num_stop_tokens, 2);
    assert_int_equal(params.stop_tokens[0], 257);
    assert_true(params.ignore_eos && params.include_stop_string && !params.skip_special_tokens);
    assert_int_equal(params.num_logprobs, 5);
    assert_int_equal(params.num_prompt_logprobs, 5);
    assert_true(request.sampling.has_seed);
    assert_int_equal(request.sampling.seed, -5);
    assert_int_equal(request.sampling.priority, -3);
    assert_true(request.sampling.stream && request.sampling.include_usage && request.echo);
    assert_false(request.add_special_tokens);
    assert_false(request.parse_special);
    assert_int_equal(request.ignored.length, 0);
    completion_body_finish(&request);
}

static void the_default_is_cut_to_the_context(void **state) {
    struct completion_body request = parse_ok("{\"prompt\":\"x\",\"min_tokens\":4}");
    struct api_error err = {0};
    assert_int_equal(sampling_body_check_room(&request.sampling, &context, "prompt", 60, &err), 0);
    struct sampling_params params = completion_body_params(&request, &context, 60, 0);
    assert_int_equal(params.max_tokens, 4);
    assert_int_equal(params.min_tokens, 4);
    completion_body_finish(&request);
}

static void expect_room(const char *body, int32_t num_prompt_tokens, const char *param,
                        const char *message) {
    struct completion_body request = parse_ok(body);
    struct api_error err = {0};
    int result =
        sampling_body_check_room(&request.sampling, &context, "prompt[1]", num_prompt_tokens, &err);
    if (result != (param != NULL ? -1 : 0))
        fail_msg("%s: %d %s", body, result, err.message);
    if (param != NULL) {
        assert_int_equal(err.status, 400);
        assert_string_equal(err.code, "context_length_exceeded");
        assert_string_equal(err.param, param);
        assert_string_equal(err.message, message);
    }
    completion_body_finish(&request);
}

static void what_is_asked_for_must_fit_the_context(void **state) {
    expect_room("{\"prompt\":\"x\",\"max_tokens\":4}", 60, NULL, NULL);
    expect_room("{\"prompt\":\"x\",\"max_tokens\":null}", 60, NULL, NULL);
    expect_room("{\"prompt\":\"x\",\"max_tokens\":0,\"echo\":true}", 64, NULL, NULL);
    expect_room("{\"prompt\":\"x\",\"max_tokens\":5}", 60, "max_tokens",
                "max_tokens must be at most 4, not 5: this model's maximum context length is 64 "
                "tokens, and prompt[1] has 60");
    expect_room("{\"prompt\":\"x\",\"max_tokens\":2147483647}", 1, "max_tokens",
                "max_tokens must be at most 63, not 2147483647: this model's maximum context "
                "length is 64 tokens, and prompt[1] has 1");
    expect_room("{\"prompt\":\"x\",\"min_tokens\":5}", 60, "min_tokens",
                "min_tokens must be at most 4, not 5: this model's maximum context length is 64 "
                "tokens, and prompt[1] has 60");
}

static void tiny_values_stay_usable(void **state) {
    struct completion_body request = parse_ok("{\"prompt\":\"x\",\"temperature\":1e-40}");
    assert_true(completion_body_params(&request, &context, 1, 0).settings.temperature == 0);
    completion_body_finish(&request);
    request = parse_ok("{\"prompt\":\"x\",\"temperature\":0.0001}");
    assert_true(completion_body_params(&request, &context, 1, 0).settings.temperature == 0.01f);
    completion_body_finish(&request);
    request = parse_ok("{\"prompt\":\"x\",\"top_p\":1e-300}");
    assert_true(completion_body_params(&request, &context, 1, 0).settings.top_p == 1e-6f);
    completion_body_finish(&request);
}

/* count items of the form ,"pattern" with a running number in a list or map. */
static char *long_list(const char *field, char open, const char *pattern, int count, char close) {
    struct byte_buffer body = {0};
    byte_buffer_printf(&body, "{\"prompt\":\"x\",\"%s\":%c", field, open);
    for (int i = 0; i < count; i++) {
        if (i > 0)
            byte_buffer_append_text(&body, ",");
        byte_buffer_printf(&body, pattern, i);
    }
    byte_buffer_printf(&body, "%c}", close);
    byte_buffer_append(&body, "", 1);
    return body.data;
}

static void expect_list(const char *field, char open, const char *pattern, int count, char close,
                        bool allowed) {
    char *body = long_list(field, open, pattern, count, close);
    struct completion_body request;
    struct api_error err = {0};
    int result = parse(body, &request, &err);
    if ((result == 0) != allowed)
        fail_msg("%s with %d entries: %d %s", field, count, result, err.message);
    if (result == 0)
        completion_body_finish(&request);
    else
        assert_int_equal(err.status, 400);
    free(body);
}

static void lists_are_bounded(void **state) {
    expect_list("stop", '[', "\"s%d\"", MAX_STOP_STRINGS, ']', true);
    expect_list("stop", '[', "\"s%d\"", MAX_STOP_STRINGS + 1, ']', false);
    expect_list("stop", '[', "\"%0256d\"", 1, ']', true);
    expect_list("stop", '[', "\"%0257d\"", 1, ']', false);
    expect_list("stop_token_ids", '[', "%d", MAX_STOP_TOKENS, ']', true);
    expect_list("stop_token_ids", '[', "%d", MAX_STOP_TOKENS + 1, ']', false);
    expect_list("logit_bias", '{', "\"%d\":1", FAKE_VOCAB_SIZE, '}', true);
    expect_list("logit_bias", '{', "\"%d\":1", FAKE_VOCAB_SIZE + 1, '}', false);
}

static struct api_error prompt_error(const char *prompt, int max_tokens) {
    char body[1024];
    snprintf(body, sizeof(body), "{\"prompt\":%s,\"echo\":true,\"max_tokens\":%d}", prompt,
             max_tokens);
    struct completion_body request = parse_ok(body);
    struct prompt_tokens tokens;
    struct api_error err = {0};
    const struct prompt_limits limits = sampling_body_prompt_limits(&request.sampling);
    if (prompt_read_tokens(&context, request.prompts.first, "prompt", 0, &limits, &tokens, &err) ==
        0)
        free(tokens.ids);
    completion_body_finish(&request);
    return err;
}

static void prompts_leave_room_for_output(void **state) {
    char text[128];
    snprintf(text, sizeof(text), "\"%063d\"", 0);
    assert_int_equal(prompt_error(text, 16).status, 0);
    snprintf(text, sizeof(text), "\"%064d\"", 0);
    struct api_error err = prompt_error(text, 16);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.code, "context_length_exceeded");
    assert_non_null(strstr(err.message, "maximum context length is 64 tokens"));
    assert_non_null(strstr(err.message, "has 64 tokens and max_tokens is 16"));
    assert_int_equal(prompt_error(text, 0).status, 0); /* scoring needs no room */
    snprintf(text, sizeof(text), "\"%065d\"", 0);
    assert_int_equal(prompt_error(text, 0).status, 400);
}

/* What is left of a prompt, and whether it was cut. */
static void check_cut(const char *fields, const char *prompt, const int32_t *expected, int count,
                      bool is_cut) {
    char body[512];
    snprintf(body, sizeof(body), "{\"prompt\":%s,\"max_tokens\":4,%s}", prompt, fields);
    struct completion_body request = parse_ok(body);
    const struct prompt_limits limits = sampling_body_prompt_limits(&request.sampling);
    struct prompt_tokens tokens;
    struct api_error err = {0};
    if (prompt_read_tokens(&context, request.prompts.first, "prompt", TOKENIZER_ADD_SPECIAL,
                           &limits, &tokens, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    assert_int_equal(tokens.count, count);
    assert_memory_equal(tokens.ids, expected, (size_t)count * sizeof(*expected));
    assert_int_equal(tokens.is_cut, is_cut);
    free(tokens.ids);
    completion_body_finish(&request);
}

#define CHECK_CUT(fields, prompt, is_cut, ...)                                                     \
    check_cut(fields, prompt, (const int32_t[]){__VA_ARGS__},                                      \
              (int)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), is_cut)

static void prompts_are_cut_where_it_is_asked_for(void **state) {
    CHECK_CUT("\"truncate_prompt_tokens\":3", "\"abcd\"", true, FAKE_BOS, 'c', 'd');
    CHECK_CUT("\"truncate_prompt_tokens\":1", "\"abcd\"", true, 'd');
    CHECK_CUT("\"truncate_prompt_tokens\":5", "\"abcd\"", false, FAKE_BOS, 'a', 'b', 'c', 'd');
    CHECK_CUT("\"truncate_prompt_tokens\":2", "[1,2,3]", true, 2, 3);
    CHECK_CUT("\"truncate_prompt_tokens\":2,\"truncation_side\":\"right\"", "[1,2,3]", true, 1, 2);
    CHECK_CUT("\"truncate_prompt_tokens\":3,\"truncation_side\":\"right\"", "\"abcd\"", true,
              FAKE_BOS, 'a', 'b');
    CHECK_CUT("\"truncate_prompt_tokens\":null,\"truncation_side\":\"left\"", "[7]", false, 7);
}

static void expect_error(const char *body, const char *param) {
    struct completion_body request;
    struct api_error err = {0};
    assert_int_equal(parse(body, &request, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
}

/* -1: what the context of 64 leaves beside the 4 tokens of output. */
static void a_prompt_is_cut_to_the_context(void **state) {
    char text[128];
    int32_t expected[60] = {FAKE_BOS};
    snprintf(text, sizeof(text), "\"%0100d\"", 7);
    for (int i = 1; i < 60; i++)
        expected[i] = i < 59 ? '0' : '7';
    check_cut("\"truncate_prompt_tokens\":-1", text, expected, 60, true);
    expect_error("{\"prompt\":\"a\",\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens");
    expect_error("{\"prompt\":\"a\",\"truncate_prompt_tokens\":-2}", "truncate_prompt_tokens");
    expect_error("{\"prompt\":\"a\",\"truncate_prompt_tokens\":65}", "truncate_prompt_tokens");
    expect_error("{\"prompt\":\"a\",\"truncate_prompt_tokens\":\"1\"}", "truncate_prompt_tokens");
    expect_error("{\"prompt\":\"a\",\"truncation_side\":\"both\"}", "truncation_side");
}

static void long_text_is_refused_before_it_is_encoded(void **state) {
    struct byte_buffer text = {0};
    for (int i = 0; i < 5000; i++)
        byte_buffer_append_text(&text, "x");
    byte_buffer_append(&text, "", 1);
    cJSON *item = cJSON_CreateString(text.data);
    struct prompt_tokens tokens;
    struct api_error err;
    const struct prompt_limits limits = {.max_tokens = 1};
    assert_int_equal(prompt_read_tokens(&context, item, "prompt", 0, &limits, &tokens, &err), -1);
    assert_non_null(strstr(err.message, "at least 833 tokens")); /* " world" has 6 bytes */
    cJSON_Delete(item);
    byte_buffer_finish(&text);
}

static void token_ids_are_in_the_vocabulary(void **state) {
    assert_int_equal(prompt_error("[0,299]", 1).status, 0);
    static const char *const bad[] = {"[0,300]",  "[0,-1]",  "[0,1.5]",       "[0,\"1\"]",
                                      "[0,null]", "[0,[1]]", "[0,2147483648]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct api_error err = prompt_error(bad[i], 1);
        assert_int_equal(err.status, 400);
        assert_string_equal(err.param, "prompt[1]");
    }
}

static void unknown_fields_are_listed_safely(void **state) {
    struct completion_body request =
        parse_ok("{\"prompt\":\"x\",\"foo\":1,\"MODEL\":2,\"a\\r\\nSet-Cookie: b\":3,"
                 "\"stream\":true,\"stream_options\":{\"include_all\":true},"
                 "\"\xC3\xA9\":false,\"absent\":null}");
    byte_buffer_append(&request.ignored, "", 1);
    assert_string_equal(request.ignored.data, "foo,MODEL,a__Set-Cookie__b,__,"
                                              "stream_options.include_all");
    completion_body_finish(&request);
}

static void a_server_may_refuse_unknown_fields(void **state) {
    struct api_context strict = context;
    strict.rejects_unknown_params = true;
    static const char known[] = "{\"prompt\":\"x\",\"seed\":1}";
    static const char unknown[] = "{\"prompt\":\"x\",\"foo\":1,\"bar\":2}";
    struct completion_body request;
    struct api_error err;
    assert_int_equal(
        completion_body_parse(&strict, known, strlen(known), COMPLETION_OPENAI, &request, &err), 0);
    completion_body_finish(&request);
    assert_int_equal(
        completion_body_parse(&strict, unknown, strlen(unknown), COMPLETION_OPENAI, &request, &err),
        -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.code, "unknown_parameter");
    assert_string_equal(err.param, "foo");
    assert_non_null(strstr(err.message, "foo,bar"));
}

/* After the fields that are not known. */
static void keywords_of_schemas_are_named(void **state) {
    struct api_context lenient = context;
    lenient.ignores_schema_keywords = true;
    static const char body[] = "{\"prompt\":\"x\",\"foo\":1,\"guided_json\":{\"type\":\"array\","
                               "\"items\":{\"type\":\"string\"},\"uniqueItems\":true}}";
    struct completion_body request;
    struct api_error err;
    assert_int_equal(
        completion_body_parse(&context, body, strlen(body), COMPLETION_OPENAI, &request, &err), -1);
    assert_string_equal(err.code, "unsupported_json_schema");
    assert_int_equal(
        completion_body_parse(&lenient, body, strlen(body), COMPLETION_OPENAI, &request, &err), 0);
    byte_buffer_append(&request.ignored, "", 1);
    assert_string_equal(request.ignored.data, "foo,guided_json.uniqueItems");
    completion_body_finish(&request);
}

static void list_of_unknown_fields_is_bounded(void **state) {
    struct byte_buffer body = {0};
    byte_buffer_append_text(&body, "{\"prompt\":\"x\"");
    for (int i = 0; i < 1000; i++)
        byte_buffer_printf(&body, ",\"%0200d\":1", i);
    byte_buffer_append(&body, "}", 2);
    struct completion_body request = parse_ok(body.data);
    assert_in_range(request.ignored.length, 900, 1024);
    assert_memory_equal(request.ignored.data + request.ignored.length - 4, ",...", 4);
    completion_body_finish(&request);
    byte_buffer_finish(&body);
}

/* Whatever an error has held before. */
static void empty_lists_of_answers_members_select_nothing(void **state) {
    static const char text[] = "{\"prompt\":\"a\",\"response_fields\":[]}";
    struct completion_body body;
    struct api_error err = {.status = 404};
    assert_int_equal(
        completion_body_parse(&context, text, strlen(text), COMPLETION_LLAMA, &body, &err), 0);
    assert_null(body.response_fields);
    completion_body_finish(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_field_is_ranged),
        cmocka_unit_test(refusals_name_field_value_and_rule),
        cmocka_unit_test(errors_have_the_forms_names),
        cmocka_unit_test(llamas_fields_reach_the_engine),
        cmocka_unit_test(defaults_are_openais),
        cmocka_unit_test(a_server_may_have_other_defaults),
        cmocka_unit_test(all_fields_reach_the_engine),
        cmocka_unit_test(the_default_is_cut_to_the_context),
        cmocka_unit_test(what_is_asked_for_must_fit_the_context),
        cmocka_unit_test(tiny_values_stay_usable),
        cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(prompts_leave_room_for_output),
        cmocka_unit_test(prompts_are_cut_where_it_is_asked_for),
        cmocka_unit_test(a_prompt_is_cut_to_the_context),
        cmocka_unit_test(long_text_is_refused_before_it_is_encoded),
        cmocka_unit_test(token_ids_are_in_the_vocabulary),
        cmocka_unit_test(unknown_fields_are_listed_safely),
        cmocka_unit_test(a_server_may_refuse_unknown_fields),
        cmocka_unit_test(keywords_of_schemas_are_named),
        cmocka_unit_test(list_of_unknown_fields_is_bounded),
        cmocka_unit_test(empty_lists_of_answers_members_select_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
