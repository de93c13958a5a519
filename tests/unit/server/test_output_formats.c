#include "server/output/output_parser.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void names_are_found(void **state) {
    enum tool_call_format tools = TOOL_CALL_FORMAT_NONE;
    enum reasoning_format reasoning = REASONING_FORMAT_NONE;
    assert_true(tool_call_format_find("hermes", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_HERMES);
    assert_true(tool_call_format_find("llama3_json", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_LLAMA3_JSON);
    assert_true(tool_call_format_find("mistral", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_MISTRAL);
    assert_true(tool_call_format_find("none", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_NONE);
    assert_true(reasoning_format_find("think", &reasoning));
    assert_int_equal(reasoning, REASONING_FORMAT_THINK);
    assert_true(reasoning_format_find("none", &reasoning));
    assert_int_equal(reasoning, REASONING_FORMAT_NONE);
}

static void an_unknown_name_leaves_the_output(void **state) {
    enum tool_call_format tools = TOOL_CALL_FORMAT_MISTRAL;
    enum reasoning_format reasoning = REASONING_FORMAT_THINK;
    assert_false(tool_call_format_find("pythonic", &tools));
    assert_false(tool_call_format_find("", &tools));
    assert_false(reasoning_format_find("thinking", &reasoning));
    assert_int_equal(tools, TOOL_CALL_FORMAT_MISTRAL);
    assert_int_equal(reasoning, REASONING_FORMAT_THINK);
}

/* With sentences of the models' own templates. */
static void templates_tell_the_format_of_calls(void **state) {
    static const struct {
        const char *text;
        enum tool_call_format format;
    } templates[] = {
        {"within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{\\\"name\\\": <function-name>",
         TOOL_CALL_FORMAT_HERMES},
        {"Environment: ipython ... {\"name\": function name, \"parameters\": dictionary of",
         TOOL_CALL_FORMAT_LLAMA3_JSON},
        {"\"<|python_tag|>\" + tool_call.name ... '\"parameters\": '",
         TOOL_CALL_FORMAT_LLAMA3_JSON},
        {"{{- \"[TOOL_CALLS] [\" }}", TOOL_CALL_FORMAT_MISTRAL},
        {"<tool_call>\\n<function=example_function_name>\\n<parameter=", TOOL_CALL_FORMAT_NONE},
        {"<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>", TOOL_CALL_FORMAT_NONE},
        {"{{'<|im_start|>' + message['role'] + '\\n' + message['content']", TOOL_CALL_FORMAT_NONE},
        {"", TOOL_CALL_FORMAT_NONE},
    };
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++)
        assert_int_equal(tool_call_format_of_template(templates[i].text), templates[i].format);
}

static void templates_tell_whether_the_model_thinks(void **state) {
    assert_int_equal(reasoning_format_of_template("{{- '<think>\\n\\n</think>\\n\\n' }}"),
                     REASONING_FORMAT_THINK);
    assert_int_equal(reasoning_format_of_template("content.split('</think>')[-1]"),
                     REASONING_FORMAT_THINK);
    assert_int_equal(reasoning_format_of_template("{{ thinking }}"), REASONING_FORMAT_NONE);
}

static void formats_with_control_tokens_need_them(void **state) {
    assert_false(tool_call_format_needs_special(TOOL_CALL_FORMAT_NONE));
    assert_false(tool_call_format_needs_special(TOOL_CALL_FORMAT_HERMES));
    assert_true(tool_call_format_needs_special(TOOL_CALL_FORMAT_LLAMA3_JSON));
    assert_true(tool_call_format_needs_special(TOOL_CALL_FORMAT_MISTRAL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(an_unknown_name_leaves_the_output),
        cmocka_unit_test(templates_tell_the_format_of_calls),
        cmocka_unit_test(templates_tell_whether_the_model_thinks),
        cmocka_unit_test(formats_with_control_tokens_need_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
