#include "server/api/conversation/tool_grammar.h"

#include "config/json/json_parse.h"

#include "tests/unit/server/api/conversation_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *schema;
    enum parameter_type type;
} schemas[] = {
    {"{\"type\":\"string\"}", PARAMETER_STRING},
    {"{\"type\":[\"string\"]}", PARAMETER_STRING},
    {"{\"enum\":[\"a\",\"1\"]}", PARAMETER_STRING},
    {"{\"const\":\"1\"}", PARAMETER_STRING},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"const\":\"a\"}]}", PARAMETER_STRING},
    {"{\"oneOf\":[{\"enum\":[\"a\"]}]}", PARAMETER_STRING},
    {"{\"type\":\"string\",\"enum\":[1]}", PARAMETER_STRING}, /* the type rules */
    {"{\"type\":null,\"enum\":[\"a\"]}", PARAMETER_STRING},   /* null is not given */
    {"{\"type\":[\"string\",\"null\"]}", PARAMETER_NULLABLE_STRING},
    {"{\"enum\":[\"a\",null]}", PARAMETER_NULLABLE_STRING},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", PARAMETER_NULLABLE_STRING},
    {"{\"oneOf\":[{\"const\":null},{\"type\":[\"null\",\"string\"]}]}", PARAMETER_NULLABLE_STRING},
    {"{\"type\":\"null\"}", PARAMETER_ANY},
    {"{\"const\":null}", PARAMETER_ANY},
    {"{\"type\":\"integer\"}", PARAMETER_ANY},
    {"{\"type\":[\"string\",\"integer\"]}", PARAMETER_ANY},
    {"{\"type\":[\"string\",1]}", PARAMETER_ANY},
    {"{\"type\":[]}", PARAMETER_ANY},
    {"{\"enum\":[\"a\",1]}", PARAMETER_ANY},
    {"{\"const\":1}", PARAMETER_ANY},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"object\"}]}", PARAMETER_ANY},
    {"{\"anyOf\":[{\"type\":\"string\"},{}]}", PARAMETER_ANY},
    {"{\"anyOf\":[{\"anyOf\":[{\"type\":\"string\"}]}]}", PARAMETER_ANY}, /* not looked into */
    {"{\"$ref\":\"#/$defs/a\"}", PARAMETER_ANY},
    {"{}", PARAMETER_ANY},
    {"true", PARAMETER_ANY},
};

static cJSON *read(const char *text) {
    struct api_error err = {0};
    char body[512]; /* an object, as bodies are */
    snprintf(body, sizeof(body), "{\"value\":%s}", text);
    cJSON *json = json_parse(body, strlen(body), &err);
    if (json == NULL)
        fail_msg("%s: %s", text, err.message);
    return json;
}

static const cJSON *value_of(const cJSON *json) {
    return cJSON_GetObjectItemCaseSensitive(json, "value");
}

static void a_schema_tells_the_type(void **state) {
    for (size_t i = 0; i < sizeof(schemas) / sizeof(schemas[0]); i++) {
        cJSON *json = read(schemas[i].schema);
        enum parameter_type type = tool_types_of_schema(value_of(json));
        if (type != schemas[i].type)
            fail_msg("%s: %c, not %c", schemas[i].schema, (int)type, (int)schemas[i].type);
        cJSON_Delete(json);
    }
}

static void expect_type(struct text types, const char *function, const char *name,
                        enum parameter_type type) {
    const char *parameters = parameter_types_find(types, function, strlen(function));
    assert_int_equal(parameter_types_of(parameters, name, strlen(name)), type);
}

static void each_function_has_its_own(void **state) {
    struct byte_buffer types = {0};
    static const char body[] =
        "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
        "\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},"
        "\"n\":{\"type\":[\"null\",\"string\"]}}}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"none\"}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{"
        "\"properties\":{\"i\":{\"const\":\"x\"}}}}}]}";
    struct conversation conversation;
    struct api_error err = {0};
    if (conversation_fixture_read(body, &conversation, &err) != 0)
        fail_msg("%s", err.message);
    tool_types_append(&conversation, &types);
    struct text all = {types.data, types.length};
    assert_false(types.failed);
    expect_type(all, "f", "s", PARAMETER_STRING);
    expect_type(all, "f", "n", PARAMETER_NULLABLE_STRING);
    expect_type(all, "f", "i", PARAMETER_ANY);
    expect_type(all, "f", "other", PARAMETER_ANY);
    expect_type(all, "none", "s", PARAMETER_ANY);
    expect_type(all, "g", "i", PARAMETER_STRING);
    expect_type(all, "g", "s", PARAMETER_ANY);
    expect_type(all, "h", "s", PARAMETER_ANY);
    conversation_finish(&conversation);
    byte_buffer_finish(&types);
}

static void no_tools_have_none(void **state) {
    struct byte_buffer types = {0};
    tool_types_append(&(const struct conversation){0}, &types);
    assert_int_equal(types.length, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schema_tells_the_type),
        cmocka_unit_test(each_function_has_its_own),
        cmocka_unit_test(no_tools_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
