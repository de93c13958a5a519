#include "server/api/tools/tool_fields.h"

#include "config/json/json_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define TOOLS "\"tools\":[" TOOL("one") "," TOOL("two") "]"

/* The tree, which *out points into. */
static cJSON *read(const char *body, struct tool_fields *out) {
    struct api_error err = {0};
    cJSON *json = json_parse(body, strlen(body), &err);
    if (json == NULL || tool_fields_read(json, out, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return json;
}

static void expect_choice(const char *body, enum tool_choice choice, int num_tools) {
    struct tool_fields fields;
    cJSON *json = read(body, &fields);
    assert_int_equal(fields.choice, choice);
    assert_int_equal(fields.num_tools, num_tools);
    assert_int_equal(fields.tools != NULL, num_tools > 0);
    cJSON_Delete(json);
}

static void expect_error(const char *body, const char *param, const char *code) {
    struct api_error err = {0};
    struct tool_fields fields = {.num_tools = -7};
    cJSON *json = json_parse(body, strlen(body), &err);
    assert_non_null(json);
    if (tool_fields_read(json, &fields, &err) == 0)
        fail_msg("accepted %s", body);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
    assert_string_equal(err.code, code);
    assert_int_equal(fields.num_tools, -7);
    cJSON_Delete(json);
}

static void without_tools_none_is_chosen(void **state) {
    expect_choice("{}", TOOL_CHOICE_NONE, 0);
    expect_choice("{\"tools\":null,\"tool_choice\":null}", TOOL_CHOICE_NONE, 0);
    expect_choice("{\"tools\":[],\"tool_choice\":\"none\"}", TOOL_CHOICE_NONE, 0);
}

static void with_tools_the_model_decides(void **state) {
    expect_choice("{" TOOLS "}", TOOL_CHOICE_AUTO, 2);
    expect_choice("{" TOOLS ",\"tool_choice\":\"auto\"}", TOOL_CHOICE_AUTO, 2);
    expect_choice("{" TOOLS ",\"tool_choice\":\"none\"}", TOOL_CHOICE_NONE, 2);
    expect_choice("{" TOOLS ",\"tool_choice\":\"required\"}", TOOL_CHOICE_REQUIRED, 2);
}

static void a_tool_can_be_named(void **state) {
    struct tool_fields fields;
    cJSON *json = read("{" TOOLS ",\"tool_choice\":" TOOL("two") "}", &fields);
    assert_int_equal(fields.choice, TOOL_CHOICE_NAMED);
    assert_ptr_equal(fields.named,
                     cJSON_GetObjectItemCaseSensitive(fields.tools->child->next, "function"));
    assert_string_equal(tool_fields_name(fields.tools->child), "one");
    cJSON_Delete(json);
}

#define ALLOWED(mode, tools)                                                                       \
    "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":" mode                \
    ",\"tools\":" tools "}}"

static void some_tools_can_be_allowed(void **state) {
    static const char *const modes[] = {"\"auto\"", "\"required\""};
    for (int i = 0; i < 2; i++) {
        struct tool_fields fields;
        char body[512];
        snprintf(body, sizeof(body), "{" TOOLS "," ALLOWED("%s", "[" TOOL("two") "]") "}",
                 modes[i]);
        cJSON *json = read(body, &fields);
        assert_int_equal(fields.choice, i == 0 ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED);
        assert_int_equal(fields.num_tools, 2);
        assert_int_equal(fields.num_allowed, 1);
        assert_false(tool_fields_allow(&fields, fields.tools->child));
        assert_true(tool_fields_allow(&fields, fields.tools->child->next));
        cJSON_Delete(json);
    }
    struct tool_fields fields;
    cJSON *json = read("{" TOOLS "}", &fields);
    assert_true(tool_fields_allow(&fields, fields.tools->child));
    cJSON_Delete(json);
}

static void wrong_lists_of_allowed_tools_are_refused(void **state) {
    static const char bad[] = "invalid_type";
    expect_error("{" TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\"}}",
                 "tool_choice.allowed_tools", bad);
    expect_error("{" TOOLS "," ALLOWED("\"none\"", "[" TOOL("one") "]") "}",
                 "tool_choice.allowed_tools.mode", bad);
    expect_error("{" TOOLS "," ALLOWED("\"auto\"", "[]") "}", "tool_choice.allowed_tools.tools",
                 bad);
    expect_error("{" TOOLS "," ALLOWED("\"auto\"", "[1]") "}", "tool_choice.allowed_tools.tools[0]",
                 bad);
    expect_error("{" TOOLS "," ALLOWED("\"auto\"", "[{\"type\":\"mcp\"}]") "}",
                 "tool_choice.allowed_tools.tools[0].type", bad);
    expect_error("{" TOOLS "," ALLOWED("\"auto\"", "[{\"type\":\"function\"}]") "}",
                 "tool_choice.allowed_tools.tools[0].function", bad);
    expect_error("{" TOOLS "," ALLOWED("\"auto\"", "[" TOOL("one") "," TOOL("six") "]") "}",
                 "tool_choice.allowed_tools.tools[1].function.name", "unknown_tool");
    expect_error("{" ALLOWED("\"auto\"", "[" TOOL("one") "]") "}", "tools",
                 "missing_required_parameter");
}

static void parallel_calls_can_be_forbidden(void **state) {
    struct tool_fields fields;
    cJSON_Delete(read("{}", &fields));
    assert_true(fields.allows_parallel);
    cJSON_Delete(read("{\"parallel_tool_calls\":true}", &fields));
    assert_true(fields.allows_parallel);
    cJSON_Delete(read("{\"parallel_tool_calls\":false}", &fields));
    assert_false(fields.allows_parallel);
}

static void wrong_shapes_are_refused(void **state) {
    static const char bad[] = "invalid_type";
    expect_error("{\"tools\":{}}", "tools", bad);
    expect_error("{\"tools\":[1]}", "tools[0]", bad);
    expect_error("{\"tools\":[{}]}", "tools[0].type", bad);
    expect_error("{\"tools\":[{\"type\":\"custom\"}]}", "tools[0].type", bad);
    expect_error("{\"tools\":[{\"type\":\"function\"}]}", "tools[0].function", bad);
    expect_error("{\"tools\":[" TOOL("a") "," TOOL("") "]}", "tools[1].function.name", bad);
    expect_error("{\"tools\":[" TOOL("a b") "]}", "tools[0].function.name", bad);
    expect_error("{" TOOLS ",\"tool_choice\":\"any\"}", "tool_choice", bad);
    expect_error("{" TOOLS ",\"tool_choice\":3}", "tool_choice", bad);
    expect_error("{" TOOLS ",\"tool_choice\":{}}", "tool_choice.type", bad);
    expect_error("{" TOOLS ",\"tool_choice\":{\"type\":\"function\"}}", "tool_choice.function",
                 bad);
    expect_error("{" TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{}}}",
                 "tool_choice.function.name", bad);
    expect_error("{\"parallel_tool_calls\":1}", "parallel_tool_calls", bad);
}

static void wrong_members_of_a_function_are_refused(void **state) {
    static const char *const members[][2] = {
        {"description", "1"}, {"parameters", "[]"}, {"strict", "\"yes\""}};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        char body[256], path[64];
        snprintf(body, sizeof(body),
                 "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"%s\":%s}}]}",
                 members[i][0], members[i][1]);
        snprintf(path, sizeof(path), "tools[0].function.%s", members[i][0]);
        expect_error(body, path, "invalid_type");
    }
}

static void names_are_distinct_known_and_bounded(void **state) {
    char body[512], name[144];
    expect_error("{\"tools\":[" TOOL("a") "," TOOL("a") "]}", "tools[1].function.name",
                 "duplicate_name");
    expect_error("{" TOOLS ",\"tool_choice\":" TOOL("three") "}", "tool_choice.function.name",
                 "unknown_tool");
    memset(name, 'n', 129);
    name[129] = '\0';
    snprintf(body, sizeof(body), "{\"tools\":[" TOOL("%s") "]}", name + 1);
    expect_choice(body, TOOL_CHOICE_AUTO, 1);
    snprintf(body, sizeof(body), "{\"tools\":[" TOOL("%s") "]}", name);
    expect_error(body, "tools[0].function.name", "invalid_type");
    expect_choice("{\"tools\":[" TOOL("mcp/git.log:v1_x-2") "]}", TOOL_CHOICE_AUTO, 1);
    expect_error("{\"tools\":[" TOOL("a\\\\b") "]}", "tools[0].function.name", "invalid_type");
}

static void a_choice_needs_tools(void **state) {
    expect_error("{\"tool_choice\":\"auto\"}", "tools", "missing_required_parameter");
    expect_error("{\"tool_choice\":\"required\",\"tools\":[]}", "tools",
                 "missing_required_parameter");
    expect_error("{\"tool_choice\":" TOOL("a") "}", "tools", "missing_required_parameter");
    expect_choice("{\"tool_choice\":\"auto\",\"tools\":[]}", TOOL_CHOICE_NONE, 0);
}

static void tools_are_bounded(void **state) {
    struct byte_buffer body = {0};
    byte_buffer_append_text(&body, "{\"tools\":[");
    for (int i = 0; i < TOOL_FIELDS_MAX_TOOLS; i++)
        byte_buffer_printf(&body, "%s" TOOL("t%d"), i > 0 ? "," : "", i);
    size_t length = body.length;
    byte_buffer_append(&body, "]}", 3);
    expect_choice(body.data, TOOL_CHOICE_AUTO, TOOL_FIELDS_MAX_TOOLS);
    body.length = length;
    byte_buffer_append_text(&body, "," TOOL("more"));
    byte_buffer_append(&body, "]}", 3);
    expect_error(body.data, "tools", "array_above_max_length");
    byte_buffer_finish(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_tools_none_is_chosen),
        cmocka_unit_test(with_tools_the_model_decides),
        cmocka_unit_test(a_tool_can_be_named),
        cmocka_unit_test(some_tools_can_be_allowed),
        cmocka_unit_test(wrong_lists_of_allowed_tools_are_refused),
        cmocka_unit_test(parallel_calls_can_be_forbidden),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(wrong_members_of_a_function_are_refused),
        cmocka_unit_test(names_are_distinct_known_and_bounded),
        cmocka_unit_test(a_choice_needs_tools),
        cmocka_unit_test(tools_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
