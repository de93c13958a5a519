#include "server/api/fields/beam_fields.h"

#include "models/config/sampling_fields.h"

#include <stdio.h>
#include <string.h>

static int read_early_stopping(const cJSON *json, enum early_stopping *out, struct api_error *err) {
    const cJSON *item = json_given_member(json, "early_stopping");
    if (item == NULL)
        return 0;
    if (cJSON_IsBool(item))
        *out = cJSON_IsTrue(item) ? EARLY_STOPPING_TRUE : EARLY_STOPPING_FALSE;
    else if (cJSON_IsString(item) && strcmp(item->valuestring, "never") == 0)
        *out = EARLY_STOPPING_NEVER;
    else
        return json_refuse(item, "early_stopping", "true, false or \"never\"", err);
    return 0;
}

#define BEAM_LOGPROBS "20"
_Static_assert(BEAM_MAX_CANDIDATES == 20, "BEAM_LOGPROBS names it");

/* Returns whether a field requests more logprobs of a token than the search reads. */
static bool wants_more(const cJSON *item) {
    return cJSON_IsNumber(item) &&
           (item->valuedouble < 0 || item->valuedouble > BEAM_MAX_CANDIDATES);
}

static bool is_bounded(const cJSON *item) {
    return cJSON_IsNumber(item) && item->valuedouble >= 0;
}

static int refuse(const cJSON *item, const char *path, const char *allowed, struct api_error *err) {
    char text[80];
    snprintf(text, sizeof(text), "%s with use_beam_search: true", allowed);
    json_refuse(item, path, text, err);
    err->code = "unsupported_value";
    return -1;
}

/* Checks that what the body gives is what the search uses; what the model authors recommend for
 * sampling does not count. */
static int check_settings(const cJSON *json, const struct body_names *names,
                          struct api_error *err) {
    static const struct sampling_settings greedy = SAMPLING_SETTINGS_GREEDY;
    int num_fields;
    const struct sampling_field *fields = sampling_fields(&num_fields);
    for (int i = 0; i < num_fields; i++) {
        const cJSON *item = body_names_given(names, json, fields[i].name);
        double value = sampling_field_value(&fields[i], &greedy);
        bool is_int = fields[i].type == SAMPLING_FIELD_INT32;
        bool is_all = is_int && value < 0; /* of all tokens: 0 means this too */
        if (item == NULL || (is_all ? item->valuedouble <= 0 : (float)item->valuedouble == value))
            continue;
        char allowed[32] = "0 or -1";
        if (!is_all)
            snprintf(allowed, sizeof(allowed), "%g", value);
        return refuse(item, item->string, allowed, err);
    }
    return 0;
}

static int check_others(const cJSON *json, const struct sampling_body *body,
                        struct api_error *err) {
    const struct sampling_lists *lists = &body->lists;
    const struct body_names *names = body->names;
    const cJSON *format = json_member_at(json, names->format);
    bool is_free = body->grammar == NULL;
    const struct {
        const char *name, *allowed;
        bool is_so;
    } fields[] = {
        {"max_tokens", "at least 1", body->max_tokens != 0},
        {"prompt_logprobs", "absent", body->prompt_logprobs < 0},
        {"stop", "absent", lists->num_stop_strings == 0},
        {"logit_bias", "absent", lists->num_biases == 0},
        {"allowed_token_ids", "absent", lists->num_allowed_tokens == 0},
        {"bad_words", "absent", lists->num_bad_runs == 0},
        {"logprob_token_ids", "absent", lists->num_logprob_tokens == 0},
        {"thinking_token_budget", "-1", !is_bounded(json_member(json, "thinking_token_budget"))},
        {"logprobs", "at most " BEAM_LOGPROBS,
         !wants_more(body_names_given(names, json, "logprobs"))},
        {"top_logprobs", "at most " BEAM_LOGPROBS,
         !wants_more(body_names_given(names, json, "top_logprobs"))},
        {"structured_outputs", "absent", is_free},
        {"regex", "absent", is_free},
        {"json_schema", "absent", is_free},
        {"guided_json", "absent", is_free},
        {"guided_regex", "absent", is_free},
        {"guided_choice", "absent", is_free},
        {"guided_grammar", "absent", is_free},
        {"ebnf", "absent", is_free},
        {"grammar", "absent", is_free},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const cJSON *item = body_names_given(names, json, fields[i].name);
        if (item != NULL && !fields[i].is_so)
            return refuse(item, item->string, fields[i].allowed, err);
    }
    return is_free || !json_is_given(format)
               ? 0
               : refuse(format, names->format, "absent or of type \"text\"", err);
}

/* Counts the distinct tokens that end a beam. */
static int32_t count_ends(const struct api_context *context, const struct sampling_body *body) {
    const int32_t *stops = body->lists.stop_tokens;
    int num_ends = 0;
    if (!body->ignore_eos)
        tokenizer_eos_tokens(context->tokenizer, &num_ends);
    for (int32_t i = 0; i < body->lists.num_stop_tokens; i++) {
        int32_t first = 0;
        while (stops[first] != stops[i])
            first++;
        if (first == i && (body->ignore_eos || !tokenizer_is_eos(context->tokenizer, stops[i])))
            num_ends++;
    }
    return num_ends;
}

/* Checks the width. A step needs as many continuations of a beam as there are beams, in addition to
 * those that end it. */
static int check_width(const struct api_context *context, const cJSON *json,
                       const struct sampling_body *body, struct api_error *err) {
    int32_t width = sampling_body_beam_width(body), num_ends = count_ends(context, body);
    if (width + num_ends <= BEAM_MAX_CANDIDATES)
        return 0;
    const char *name = body_names_field(body->names, json, body->best_of != 0 ? "best_of" : "n");
    return bad_request(err, "out_of_range", name,
                       "%s, the width of the beam search, is %d, and %d tokens end a beam (the "
                       "model's and stop_token_ids): at most %d are allowed together",
                       name, width, num_ends, BEAM_MAX_CANDIDATES);
}

int beam_fields_read(const struct api_context *context, const cJSON *json,
                     struct sampling_body *body, struct api_error *err) {
    if (read_early_stopping(json, &body->early_stopping, err) != 0)
        return -1;
    if (!body->use_beam_search)
        return 0;
    if (body->stream)
        return refuse(json_member(json, "stream"), "stream", "false", err);
    if (check_settings(json, body->names, err) != 0 || check_others(json, body, err) != 0 ||
        check_width(context, json, body, err) != 0)
        return -1;
    body->settings = (struct sampling_settings)SAMPLING_SETTINGS_GREEDY;
    return 0;
}

void beam_fields_list_idle(const cJSON *json, struct byte_buffer *out) {
    static const char *const names[] = {"length_penalty", "early_stopping"};
    if (cJSON_IsTrue(json_member(json, "use_beam_search")))
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (json_given_member(json, names[i]) == NULL)
            continue;
        if (out->length > 0)
            byte_buffer_append(out, ",", 1);
        byte_buffer_append_text(out, names[i]);
    }
}
