/* The tools of a chat and the choice among them, in both of OpenAI's forms. */
#include "server/api/chat/chat_body.h"

#include "config/json/json_write.h"
#include "server/api/conversation/tool_grammar.h"
#include "server/api/conversation/tools.h"

#include "tests/unit/server/api/conversation_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define TOOLS "\"tools\":[" TOOL("one") "," TOOL("two") "]"

static struct conversation read(const char *body) {
    struct conversation out;
    struct api_error err = {0};
    if (conversation_fixture_read(body, &out, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return out;
}

static void expect_choice(const char *body, enum tool_choice choice, int num_tools) {
    struct conversation conversation = read(body);
    assert_int_equal(conversation.tool_choice, choice);
    assert_int_equal(conversation.num_tools, num_tools);
    assert_int_equal(conversation.tools != NULL, num_tools > 0);
    assert_false(conversation.has_functions);
    conversation_finish(&conversation);
}

static void refuse_with(const char *body, struct api_error *err) {
    struct conversation conversation;
    if (conversation_fixture_read(body, &conversation, err) == 0)
        fail_msg("accepted %s", body);
    assert_int_equal(err->status, 400);
    assert_non_null(strstr(err->message, err->param));
}

static void expect_error(const char *body, const char *param, const char *code) {
    struct api_error err = {0};
    refuse_with(body, &err);
    assert_string_equal(err.param, param);
    assert_string_equal(err.code, code);
}

static void expect_shown(const struct tool *tool, const char *expected) {
    struct byte_buffer out = {0};
    json_write_tree(&out, tool->shown);
    byte_buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    byte_buffer_finish(&out);
}

/* --- tools and tool_choice --- */

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
    struct conversation conversation = read("{" TOOLS ",\"tool_choice\":" TOOL("two") "}");
    assert_int_equal(conversation.tool_choice, TOOL_CHOICE_NAMED);
    assert_false(conversation.tools[0].is_allowed);
    assert_true(conversation.tools[1].is_allowed);
    assert_false(conversation.has_allowed_tools);
    assert_string_equal(conversation.tools[0].name, "one");
    conversation_finish(&conversation);
}

static void a_function_is_shown_as_it_was_sent(void **state) {
    static const char tool[] =
        "{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":true,\"parameters\":{"
        "\"type\":\"object\"},\"x\":null},\"y\":1}";
    char body[256];
    snprintf(body, sizeof(body), "{\"tools\":[" TOOL("b") ",%s]}", tool);
    struct conversation conversation = read(body);
    const struct tool *read_tool = &conversation.tools[1];
    expect_shown(read_tool, tool);
    assert_int_equal(read_tool->kind, TOOL_FUNCTION);
    assert_string_equal(read_tool->parameters->child->string, "type");
    assert_true(read_tool->is_strict);
    assert_null(read_tool->lark);
    assert_string_equal(read_tool->schema_path, "tools[1].function.parameters");
    assert_null(conversation.tools[0].parameters);
    assert_false(conversation.tools[0].is_strict);
    conversation_finish(&conversation);
}

#define ALLOWED(mode, tools)                                                                       \
    "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":" mode                \
    ",\"tools\":" tools "}}"

static void some_tools_can_be_allowed(void **state) {
    static const char *const modes[] = {"\"auto\"", "\"required\""};
    for (int i = 0; i < 2; i++) {
        char body[512];
        snprintf(body, sizeof(body), "{" TOOLS "," ALLOWED("%s", "[" TOOL("two") "]") "}",
                 modes[i]);
        struct conversation conversation = read(body);
        assert_int_equal(conversation.tool_choice,
                         i == 0 ? TOOL_CHOICE_AUTO : TOOL_CHOICE_REQUIRED);
        assert_int_equal(conversation.num_tools, 2);
        assert_true(conversation.has_allowed_tools);
        assert_false(conversation.tools[0].is_allowed);
        assert_true(conversation.tools[1].is_allowed);
        conversation_finish(&conversation);
    }
    struct conversation conversation = read("{" TOOLS "}");
    assert_false(conversation.has_allowed_tools);
    assert_true(conversation.tools[0].is_allowed);
    assert_true(conversation.tools[1].is_allowed);
    conversation_finish(&conversation);
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
    static const struct {
        const char *body;
        bool allows_parallel;
    } cases[] = {
        {"{}", true},
        {"{\"parallel_tool_calls\":true}", true},
        {"{\"parallel_tool_calls\":false}", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct conversation conversation = read(cases[i].body);
        assert_int_equal(conversation.allows_parallel, cases[i].allows_parallel);
        conversation_finish(&conversation);
    }
}

static void wrong_shapes_are_refused(void **state) {
    static const char bad[] = "invalid_type";
    expect_error("{\"tools\":{}}", "tools", bad);
    expect_error("{\"tools\":[1]}", "tools[0]", bad);
    expect_error("{\"tools\":[{}]}", "tools[0].type", bad);
    expect_error("{\"tools\":[{\"type\":\"x\"}]}", "tools[0].type", bad);
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
    for (int i = 0; i < CONVERSATION_MAX_TOOLS; i++)
        byte_buffer_printf(&body, "%s" TOOL("t%d"), i > 0 ? "," : "", i);
    size_t length = body.length;
    byte_buffer_append(&body, "]}", 3);
    expect_choice(body.data, TOOL_CHOICE_AUTO, CONVERSATION_MAX_TOOLS);
    body.length = length;
    byte_buffer_append_text(&body, "," TOOL("more"));
    byte_buffer_append(&body, "]}", 3);
    expect_error(body.data, "tools", "array_above_max_length");
    byte_buffer_finish(&body);
}

/* --- Custom tools --- */

#define SCHEMA(pattern)                                                                            \
    "{'type':'object','properties':{'input':{'type':'string'" pattern                              \
    "}},'required':['input'],'additionalProperties':false}"
#define GRAMMAR(syntax, definition)                                                                \
    "'format':{'type':'grammar','grammar':{'syntax':'" syntax "','definition':'" definition "'}}"
#define WITH_GRAMMAR(syntax, definition)                                                           \
    "{'tools':[{'type':'custom','custom':{'name':'a'," GRAMMAR(syntax, definition) "}}]}"
#define WITH_PATTERN(pattern)                                                                      \
    "{'type':'function','function':{'name':'a','parameters':" SCHEMA(",'pattern':'" pattern        \
                                                                     "'") ",'strict':true}}"

/* Writes text with " for '. */
static const char *quoted(const char *single_quoted, char out[1024]) {
    size_t length = strlen(single_quoted);
    assert_true(length < 1024);
    for (size_t i = 0; i <= length; i++)
        out[i] = single_quoted[i] == '\'' ? '"' : single_quoted[i];
    return out;
}

static struct conversation read_quoted(const char *single_quoted) {
    char body[1024];
    return read(quoted(single_quoted, body));
}

static void custom_tools_are_shown_as_functions(void **state) {
    static const struct {
        const char *body, *shown, *lark;
        bool is_strict;
    } cases[] = {
        {"{'tools':[{'type':'custom','custom':{'name':'a','description':'d'}}]}",
         "{'type':'function','function':{'name':'a','description':'d','parameters':" SCHEMA(
             "") "}}",
         NULL, false},
        {"{'tools':[{'type':'custom','custom':{'name':'a','format':{'type':'text'}}}]}",
         "{'type':'function','function':{'name':'a','parameters':" SCHEMA("") "}}", NULL, false},
        {WITH_GRAMMAR("regex", "b+"), WITH_PATTERN("^(?:b+)$"), NULL, true},
        {WITH_GRAMMAR("regex", "^b|c$"), WITH_PATTERN("^(?:b|c)$"), NULL, true},
        {WITH_GRAMMAR("regex", "^b\\\\$"), WITH_PATTERN("^(?:b\\\\$)$"), NULL, true},
        {WITH_GRAMMAR("regex", "b\\\\\\\\$"), WITH_PATTERN("^(?:b\\\\\\\\)$"), NULL, true},
        {WITH_GRAMMAR("regex", "$"), WITH_PATTERN("^(?:)$"), NULL, true},
        {WITH_GRAMMAR("lark", "start: A"),
         "{'type':'function','function':{'name':'a','parameters':" SCHEMA(
             "") ",'strict':true,'input_grammar':'start: A'}}",
         "start: A", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char shown[1024];
        struct conversation conversation = read_quoted(cases[i].body);
        const struct tool *tool = &conversation.tools[0];
        assert_int_equal(conversation.num_tools, 1);
        assert_int_equal(tool->kind, TOOL_CUSTOM);
        assert_string_equal(tool->name, "a");
        expect_shown(tool, quoted(cases[i].shown, shown));
        assert_string_equal(tool->parameters->child->valuestring, "object");
        assert_int_equal(tool->is_strict, cases[i].is_strict);
        assert_string_equal(tool->lark != NULL ? tool->lark : "none",
                            cases[i].lark != NULL ? cases[i].lark : "none");
        assert_string_equal(tool->schema_path, "tools[0].custom.format.grammar.definition");
        conversation_finish(&conversation);
    }
}

#define CUSTOM "{'type':'custom','custom':{'name':'a'}}"
#define CUSTOM_CHOICE(choice) "{'tools':[" CUSTOM "],'tool_choice':" choice "}"

static void a_custom_tool_can_be_named_and_allowed(void **state) {
    struct conversation conversation = read_quoted(CUSTOM_CHOICE(CUSTOM));
    assert_int_equal(conversation.tool_choice, TOOL_CHOICE_NAMED);
    assert_true(conversation.tools[0].is_allowed);
    conversation_finish(&conversation);
    conversation = read_quoted("{'tools':[{'type':'function','function':{'name':'b'}}," CUSTOM
                               "],'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':"
                               "'auto','tools':[" CUSTOM "]}}}");
    assert_int_equal(conversation.tool_choice, TOOL_CHOICE_AUTO);
    assert_false(conversation.tools[0].is_allowed);
    assert_true(conversation.tools[1].is_allowed);
    conversation_finish(&conversation);
}

static void wrong_custom_tools_are_refused(void **state) {
    static const char *const cases[][3] = {
        {"{'tools':[{'type':'custom'}]}", "tools[0].custom", "invalid_type"},
        {"{'tools':[{'type':'custom','custom':{}}]}", "tools[0].custom.name", "invalid_type"},
        {"{'tools':[{'type':'custom','custom':{'name':'a','description':1}}]}",
         "tools[0].custom.description", "invalid_type"},
        {"{'tools':[{'type':'custom','custom':{'name':'a','format':1}}]}", "tools[0].custom.format",
         "invalid_type"},
        {"{'tools':[{'type':'custom','custom':{'name':'a','format':{'type':'x'}}}]}",
         "tools[0].custom.format.type", "invalid_type"},
        {"{'tools':[{'type':'custom','custom':{'name':'a','format':{'type':'grammar'}}}]}",
         "tools[0].custom.format.grammar", "invalid_type"},
        {WITH_GRAMMAR("ebnf", "b"), "tools[0].custom.format.grammar.syntax", "invalid_type"},
        {"{'tools':[{'type':'custom','custom':{'name':'a','format':{'type':'grammar','grammar':{"
         "'syntax':'lark'}}}}]}",
         "tools[0].custom.format.grammar.definition", "invalid_type"},
        {"{'tools':[" CUSTOM ",{'type':'x'}]}", "tools[1].type", "invalid_type"},
        {"{'tools':3,'tool_choice':'auto'}", "tools", "invalid_type"},
        {CUSTOM_CHOICE("{'type':'custom'}"), "tool_choice.custom", "invalid_type"},
        {CUSTOM_CHOICE("{'type':'custom','custom':{}}"), "tool_choice.custom.name", "invalid_type"},
        {CUSTOM_CHOICE("{'type':'custom','custom':{'name':'b'}}"), "tool_choice.custom.name",
         "unknown_tool"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char body[1024];
        expect_error(quoted(cases[i][0], body), cases[i][1], cases[i][2]);
    }
}

/* The schema of a custom tool's input is the client's grammar; a function's is its own. */
static void errors_name_the_grammar(void **state) {
    static const char path[] = "tools[0].custom.format.grammar.definition";
    struct api_error err = {0};
    char begin[96];
    struct conversation conversation = read_quoted(WITH_GRAMMAR("lark", "start: a"));
    assert_int_equal(tool_grammar_check(&conversation, NULL, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, path);
    snprintf(begin, sizeof(begin), "%s cannot be enforced: ", path);
    assert_ptr_equal(strstr(err.message, begin), err.message);
    conversation_finish(&conversation);
    conversation = read_quoted("{'tools':[" CUSTOM ",{'type':'function','function':{'name':'b',"
                               "'parameters':{'type':'array'}}}]}");
    assert_int_equal(tool_grammar_check(&conversation, NULL, &err), -1);
    assert_string_equal(err.param, "tools[1].function.parameters.type");
    conversation_finish(&conversation);
}

/* --- functions and function_call --- */

static struct conversation read_functions(const char *body) {
    struct conversation conversation = read(body);
    assert_true(conversation.has_functions);
    assert_false(conversation.allows_parallel);
    return conversation;
}

static void other_bodies_are_not_of_the_old_form(void **state) {
    expect_choice("{}", TOOL_CHOICE_NONE, 0);
    expect_choice("{\"functions\":null,\"function_call\":null,\"tools\":[" TOOL("f") "]}",
                  TOOL_CHOICE_AUTO, 1);
}

static void functions_are_tools(void **state) {
    struct conversation conversation = read_functions(
        "{\"n\":2,\"functions\":[{\"name\":\"f\",\"parameters\":{}},{\"name\":\"g\"}]}");
    assert_int_equal(conversation.num_tools, 2);
    assert_int_equal(conversation.tool_choice, TOOL_CHOICE_AUTO);
    expect_shown(&conversation.tools[0],
                 "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}");
    expect_shown(&conversation.tools[1], TOOL("g"));
    assert_string_equal(conversation.tools[0].schema_path, "functions[0].parameters");
    conversation_finish(&conversation);
    conversation = read_functions("{\"functions\":[],\"tools\":null}");
    assert_int_equal(conversation.num_tools, 0);
    assert_int_equal(conversation.tool_choice, TOOL_CHOICE_NONE);
    conversation_finish(&conversation);
}

#define FUNCTIONS "\"functions\":[{\"name\":\"f\"},{\"name\":\"g\"}]"

static void a_function_can_be_chosen(void **state) {
    static const struct {
        const char *body;
        enum tool_choice choice;
        bool allows_g;
    } cases[] = {
        {"{" FUNCTIONS ",\"function_call\":\"auto\"}", TOOL_CHOICE_AUTO, true},
        {"{" FUNCTIONS ",\"function_call\":\"none\"}", TOOL_CHOICE_NONE, true},
        {"{" FUNCTIONS ",\"function_call\":{\"name\":\"f\"}}", TOOL_CHOICE_NAMED, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct conversation conversation = read_functions(cases[i].body);
        assert_int_equal(conversation.tool_choice, cases[i].choice);
        assert_true(conversation.tools[0].is_allowed);
        assert_int_equal(conversation.tools[1].is_allowed, cases[i].allows_g);
        conversation_finish(&conversation);
    }
    struct conversation conversation = read_functions("{\"function_call\":\"none\"}");
    assert_int_equal(conversation.tool_choice, TOOL_CHOICE_NONE);
    conversation_finish(&conversation);
    conversation = read_functions("{\"functions\":[],\"function_call\":\"auto\"}");
    assert_int_equal(conversation.tool_choice, TOOL_CHOICE_NONE);
    conversation_finish(&conversation);
    expect_error("{\"function_call\":\"auto\"}", "functions", "missing_required_parameter");
    expect_error("{\"function_call\":{\"name\":\"f\"}}", "functions", "missing_required_parameter");
}

static void wrong_functions_are_refused(void **state) {
    static const char bad[] = "invalid_type";
    expect_error("{\"functions\":1}", "functions", bad);
    expect_error("{\"functions\":{\"name\":\"f\"}}", "functions", bad);
    expect_error("{\"functions\":[1]}", "functions[0]", bad);
    expect_error("{\"functions\":[{\"name\":\"f\",\"parameters\":1}]}", "functions[0].parameters",
                 bad);
    expect_error("{\"function_call\":\"required\"}", "function_call", bad);
    expect_error("{\"function_call\":true}", "function_call", bad);
    expect_error("{" FUNCTIONS ",\"function_call\":{}}", "function_call.name", bad);
}

static void the_forms_are_not_mixed(void **state) {
    static const char mixed[] = "unsupported_value";
    expect_error("{\"functions\":[],\"tools\":[]}", "functions", mixed);
    expect_error("{\"functions\":[],\"parallel_tool_calls\":true}", "functions", mixed);
    expect_error("{\"function_call\":\"auto\",\"tools\":[]}", "function_call", mixed);
    expect_error("{\"functions\":[],\"tool_choice\":\"none\"}", "functions", mixed);
}

static void errors_name_the_old_fields(void **state) {
    static const char *const cases[][3] = {
        {"{\"functions\":[{\"name\":\"a\"},{\"name\":\"b\"},{\"name\":\"c\"},{\"name\":\"\"}]}",
         "functions[3].name", "functions[3].name must be "},
        {"{" FUNCTIONS ",\"function_call\":{\"name\":\"x\"}}", "function_call.name",
         "function_call.name is \"x\", which is not in functions"},
        {"{\"function_call\":\"auto\"}", "functions",
         "function_call needs functions, and there are none"},
        {"{\"functions\":[{\"name\":\"a\"},{\"name\":\"a\"}]}", "functions[1].name",
         "functions[1].name is \"a\" as another tool's"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct api_error err = {0};
        refuse_with(cases[i][0], &err);
        assert_string_equal(err.param, cases[i][1]);
        assert_ptr_equal(strstr(err.message, cases[i][2]), err.message);
    }
    struct api_error err = {0};
    struct conversation conversation =
        read_functions("{\"functions\":[{\"name\":\"f\",\"parameters\":{\"type\":\"array\"}}]}");
    assert_int_equal(tool_grammar_check(&conversation, NULL, &err), -1);
    assert_string_equal(err.param, "functions[0].parameters.type");
    conversation_finish(&conversation);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_tools_none_is_chosen),
        cmocka_unit_test(with_tools_the_model_decides),
        cmocka_unit_test(a_tool_can_be_named),
        cmocka_unit_test(a_function_is_shown_as_it_was_sent),
        cmocka_unit_test(some_tools_can_be_allowed),
        cmocka_unit_test(wrong_lists_of_allowed_tools_are_refused),
        cmocka_unit_test(parallel_calls_can_be_forbidden),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(wrong_members_of_a_function_are_refused),
        cmocka_unit_test(names_are_distinct_known_and_bounded),
        cmocka_unit_test(a_choice_needs_tools),
        cmocka_unit_test(tools_are_bounded),
        cmocka_unit_test(custom_tools_are_shown_as_functions),
        cmocka_unit_test(a_custom_tool_can_be_named_and_allowed),
        cmocka_unit_test(wrong_custom_tools_are_refused),
        cmocka_unit_test(errors_name_the_grammar),
        cmocka_unit_test(other_bodies_are_not_of_the_old_form),
        cmocka_unit_test(functions_are_tools),
        cmocka_unit_test(a_function_can_be_chosen),
        cmocka_unit_test(wrong_functions_are_refused),
        cmocka_unit_test(the_forms_are_not_mixed),
        cmocka_unit_test(errors_name_the_old_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
