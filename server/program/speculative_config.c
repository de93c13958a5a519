#include "server/program/speculative_config.h"

#include "config/json/json_read.h"
#include "config/serving_limits.h"
#include "engine/draft/ngram_drafter.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

/* vLLM's, where neither is given. */
#define DEFAULT_LOOKUP 5

struct config_body {
    const char *method;
    int32_t num_speculative_tokens, prompt_lookup_max, prompt_lookup_min; /* 0: not given */
};

#define INT32(member, high)                                                                        \
    {                                                                                              \
#member, JSON_FIELD_INT32, .offset = offsetof(struct config_body, member), .min = 1,       \
                                   .max = (high)                                                   \
    }

static const struct json_field fields[] = {
    JSON_TEXT(struct config_body, method),
    INT32(num_speculative_tokens, MAX_SPECULATIVE_TOKENS),
    INT32(prompt_lookup_max, NGRAM_MAX_LOOKUP),
    INT32(prompt_lookup_min, NGRAM_MAX_LOOKUP),
};

static int read_body(const cJSON *object, struct config_body *body, struct api_error *err) {
    char allowed[80];
    if (json_fields_refuse_unknown(object, JSON_TABLE(fields), err) != 0 ||
        json_fields_read(object, JSON_TABLE(fields), body, err) != 0)
        return -1;
    if (body->method == NULL || strcmp(body->method, "ngram") != 0)
        return json_refuse(json_member(object, "method"), "method", "\"ngram\"", err);
    snprintf(allowed, sizeof(allowed), "an integer from 1 to %d", MAX_SPECULATIVE_TOKENS);
    if (body->num_speculative_tokens == 0)
        return json_refuse(json_member(object, "num_speculative_tokens"), "num_speculative_tokens",
                           allowed, err);
    if (body->prompt_lookup_max == 0)
        body->prompt_lookup_max =
            body->prompt_lookup_min != 0 ? body->prompt_lookup_min : DEFAULT_LOOKUP;
    if (body->prompt_lookup_min == 0)
        body->prompt_lookup_min = body->prompt_lookup_max;
    snprintf(allowed, sizeof(allowed), "at most prompt_lookup_max, which is %d",
             body->prompt_lookup_max);
    if (body->prompt_lookup_min > body->prompt_lookup_max)
        return json_refuse(json_member(object, "prompt_lookup_min"), "prompt_lookup_min", allowed,
                           err);
    return 0;
}

int speculative_config_read(const char *text, struct speculative_config *out, struct error *err) {
    static const struct json_limits limits = {.max_depth = 2, .max_nodes = 64};
    struct error syntax = {0};
    struct config_body body = {0};
    struct api_error why = {0};
    *out = (struct speculative_config){0};
    if (text == NULL)
        return 0;
    cJSON *object = json_read(text, strlen(text), &limits, &syntax);
    if (object == NULL)
        return error_set(err, syntax.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_CONFIG,
                         "speculative-config: must be a JSON object: %.400s", syntax.message);
    int status = read_body(object, &body, &why);
    cJSON_Delete(object);
    if (status != 0)
        return error_set(err, why.status == 503 ? ERROR_MEMORY : ERROR_CONFIG,
                         "speculative-config: %.480s", why.message);
    *out = (struct speculative_config){
        .num_speculative_tokens = body.num_speculative_tokens,
        .prompt_lookup_max = body.prompt_lookup_max,
        .prompt_lookup_min = body.prompt_lookup_min,
    };
    return 0;
}
