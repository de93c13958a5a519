#include "server/api/embeddings/embedding_request.h"

#include "server/api/call/api_call_type.h"
#include "config/json/json_field.h"

#include <stdlib.h>
#include <string.h>

int embedding_pooling_read(const cJSON *body, enum pooling *out, struct api_error *err) {
    const cJSON *item = json_given_member(body, "pooling");
    const char *word = cJSON_GetStringValue(item);
    if (item == NULL)
        return 0;
    if (word == NULL || (strcmp(word, "last") != 0 && strcmp(word, "mean") != 0))
        return json_refuse(item, "pooling", "\"last\" or \"mean\"", err);
    *out = strcmp(word, "mean") == 0 ? POOLING_MEAN : POOLING_LAST;
    return 0;
}

int embedding_request_of_tokens(const struct api_context *context,
                                const struct embedding_settings *settings,
                                struct prompt_tokens *tokens, struct request **out,
                                struct api_error *err) {
    const struct sampling_params params = {
        .pooling = settings->pooling,
        .num_choices = 1,
        .settings = SAMPLING_SETTINGS_NEUTRAL,
        .num_logprobs = -1,
        .num_prompt_logprobs = -1,
    };
    *out = request_create(tokens->ids, tokens->count, &params);
    free(tokens->ids);
    if (*out == NULL)
        return api_error_set_memory(err);
    return api_call_set_scope(context, *out, settings->model, settings->priority,
                              settings->cache_salt, err);
}

int embedding_request_create(const struct api_context *context,
                             const struct embedding_settings *settings, const cJSON *item,
                             const char *path, struct request **out, struct api_error *err) {
    struct prompt_tokens tokens;
    const struct prompt_limits limits = {.truncation = settings->truncation};
    if (prompt_read_tokens(context, item, path, settings->flags, &limits, &tokens, err) != 0)
        return -1;
    return embedding_request_of_tokens(context, settings, &tokens, out, err);
}
