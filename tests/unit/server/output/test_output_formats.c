#include "server/output/output_parser.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MAX_TEMPLATE_BYTES (1 << 20)

static void names_are_found(void **state) {
    enum tool_call_format tools = TOOL_CALL_FORMAT_NONE;
    enum reasoning_format reasoning = REASONING_FORMAT_NONE;
    assert_true(tool_call_format_find("hermes", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_HERMES);
    assert_true(tool_call_format_find("llama3_json", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_LLAMA3_JSON);
    assert_true(tool_call_format_find("mistral", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_MISTRAL);
    assert_true(tool_call_format_find("llama4_pythonic", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_PYTHONIC);
    assert_true(tool_call_format_find("none", &tools));
    assert_int_equal(tools, TOOL_CALL_FORMAT_NONE);
    assert_true(reasoning_format_find("think", &reasoning));
    assert_int_equal(reasoning, REASONING_FORMAT_THINK);
    assert_true(reasoning_format_find("none", &reasoning));
    assert_int_equal(reasoning, REASONING_FORMAT_NONE);
}

static void formats_have_names(void **state) {
    assert_string_equal(tool_call_format_name(TOOL_CALL_FORMAT_NONE), "none");
    assert_string_equal(tool_call_format_name(TOOL_CALL_FORMAT_HERMES), "hermes");
    assert_string_equal(tool_call_format_name(TOOL_CALL_FORMAT_LLAMA3_JSON), "llama3_json");
    assert_string_equal(tool_call_format_name(TOOL_CALL_FORMAT_MISTRAL), "mistral");
    assert_string_equal(tool_call_format_name(TOOL_CALL_FORMAT_QWEN3_CODER), "qwen3_coder");
    assert_string_equal(tool_call_format_name(TOOL_CALL_FORMAT_HARMONY), "openai");
    assert_string_equal(tool_call_format_name(TOOL_CALL_FORMAT_PYTHONIC), "pythonic");
    assert_string_equal(tool_call_format_name(TOOL_CALL_FORMAT_GRANITE_20B), "granite-20b-fc");
    assert_string_equal(reasoning_format_name(REASONING_FORMAT_COHERE), "cohere");
    assert_string_equal(reasoning_format_name(REASONING_FORMAT_GRANITE_33), "granite33");
    assert_string_equal(reasoning_format_name(REASONING_FORMAT_NONE), "none");
    assert_string_equal(reasoning_format_name(REASONING_FORMAT_THINK), "think");
}

static void an_unknown_name_leaves_the_output(void **state) {
    enum tool_call_format tools = TOOL_CALL_FORMAT_MISTRAL;
    enum reasoning_format reasoning = REASONING_FORMAT_THINK;
    assert_false(tool_call_format_find("python", &tools));
    assert_false(tool_call_format_find("", &tools));
    assert_false(reasoning_format_find("thinking", &reasoning));
    assert_int_equal(tools, TOOL_CALL_FORMAT_MISTRAL);
    assert_int_equal(reasoning, REASONING_FORMAT_THINK);
}

/* The published templates of tests/golden/chat_templates, whose folder is the program's argument.
 */
static const struct {
    const char *name;
    enum tool_call_format tools;
    enum reasoning_format reasoning;
} templates[] = {
    {"qwen2.5", TOOL_CALL_FORMAT_HERMES, REASONING_FORMAT_NONE},
    {"qwen3", TOOL_CALL_FORMAT_HERMES, REASONING_FORMAT_THINK},
    {"qwen3-instruct-2507", TOOL_CALL_FORMAT_HERMES, REASONING_FORMAT_NONE},
    {"qwq", TOOL_CALL_FORMAT_HERMES, REASONING_FORMAT_THINK},
    {"hermes-2-pro", TOOL_CALL_FORMAT_HERMES, REASONING_FORMAT_NONE},
    {"granite-4.0", TOOL_CALL_FORMAT_HERMES, REASONING_FORMAT_NONE},
    {"llama-3.1", TOOL_CALL_FORMAT_LLAMA3_JSON, REASONING_FORMAT_NONE},
    {"llama-3.2", TOOL_CALL_FORMAT_LLAMA3_JSON, REASONING_FORMAT_NONE},
    {"mistral-nemo", TOOL_CALL_FORMAT_MISTRAL, REASONING_FORMAT_NONE},
    {"mistral-large-2407", TOOL_CALL_FORMAT_MISTRAL, REASONING_FORMAT_NONE},
    {"mistral-small-3.2", TOOL_CALL_FORMAT_MISTRAL, REASONING_FORMAT_NONE},
    {"deepseek-r1-distill-qwen", TOOL_CALL_FORMAT_DEEPSEEK_V3, REASONING_FORMAT_THINK},
    {"deepseek-v3", TOOL_CALL_FORMAT_DEEPSEEK_V3, REASONING_FORMAT_THINK},
    {"deepseek-v3.1", TOOL_CALL_FORMAT_DEEPSEEK_V31, REASONING_FORMAT_THINK},
    {"kimi-k2", TOOL_CALL_FORMAT_KIMI_K2, REASONING_FORMAT_NONE},
    {"kimi-k2-thinking", TOOL_CALL_FORMAT_KIMI_K2, REASONING_FORMAT_THINK},
    {"granite-3.3", TOOL_CALL_FORMAT_GRANITE, REASONING_FORMAT_GRANITE_33},
    {"granite-20b", TOOL_CALL_FORMAT_GRANITE_20B, REASONING_FORMAT_NONE},
    {"granite-tools", TOOL_CALL_FORMAT_GRANITE, REASONING_FORMAT_NONE},
    {"command-r7b", TOOL_CALL_FORMAT_COHERE, REASONING_FORMAT_COHERE},
    {"command-a", TOOL_CALL_FORMAT_COHERE, REASONING_FORMAT_COHERE},
    /* Something else than JSON between Hermes' markers. */
    {"qwen3-coder", TOOL_CALL_FORMAT_QWEN3_CODER, REASONING_FORMAT_NONE},
    {"qwen3.5", TOOL_CALL_FORMAT_QWEN3_CODER, REASONING_FORMAT_THINK},
    {"gpt-oss", TOOL_CALL_FORMAT_HARMONY, REASONING_FORMAT_HARMONY},
    {"glm-4.5", TOOL_CALL_FORMAT_GLM45, REASONING_FORMAT_THINK},
    {"glm-4.6", TOOL_CALL_FORMAT_GLM45, REASONING_FORMAT_THINK},
    {"glm-4.7-flash", TOOL_CALL_FORMAT_GLM45, REASONING_FORMAT_THINK},
    {"llama-3.2-pythonic", TOOL_CALL_FORMAT_PYTHONIC, REASONING_FORMAT_NONE},
    {"llama-4-pythonic", TOOL_CALL_FORMAT_PYTHONIC, REASONING_FORMAT_NONE},
    {"toolace", TOOL_CALL_FORMAT_PYTHONIC, REASONING_FORMAT_NONE},
    /* None that is known. */
    {"llama-3", TOOL_CALL_FORMAT_NONE, REASONING_FORMAT_NONE},
    {"mistral-7b-v0.2-old", TOOL_CALL_FORMAT_NONE, REASONING_FORMAT_NONE},
    {"smollm2", TOOL_CALL_FORMAT_NONE, REASONING_FORMAT_NONE},
    {"gemma-3", TOOL_CALL_FORMAT_NONE, REASONING_FORMAT_NONE},
};

static char *read_template(const char *folder, const char *name) {
    char path[4096];
    char *text = calloc(1, MAX_TEMPLATE_BYTES + 1);
    snprintf(path, sizeof(path), "%s/%s.jinja", folder, name);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_non_null(text);
    assert_in_range(fread(text, 1, MAX_TEMPLATE_BYTES, stream), 1, MAX_TEMPLATE_BYTES - 1);
    fclose(stream);
    return text;
}

static void templates_tell_the_formats(void **state) {
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++) {
        char *text = read_template(*state, templates[i].name);
        enum tool_call_format tools = tool_call_format_of_template(text);
        enum reasoning_format reasoning = reasoning_format_of_template(text);
        if (tools != templates[i].tools || reasoning != templates[i].reasoning)
            fail_msg("%s: tools %d, reasoning %d", templates[i].name, (int)tools, (int)reasoning);
        free(text);
    }
}

static void formats_with_control_tokens_need_them(void **state) {
    assert_false(tool_call_format_needs_special(TOOL_CALL_FORMAT_NONE));
    assert_false(tool_call_format_needs_special(TOOL_CALL_FORMAT_HERMES));
    assert_true(tool_call_format_needs_special(TOOL_CALL_FORMAT_LLAMA3_JSON));
    assert_true(tool_call_format_needs_special(TOOL_CALL_FORMAT_MISTRAL));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(an_unknown_name_leaves_the_output),
        cmocka_unit_test_prestate(templates_tell_the_formats, argv[argc - 1]),
        cmocka_unit_test(formats_with_control_tokens_need_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
