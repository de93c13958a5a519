#include "server/api/tools/custom_tools.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SCHEMA(pattern)                                                                            \
    "{'type':'object','properties':{'input':{'type':'string'" pattern                              \
    "}},'required':['input'],'additionalProperties':false}"
#define GRAMMAR(definition)                                                                        \
    "'format':{'type':'grammar','grammar':{'syntax':'regex','definition':'" definition "'}}"
#define WITH_GRAMMAR(definition)                                                                   \
    "{'tools':[{'type':'custom','custom':{'name':'a'," GRAMMAR(definition) "}}]}"
#define WITH_PATTERN(pattern)                                                                      \
    "{'tools':[{'type':'function','function':{'name':'a','parameters':" SCHEMA(                    \
        ",'pattern':'" pattern "'") ",'strict':true}}]}"

static const struct {
    const char *body, *converted;
} taken[] = {
    {"{'tools':[{'type':'custom','custom':{'name':'a','description':'d'}},{'type':'x'}]}",
     "{'tools':[{'type':'function','function':{'name':'a','description':'d','parameters':" SCHEMA(
         "") "}},{'type':'x'}]}"},
    {WITH_GRAMMAR("b+"), WITH_PATTERN("^(?:b+)$")},
    {WITH_GRAMMAR("^b|c$"), WITH_PATTERN("^(?:b|c)$")},
    {WITH_GRAMMAR("^b\\\\$"), WITH_PATTERN("^(?:b\\\\$)$")},
    {WITH_GRAMMAR("b\\\\\\\\$"), WITH_PATTERN("^(?:b\\\\\\\\)$")},
    {WITH_GRAMMAR("$"), WITH_PATTERN("^(?:)$")},
    {"{'tools':[{'type':'custom','custom':{'name':'a'}}],'tool_choice':{'type':'custom','custom':"
     "{'name':'a'}}}",
     "{'tools':[{'type':'function','function':{'name':'a','parameters':" SCHEMA(
         "") "}}],'tool_choice':{'type':'function','function':{'name':'a'}}}"},
    {"{'messages':[{'role':'assistant','tool_calls':[{'id':'i','type':'custom','custom':{'name':"
     "'a','input':'x\\n'}},{'type':'function'}]}]}",
     "{'messages':[{'role':'assistant','tool_calls':[{'id':'i','type':'function','function':{"
     "'name':'a','arguments':'{\\'input\\': \\'x\\\\n\\'}'}},{'type':'function'}]}]}"},
    {"{'tools':3,'tool_choice':'auto','messages':[1,{'tool_calls':2}]}",
     "{'tools':3,'tool_choice':'auto','messages':[1,{'tool_calls':2}]}"},
};

/* Reads text with ' for ". */
static cJSON *parse(const char *single_quoted) {
    char text[2048];
    size_t length = strlen(single_quoted);
    assert_true(length < sizeof(text));
    for (size_t i = 0; i <= length; i++)
        text[i] = single_quoted[i] == '\'' ? '"' : single_quoted[i];
    cJSON *json = cJSON_Parse(text);
    if (json == NULL)
        fail_msg("no JSON: %s", text);
    return json;
}

static void custom_tools_become_functions(void **state) {
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        struct api_error err = {0};
        struct byte_buffer names = {0};
        cJSON *body = parse(taken[i].body), *expected = parse(taken[i].converted);
        if (custom_tools_convert(body, &names, &err) != 0)
            fail_msg("%s: %s", taken[i].body, err.message);
        char *text = cJSON_PrintUnformatted(body), *wanted = cJSON_PrintUnformatted(expected);
        assert_string_equal(text, wanted);
        cJSON_free(text);
        cJSON_free(wanted);
        cJSON_Delete(body);
        cJSON_Delete(expected);
        byte_buffer_finish(&names);
    }
}

static void names_are_found(void **state) {
    static const char names[] = "a\0bc\0";
    assert_true(custom_tools_have(names, 2, "a", 1));
    assert_true(custom_tools_have(names, 2, "bcd", 2));
    assert_false(custom_tools_have(names, 2, "b", 1));
    assert_false(custom_tools_have(names, 1, "bc", 2));
    assert_false(custom_tools_have(NULL, 0, "a", 1));
}

/* The schema of a custom tool's input is the client's grammar; a function's is its own. */
static void errors_name_the_grammar(void **state) {
    struct api_error err = {0};
    struct byte_buffer names = {0};
    cJSON *body = parse("{'tools':[{'type':'custom','custom':{'name':'a'," GRAMMAR(
        "x") "}},"
             "{'type':'function','function':{'name':'b'}}]}");
    assert_int_equal(custom_tools_convert(body, &names, &err), 0);
    api_error_set(&err, 400, "e", NULL, "tools[0].function.parameters.properties.input", "bad");
    custom_tools_rename_error(&names, body, &err);
    assert_string_equal(err.param, "tools[0].custom.format.grammar.definition");
    assert_string_equal(err.message,
                        "tools[0].custom.format.grammar.definition cannot be kept: bad");
    api_error_set(&err, 400, "e", NULL, "tools[1].function.parameters.type", "bad");
    custom_tools_rename_error(&names, body, &err);
    assert_string_equal(err.param, "tools[1].function.parameters.type");
    cJSON_Delete(body);
    byte_buffer_finish(&names);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(custom_tools_become_functions),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(errors_name_the_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
