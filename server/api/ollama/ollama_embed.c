/* /api/embed, and the older /api/embeddings with one prompt: bodies of /v1/embeddings in Ollama's
 * form. */
#include "server/api/call/endpoints.h"

#include "config/json/json_parse.h"
#include "server/api/embeddings/embedding_body.h"
#include "server/api/ollama/ollama_body.h"

/* Fields of /v1/embeddings for which the answer has no place. */
static const char *const others[] = {"encoding_format", "truncate_prompt_tokens",
                                     "truncation_side"};

static int check_others(const cJSON *json, struct api_error *err) {
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (json_given_member(json, others[i]) != NULL)
            return bad_request(err, "unknown_parameter", others[i],
                               "%s is a field of /v1/embeddings, not of this endpoint", others[i]);
    return 0;
}

/* An input that is longer than the context keeps its beginning, unless truncate is false. */
static int take_truncate(cJSON *json, struct api_error *err) {
    const cJSON *truncate = json_given_member(json, "truncate");
    if (truncate != NULL && !cJSON_IsBool(truncate))
        return json_refuse(truncate, "truncate", "true or false", err);
    bool is_off = cJSON_IsFalse(truncate);
    cJSON_DeleteItemFromObjectCaseSensitive(json, "truncate");
    if (is_off)
        return 0;
    return ollama_body_put(json, "truncate_prompt_tokens", cJSON_CreateNumber(-1), err) != 0
               ? -1
               : ollama_body_put(json, "truncation_side", cJSON_CreateString("right"), err);
}

/* The options say how tokens are chosen, which means nothing here: they are listed as ignored. */
static int take(const struct api_context *context, cJSON *json, struct api_error *err) {
    bool is_zero = false;
    if (ollama_body_take_model(context, json, "model", err) != 0 ||
        ollama_body_read_keep_alive(json, &is_zero, err) != 0 || check_others(json, err) != 0)
        return -1;
    cJSON_DeleteItemFromObjectCaseSensitive(json, "keep_alive");
    return take_truncate(json, err);
}

/* One text, where /v1/embeddings takes lists. */
static int check_prompt(const cJSON *json, struct api_error *err) {
    const cJSON *prompt = json_given_member(json, "prompt");
    if (!cJSON_IsString(prompt))
        return json_refuse(prompt, "prompt", "a string", err);
    if (json_given_member(json, "input") != NULL)
        return bad_request(err, "unknown_parameter", "input",
                           "input is a field of /api/embed, not of this endpoint");
    return 0;
}

static int parse(const struct api_context *context, const char *text, size_t length,
                 enum embedding_form form, struct api_call **out, struct api_error *err) {
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    if (take(context, json, err) != 0 ||
        (form == EMBEDDING_OLLAMA_ONE && check_prompt(json, err) != 0)) {
        cJSON_Delete(json);
        return -1;
    }
    return embedding_call_create(context, json, form, out, err);
}

int ollama_embed_parse(const struct api_context *context, const char *text, size_t length,
                       struct api_call **out, struct api_error *err) {
    return parse(context, text, length, EMBEDDING_OLLAMA, out, err);
}

int ollama_embed_parse_old(const struct api_context *context, const char *text, size_t length,
                           struct api_call **out, struct api_error *err) {
    return parse(context, text, length, EMBEDDING_OLLAMA_ONE, out, err);
}
