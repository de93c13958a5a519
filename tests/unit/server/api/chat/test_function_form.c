/* Bodies in the old form of tools, and what they are in the new one. */
#include "server/api/chat/function_form.h"

#include "config/base/byte_buffer.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static cJSON *parse(const char *body) {
    struct api_error err = {0};
    cJSON *json = json_parse(body, strlen(body), &err);
    if (json == NULL)
        fail_msg("%s: %s", body, err.message);
    return json;
}

static void expect(const char *body, bool is_used, const char *expected) {
    struct api_error err = {0};
    struct byte_buffer out = {0};
    bool used = !is_used;
    cJSON *json = parse(body);
    if (function_form_translate(json, &used, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    assert_int_equal(used, is_used);
    json_write_tree(&out, json);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
    cJSON_Delete(json);
}

static void expect_error(const char *body, const char *param) {
    struct api_error err = {0};
    bool used;
    cJSON *json = parse(body);
    if (function_form_translate(json, &used, &err) == 0)
        fail_msg("accepted %s", body);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
    assert_non_null(strstr(err.message, param));
    cJSON_Delete(json);
}

static void other_bodies_stay(void **state) {
    expect("{}", false, "{}");
    expect("{\"functions\":null,\"tools\":[{}]}", false, "{\"functions\":null,\"tools\":[{}]}");
    expect("{\"messages\":[1,{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
           "\"function_call\":null}]}",
           false,
           "{\"messages\":[1,{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
           "\"function_call\":null}]}");
}

static void functions_are_tools(void **state) {
    expect("{\"n\":2,\"functions\":[{\"name\":\"f\",\"parameters\":{}},{\"name\":\"g\"}]}", true,
           "{\"n\":2,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"
           "{}}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}],\"parallel_tool_calls\":"
           "false}");
    expect("{\"functions\":[],\"tools\":null}", true,
           "{\"tools\":[],\"parallel_tool_calls\":false}");
}

static void a_choice_is_translated(void **state) {
    expect("{\"function_call\":\"auto\"}", true,
           "{\"tool_choice\":\"auto\",\"parallel_tool_calls\":false}");
    expect("{\"function_call\":\"none\"}", true,
           "{\"tool_choice\":\"none\",\"parallel_tool_calls\":false}");
    expect("{\"function_call\":{\"name\":\"f\"}}", true,
           "{\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
           "\"parallel_tool_calls\":false}");
}

#define ASKED "{\"role\":\"user\",\"content\":\"a\"}"

static void calls_and_results_have_an_id_in_common(void **state) {
    expect(
        "{\"messages\":[" ASKED ",{\"role\":\"assistant\",\"content\":null,\"function_call\":{"
        "\"name\":\"f\",\"arguments\":\"{}\"},\"tool_calls\":[]},{\"role\":\"function\",\"name\":"
        "\"f\",\"content\":null}]}",
        false,
        "{\"messages\":[" ASKED ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"},\"id\":"
        "\"call00001\"}]},{\"name\":\"f\",\"role\":\"tool\",\"content\":\"\",\"tool_call_id\":"
        "\"call00001\"}]}");
    expect("{\"messages\":[{\"role\":\"function\",\"name\":\"f\",\"content\":\"4\"}]}", false,
           "{\"messages\":[{\"name\":\"f\",\"content\":\"4\",\"role\":\"tool\"}]}");
}

static void wrong_shapes_are_refused(void **state) {
    expect_error("{\"functions\":1}", "functions");
    expect_error("{\"functions\":{\"name\":\"f\"}}", "functions");
    expect_error("{\"function_call\":\"required\"}", "function_call");
    expect_error("{\"function_call\":true}", "function_call");
    expect_error("{\"messages\":[" ASKED ",{\"role\":\"assistant\",\"function_call\":\"f\"}]}",
                 "messages[1].function_call");
    expect_error(
        "{\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"arguments\":\"{}\"}}]}",
        "messages[0].function_call.name");
    expect_error("{\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\","
                 "\"arguments\":1}}]}",
                 "messages[0].function_call.arguments");
    expect_error("{\"messages\":[{\"role\":\"function\",\"content\":\"a\"}]}", "messages[0].name");
}

static void the_forms_are_not_mixed(void **state) {
    expect_error("{\"functions\":[],\"tools\":[]}", "functions");
    expect_error("{\"functions\":[],\"parallel_tool_calls\":true}", "functions");
    expect_error("{\"function_call\":\"auto\",\"tools\":[]}", "function_call");
    expect_error("{\"functions\":[],\"tool_choice\":\"none\"}", "functions");
    expect_error("{\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\"},"
                 "\"tool_calls\":[{}]}]}",
                 "messages[0].function_call");
}

static void errors_name_the_old_fields(void **state) {
    static const struct {
        const char *param, *message, *old_param, *old_message;
    } cases[] = {
        {"tools[3].function.name", "tools[3].function.name must be", "functions[3].name",
         "functions[3].name must be"},
        {"tool_choice.function.name", "tool_choice.function.name is \"x\", which is not in tools",
         "function_call.name", "function_call.name is \"x\", which is not in functions"},
        {"tools", "tool_choice needs tools, and there are none", "functions",
         "function_call needs functions, and there are none"},
        {"temperature", "temperature must be", "temperature", "temperature must be"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_error err = {0};
        api_error_set(&err, 400, "invalid_request_error", "x", cases[i].param, "%s",
                      cases[i].message);
        function_form_rename_error(&err);
        assert_string_equal(err.param, cases[i].old_param);
        assert_string_equal(err.message, cases[i].old_message);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_bodies_stay),
        cmocka_unit_test(functions_are_tools),
        cmocka_unit_test(a_choice_is_translated),
        cmocka_unit_test(calls_and_results_have_an_id_in_common),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(the_forms_are_not_mixed),
        cmocka_unit_test(errors_name_the_old_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
