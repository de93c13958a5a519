#include "server/api/fields/prompt_truncation.h"

#include "server/json/json_field.h"

#include <stdio.h>
#include <string.h>

static int read_side(const cJSON *body, bool *keeps_start, struct api_error *err) {
    const cJSON *item = json_given_member(body, "truncation_side");
    const char *side = cJSON_GetStringValue(item);
    if (item == NULL)
        return 0;
    if (side == NULL || (strcmp(side, "left") != 0 && strcmp(side, "right") != 0))
        return json_refuse(item, "truncation_side", "\"left\" or \"right\"", err);
    *keeps_start = strcmp(side, "right") == 0;
    return 0;
}

int prompt_truncation_read(const struct api_context *context, const cJSON *body,
                           struct prompt_truncation *out, struct api_error *err) {
    static const char name[] = "truncate_prompt_tokens";
    const cJSON *item = json_given_member(body, name);
    struct prompt_truncation truncation = {0};
    if (read_side(body, &truncation.keeps_start, err) != 0)
        return -1;
    if (item != NULL && cJSON_IsNumber(item) && item->valuedouble == 0)
        return json_refuse(item, name, "at least 1, or -1 for what the context holds", err);
    if (item != NULL &&
        json_read_int(item, name, -1, context->max_model_len, &truncation.max_tokens, err) != 0)
        return -1;
    *out = truncation;
    return 0;
}

int32_t prompt_truncation_count(const struct prompt_truncation *truncation,
                                const struct api_context *context, int64_t max_output) {
    if (truncation->max_tokens >= 0)
        return (int32_t)truncation->max_tokens;
    int64_t output = max_output < 0 ? 1 : max_output;
    return output < context->max_model_len ? context->max_model_len - (int32_t)output : 1;
}

int32_t prompt_truncation_cut(const struct prompt_truncation *truncation, int32_t *tokens,
                              int64_t count, int32_t before, int32_t behind, int32_t keep) {
    if (count <= keep)
        return (int32_t)count;
    if (before + behind >= keep)
        before = behind = 0;
    int32_t kept = keep - before - behind;
    int64_t from = truncation->keeps_start ? before : count - behind - kept;
    memmove(tokens + before, tokens + from, (size_t)kept * sizeof(*tokens));
    memmove(tokens + before + kept, tokens + count - behind, (size_t)behind * sizeof(*tokens));
    return keep;
}
