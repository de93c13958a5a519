#include "server/api/embeddings/embedding_body.h"

#include "server/api/call/api_call_type.h"
#include "server/api/call/api_context.h"
#include "server/api/embeddings/embedding_request.h"
#include "server/api/fields/unknown_fields.h"

#include <stdio.h>
#include <string.h>

#define MEMBER struct embedding_body

static const struct json_field fields[] = {
    JSON_OTHER(pooling),
    JSON_TEXT(MEMBER, model),
    JSON_OTHER(input),
    JSON_OTHER(encoding_format),
    JSON_INT(MEMBER, dimensions, 1, INT32_MAX),
    JSON_BOOL(MEMBER, normalize),
    JSON_BOOL(MEMBER, add_special_tokens),
    JSON_BOOL(MEMBER, parse_special),
    JSON_OTHER(truncate_prompt_tokens),
    JSON_OTHER(truncation_side),
    JSON_INT(MEMBER, priority, INT32_MIN, INT32_MAX),
    JSON_INT(MEMBER, timeout_ms, 1, MAX_TIMEOUT_MS),
    JSON_TEXT(MEMBER, cache_salt),
};

struct json_table embedding_body_table(void) {
    return JSON_TABLE(fields);
}

static int read_encoding(const cJSON *body, enum embedding_encoding *out, struct api_error *err) {
    const cJSON *item = json_given_member(body, "encoding_format");
    const char *word = cJSON_GetStringValue(item);
    if (item == NULL)
        return 0;
    if (word == NULL || (strcmp(word, "float") != 0 && strcmp(word, "base64") != 0))
        return json_refuse(item, "encoding_format", "\"float\" or \"base64\"", err);
    *out = strcmp(word, "base64") == 0 ? EMBEDDING_BASE64 : EMBEDDING_FLOAT;
    return 0;
}

/* Writes "64, 128 or 256", cut if there is no room. */
static void list_sizes(const struct embedding_sizes *sizes, int32_t whole, char *out,
                       size_t capacity) {
    size_t used = 0;
    for (int i = 0; i < sizes->num_sizes && used < capacity; i++)
        if (sizes->sizes[i] != whole)
            used += (size_t)snprintf(out + used, capacity - used, "%s%d", used > 0 ? ", " : "",
                                     (int)sizes->sizes[i]);
    if (used < capacity)
        snprintf(out + used, capacity - used, "%s%d%s", used > 0 ? " or " : "", (int)whole,
                 used > 0 ? "" : ", the size of this model's embeddings");
}

/* Vectors can be shortened only if the model was trained for it. */
static int check_dimensions(const struct api_context *context, const struct embedding_body *body,
                            struct api_error *err) {
    static const struct embedding_sizes none;
    const struct embedding_sizes *sizes =
        context->embedding_sizes != NULL ? context->embedding_sizes : &none;
    int32_t whole = context->limits->hidden_size;
    char allowed[256];
    if (embedding_sizes_allow(sizes, whole, body->dimensions))
        return 0;
    if (sizes->any)
        snprintf(allowed, sizeof(allowed), "from 1 to %d", (int)whole);
    else
        list_sizes(sizes, whole, allowed, sizeof(allowed));
    return bad_request(err, "unsupported_value", "dimensions", "dimensions must be %s, not %lld%s",
                       allowed, (long long)body->dimensions,
                       sizes->any || sizes->num_sizes > 0
                           ? ""
                           : ": this model's files do not say that its embeddings can be "
                             "shortened");
}

static int read_all(const struct api_context *context, struct embedding_body *body,
                    struct api_error *err) {
    static const struct json_alias prompt = {"input", "prompt"};
    struct json_table table = JSON_TABLE(fields);
    table.aliases = &prompt;
    table.num_aliases = body->form == EMBEDDING_OLLAMA_ONE;
    if (json_fields_read(body->json, table, body, err) != 0 ||
        (body->model != NULL && api_context_check_model(context, body->model, err) != 0))
        return -1;
    if (unknown_fields_read(body->json, &table, 1, &body->ignored, err) != 0 ||
        unknown_fields_check(context, &body->ignored, err) != 0 ||
        prompt_truncation_read(context, body->json, &body->truncation, err) != 0 ||
        read_encoding(body->json, &body->encoding, err) != 0 ||
        embedding_pooling_read(body->json, &body->pooling, err) != 0 ||
        check_dimensions(context, body, err) != 0)
        return -1;
    const char *name = json_aliased_name(body->json, table.aliases, table.num_aliases, "input");
    return prompt_list_read(context, body->json, name, false, &body->inputs, err);
}

int embedding_body_read(const struct api_context *context, cJSON *json, enum embedding_form form,
                        struct embedding_body *out, struct api_error *err) {
    struct embedding_body body = {
        .json = json,
        .form = form,
        .pooling = context->pooling,
        .dimensions = context->limits->hidden_size,
        .normalize =
            form == EMBEDDING_OPENAI ? !context->has_raw_embeddings : form == EMBEDDING_OLLAMA,
        .add_special_tokens = true,
        .parse_special = true,
    };
    if (read_all(context, &body, err) != 0) {
        embedding_body_finish(&body);
        return -1;
    }
    *out = body;
    return 0;
}

void embedding_body_finish(struct embedding_body *body) {
    cJSON_Delete(body->json);
    body->json = NULL;
    byte_buffer_finish(&body->ignored);
}
