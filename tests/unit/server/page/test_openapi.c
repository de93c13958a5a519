/* The description against what it describes: the routes, the tables of fields, and itself. */
#include "server/api/fields/request_limits.h"
#include "server/page/openapi.h"

#include "server/api/call/endpoints.h"
#include "server/api/chat/chat_body.h"
#include "server/api/completions/completion_body.h"
#include "server/api/embeddings/embedding_body.h"
#include "server/api/fields/sampling_body.h"
#include "server/api/scores/score_body.h"
#include "server/http/http_routes.h"

#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *schema;
    struct json_table (*table)(void);
} tables[] = {
    {"SamplingFields", sampling_body_table},      {"CompletionFields", completion_body_table},
    {"EmbeddingRequest", embedding_body_table},   {"ChatFields", chat_body_table},
    {"TokenizeRequest", tokenize_endpoint_table}, {"ScoreRequest", score_body_table},
    {"RerankRequest", score_body_rerank_table},   {"ClassifyRequest", score_body_classify_table},
};

static const struct api_context context = {
    .limits =
        &(const struct serving_limits){.max_logprobs = 9, .max_model_len = 64, .hidden_size = 32},
    .max_n = 77,
    .max_prompts = 4,
};

static int read_description(void **state) {
    struct byte_buffer text = {0};
    assert_int_equal(openapi_write(&context, &text), 0);
    *state = cJSON_ParseWithLength(text.data, text.length);
    byte_buffer_finish(&text);
    return *state == NULL;
}

static int drop_description(void **state) {
    cJSON_Delete(*state);
    return 0;
}

static const cJSON *get(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const cJSON *schema_of(const cJSON *description, const char *name) {
    return get(get(get(description, "components"), "schemas"), name);
}

static void test_head(void **state) {
    assert_string_equal(get(*state, "openapi")->valuestring, "3.1.0");
    assert_string_equal(get(get(*state, "info"), "version")->valuestring, QUIRE_VERSION);
}

/* HEAD goes without saying where there is GET. */
static void check_methods(const cJSON *path, const struct http_route *route) {
    static const char *const names[][2] = {
        {"get", "GET"}, {"post", "POST"}, {"put", "PUT"}, {"delete", "DELETE"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        bool is_described = get(path, names[i][0]) != NULL;
        if (is_described != http_routes_has_method(route, names[i][1]))
            fail_msg("%s %s", names[i][1], route->path);
    }
}

static void check_route(const cJSON *paths, const struct http_route *route) {
    const cJSON *described = get(paths, route->path);
    if (described == NULL)
        fail_msg("%s is not described", route->path);
    check_methods(described, route);
    const cJSON *operation;
    cJSON_ArrayForEach(operation, described) {
        if (!cJSON_IsObject(operation))
            continue;
        const cJSON *security = get(operation, "security");
        bool is_open = security != NULL && cJSON_GetArraySize(security) == 0;
        assert_int_equal(is_open, route->is_open);
    }
}

static void test_every_route(void **state) {
    const cJSON *paths = get(*state, "paths");
    size_t num_routes;
    const struct http_route *routes = http_routes_list(&num_routes);
    for (size_t i = 0; i < num_routes; i++)
        check_route(paths, &routes[i]);
    assert_int_equal(cJSON_GetArraySize(paths), num_routes);
}

static void check_kind(const cJSON *schema, const struct json_field *field) {
    static const char *const names[] = {
        [JSON_FIELD_BOOL] = "boolean",  [JSON_FIELD_INT] = "integer",
        [JSON_FIELD_INT64] = "integer", [JSON_FIELD_INT32] = "integer",
        [JSON_FIELD_NUMBER] = "number", [JSON_FIELD_FLOAT] = "number",
        [JSON_FIELD_TEXT] = "string"};
    const cJSON *types = get(schema, "type");
    if (!cJSON_IsArray(types) || strcmp(types->child->valuestring, names[field->kind]) != 0)
        fail_msg("%s is no %s", field->name, names[field->kind]);
    assert_string_equal(types->child->next->valuestring, "null");
}

static void check_bounds(const cJSON *schema, const struct json_field *field) {
    const struct json_field bound = request_limits_bind(&context, field);
    const cJSON *least = get(schema, field->above_min ? "exclusiveMinimum" : "minimum");
    const cJSON *most = get(schema, "maximum");
    if (field->kind == JSON_FIELD_INT64) {
        assert_true(least->valuedouble == -0x1p63 && most->valuedouble == 0x1p63);
    } else if (!json_field_is_bounded(field)) {
        assert_null(least);
        assert_null(most);
    } else if (least == NULL || most == NULL || least->valuedouble != bound.min ||
               most->valuedouble != bound.max) {
        fail_msg("%s has other bounds", field->name);
    }
}

static void check_table(const cJSON *schema, struct json_table table) {
    const cJSON *properties = get(schema, "properties");
    for (int i = 0; i < table.num_fields; i++) {
        const struct json_field *field = &table.fields[i];
        const cJSON *property = get(properties, field->name);
        if (property == NULL || property->child == NULL)
            fail_msg("%s is not described", field->name);
        if (field->kind == JSON_FIELD_OTHER)
            continue;
        check_kind(property, field);
        check_bounds(property, field);
        if (get(property, "description") == NULL)
            fail_msg("%s has no description", field->name);
    }
    assert_int_equal(cJSON_GetArraySize(properties), table.num_fields);
}

static void test_every_field(void **state) {
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        check_table(schema_of(*state, tables[i].schema), tables[i].table());
}

static void expect_bound(const cJSON *schema, const char *name, double bound) {
    const cJSON *item = get(schema, name);
    if (item == NULL || item->valuedouble != bound)
        fail_msg("%s is not %g", name, bound);
}

static void test_what_model_and_options_bound(void **state) {
    const cJSON *sampling = get(schema_of(*state, "SamplingFields"), "properties");
    const cJSON *dimensions =
        get(get(schema_of(*state, "EmbeddingRequest"), "properties"), "dimensions");
    expect_bound(schema_of(*state, "TokenId"), "maximum", FAKE_VOCAB_SIZE - 1);
    expect_bound(get(sampling, "allowed_token_ids"), "maxItems", FAKE_VOCAB_SIZE);
    expect_bound(schema_of(*state, "PromptIds"), "maxItems", 64);
    expect_bound(schema_of(*state, "PromptList"), "maxItems", 4);
    assert_int_equal(get(dimensions, "enum")->child->valuedouble, 32);
    assert_true(cJSON_IsNull(get(dimensions, "enum")->child->next));
}

/* "#/components/schemas/Error" */
static bool resolves(const cJSON *description, const char *reference) {
    char path[128];
    assert_int_equal(strncmp(reference, "#/", 2), 0);
    snprintf(path, sizeof(path), "%s", reference + 2);
    for (char *name = strtok(path, "/"); name != NULL; name = strtok(NULL, "/"))
        description = get(description, name);
    return description != NULL;
}

static void check_references(const cJSON *description, const cJSON *node) {
    const cJSON *child;
    cJSON_ArrayForEach(child, node) {
        if (cJSON_IsString(child) && child->string != NULL && strcmp(child->string, "$ref") == 0 &&
            !resolves(description, child->valuestring))
            fail_msg("%s leads nowhere", child->valuestring);
        check_references(description, child);
    }
}

static void test_every_reference(void **state) {
    check_references(*state, *state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_every_route),
        cmocka_unit_test(test_every_field),
        cmocka_unit_test(test_what_model_and_options_bound),
        cmocka_unit_test(test_every_reference),
    };
    return cmocka_run_group_tests(tests, read_description, drop_description);
}
