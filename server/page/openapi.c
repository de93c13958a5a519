#include "server/page/openapi.h"

#include "models/chat_template/chat_template.h"
#include "server/api/call/endpoints.h"
#include "server/api/chat/chat_body.h"
#include "server/api/completions/completion_body.h"
#include "server/api/embeddings/embedding_body.h"
#include "server/api/fields/request_limits.h"
#include "server/api/fields/sampling_body.h"
#include "server/api/scores/score_body.h"
#include "server/page/page.h"

#include <stdio.h>

/* The schemas under components, and the table each gets its fields from. */
static const struct table_schema {
    const char *name;
    struct json_table (*table)(void);
} table_schemas[] = {
    {"SamplingFields", sampling_body_table},      {"CompletionFields", completion_body_table},
    {"EmbeddingRequest", embedding_body_table},   {"ChatFields", chat_body_table},
    {"TokenizeRequest", tokenize_endpoint_table}, {"ScoreRequest", score_body_table},
    {"RerankRequest", score_body_rerank_table},   {"ClassifyRequest", score_body_classify_table},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *type_name(enum json_field_kind kind) {
    switch (kind) {
    case JSON_FIELD_BOOL:
        return "boolean";
    case JSON_FIELD_INT:
    case JSON_FIELD_INT32:
    case JSON_FIELD_INT64:
        return "integer";
    case JSON_FIELD_NUMBER:
    case JSON_FIELD_FLOAT:
        return "number";
    default:
        return "string";
    }
}

/* The object's member of that name, made if it is not there; NULL without memory. */
static cJSON *member(cJSON *object, const char *name) {
    cJSON *found = cJSON_GetObjectItemCaseSensitive(object, name);
    return found != NULL ? found : cJSON_AddObjectToObject(object, name);
}

/* "type" says what the field is, or null: that counts as absent everywhere. */
static int add_type(cJSON *schema, enum json_field_kind kind) {
    const char *names[] = {type_name(kind), "null"};
    cJSON *types = cJSON_CreateStringArray(names, COUNT(names));
    if (types != NULL && cJSON_AddItemToObject(schema, "type", types))
        return 0;
    cJSON_Delete(types);
    return -1;
}

/* In all its digits: cJSON itself would write 2^53 - 1 in fifteen. */
static int add_bound(cJSON *schema, const char *name, double bound) {
    char text[32];
    snprintf(text, sizeof(text), "%.17g", bound);
    return cJSON_AddRawToObject(schema, name, text) != NULL ? 0 : -1;
}

static int add_field(const struct api_context *context, cJSON *properties,
                     const struct json_field *field) {
    cJSON *schema = member(properties, field->name);
    if (schema == NULL)
        return -1;
    if (field->kind == JSON_FIELD_OTHER)
        return 0;
    if (add_type(schema, field->kind) != 0)
        return -1;
    if (field->kind == JSON_FIELD_INT64)
        return cJSON_AddRawToObject(schema, "minimum", "-9223372036854775808") != NULL &&
                       cJSON_AddRawToObject(schema, "maximum", "9223372036854775807") != NULL
                   ? 0
                   : -1;
    if (!json_field_is_bounded(field))
        return 0;
    const char *least = field->above_min ? "exclusiveMinimum" : "minimum";
    const struct json_field bound = request_limits_bind(context, field);
    if (add_bound(schema, least, bound.min) != 0)
        return -1;
    return add_bound(schema, "maximum", bound.max);
}

static int add_fields(const struct api_context *context, cJSON *schema, struct json_table table) {
    cJSON *properties = member(schema, "properties");
    for (int i = 0; i < table.num_fields; i++) {
        if (properties == NULL || add_field(context, properties, &table.fields[i]) != 0)
            return -1;
    }
    return 0;
}

/* Appends an item, which it takes over; NULL: memory was short when it was made. */
static int append(cJSON *array, cJSON *item) {
    if (array != NULL && item != NULL && cJSON_AddItemToArray(array, item))
        return 0;
    cJSON_Delete(item);
    return -1;
}

/* The sizes of embeddings that the model allows, or null. */
static int add_dimensions(const struct api_context *context, cJSON *schema) {
    const struct embedding_sizes *sizes = context->embedding_sizes;
    int32_t whole = context->limits->hidden_size;
    if (sizes != NULL && sizes->any) {
        cJSON_DeleteItemFromObjectCaseSensitive(schema, "maximum");
        return schema != NULL ? add_bound(schema, "maximum", whole) : -1;
    }
    cJSON *values = schema != NULL ? cJSON_AddArrayToObject(schema, "enum") : NULL;
    for (int i = 0; sizes != NULL && i < sizes->num_sizes; i++)
        if (sizes->sizes[i] != whole && append(values, cJSON_CreateNumber(sizes->sizes[i])) != 0)
            return -1;
    if (append(values, cJSON_CreateNumber(whole)) != 0)
        return -1;
    return append(values, cJSON_CreateNull());
}

static cJSON *property(cJSON *schemas, const char *schema, const char *name) {
    return member(member(member(schemas, schema), "properties"), name);
}

/* Adds the limits of the model and the options, in addition to the numbers of the tables. */
static int add_sizes(const struct api_context *context, cJSON *schemas) {
    double vocab_size = tokenizer_vocab_size(context->tokenizer);
    const struct {
        cJSON *schema;
        const char *name;
        double bound;
    } bounds[] = {
        {member(schemas, "TokenId"), "maximum", vocab_size - 1},
        {property(schemas, "SamplingFields", "allowed_token_ids"), "maxItems", vocab_size},
        {member(schemas, "PromptIds"), "maxItems", context->limits->max_model_len},
        {member(schemas, "PromptList"), "maxItems", context->max_prompts},
    };
    for (size_t i = 0; i < COUNT(bounds); i++)
        if (bounds[i].schema == NULL ||
            add_bound(bounds[i].schema, bounds[i].name, bounds[i].bound) != 0)
            return -1;
    return add_dimensions(context, property(schemas, "EmbeddingRequest", "dimensions"));
}

/* Null, or a text where a request's template is trusted. */
static int add_template(const struct api_context *context, cJSON *schemas) {
    const char *names[] = {"null", "string"};
    cJSON *schema = member(schemas, "RequestTemplate");
    cJSON *types = cJSON_CreateStringArray(names, context->trusts_chat_template ? 2 : 1);
    if (schema == NULL || types == NULL || !cJSON_AddItemToObject(schema, "type", types)) {
        cJSON_Delete(types);
        return -1;
    }
    return context->trusts_chat_template
               ? add_bound(schema, "maxLength", CHAT_TEMPLATE_CLIENT_MAX_BYTES)
               : 0;
}

static int complete(const struct api_context *context, cJSON *description) {
    cJSON *schemas = member(member(description, "components"), "schemas");
    cJSON *info = member(description, "info");
    if (schemas == NULL || cJSON_AddStringToObject(info, "version", QUIRE_VERSION) == NULL)
        return -1;
    for (size_t i = 0; i < COUNT(table_schemas); i++) {
        cJSON *schema = member(schemas, table_schemas[i].name);
        if (schema == NULL || add_fields(context, schema, table_schemas[i].table()) != 0)
            return -1;
    }
    return add_template(context, schemas) == 0 ? add_sizes(context, schemas) : -1;
}

int openapi_write(const struct api_context *context, struct byte_buffer *out) {
    cJSON *description = cJSON_ParseWithLength((const char *)page_openapi, page_openapi_bytes);
    char *text = NULL;
    if (description != NULL && complete(context, description) == 0)
        text = cJSON_PrintUnformatted(description);
    cJSON_Delete(description);
    if (text == NULL)
        return -1;
    byte_buffer_append_text(out, text);
    cJSON_free(text);
    return out->failed ? -1 : 0;
}
