/* What the forms of chats' answers take and refuse, byte by byte, and that the output parser reads
 * what they take as it is meant. */
#include "server/api/conversation/chat_generation.h"
#include "server/api/constraint/response_format.h"
#include "server/api/conversation/tool_grammar.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"
#include "tests/unit/server/api/conversation_fixture.h"
#include "tests/unit/server/output/output_render.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct tokenizer tokenizer;

/* Readers of prompts are linked with those of bodies, and not called. */
int64_t tokenizer_encode_spans(const struct tokenizer *other, const char *text, size_t length,
                               const struct text_span *client_spans, size_t num_client_spans,
                               unsigned flags, int32_t *out, size_t capacity) {
    fail();
    return 0;
}

void tokenizer_num_added(const struct tokenizer *other, int *out_before, int *out_behind) {
    fail();
}

/* `control` is the written form of the one control token besides the end. */
static void set_vocabulary(const char *control) {
    fixture_init_bytes(&tokenizer);
    tokenizer.pieces[tokenizer.control] = (struct text){control, strlen(control)};
}

static int set_up(void **state) {
    set_vocabulary("<control>");
    return 0;
}

static int build_with(struct grammar_cache *cache, const char *body,
                      const struct output_parser_config *model, struct grammar **out,
                      struct api_error *err) {
    const struct api_context context = {.tokenizer = &tokenizer, .grammars = cache};
    struct conversation conversation;
    if (conversation_fixture_read(body, &conversation, err) != 0 ||
        response_format_read(conversation.body, &openai_names, NULL, NULL, NULL,
                             &conversation.sampling.grammar, err) != 0)
        fail_msg("%s", err->message);
    int status = chat_grammar_build(&context, &conversation, model, out, err);
    conversation_finish(&conversation);
    return status;
}

static int build(const char *body, const struct output_parser_config *model, struct grammar **out,
                 struct api_error *err) {
    return build_with(NULL, body, model, out, err);
}

/* At a '\1' the text has the control token. */
static int32_t token_of(char byte) {
    return byte == '\1' ? tokenizer.control : (uint8_t)byte;
}

/* Bytes of the text that may come; *out_ends: the answer may end behind the last of them. */
static size_t num_taken(struct grammar *grammar, const char *text, bool *out_ends) {
    struct grammar_vocabulary *vocabulary = NULL;
    struct error err;
    uint32_t mask[FIXTURE_WORDS];
    size_t taken = 0;
    assert_int_equal(grammar_vocabulary_create(&tokenizer, &vocabulary, &err), 0);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    while (text[taken] != '\0' && grammar_state_accept(state, token_of(text[taken])) == 0)
        taken++;
    assert_int_equal(grammar_state_mask(state, mask), 0);
    *out_ends = (mask[tokenizer.end / 32] >> (tokenizer.end % 32) & 1) != 0;
    grammar_state_destroy(state);
    grammar_vocabulary_destroy(vocabulary);
    return taken;
}

/* A model without a format calls as hermes. */
static void expect_render(const struct output_parser_config *model, const char *text,
                          const char *expected) {
    struct output_parser_config config = *model;
    struct output_render render;
    config.tools = tool_grammar_format(config.tools);
    output_render_begin(&render, &config);
    for (; *text != '\0'; text++) {
        struct text piece = tokenizer.pieces[token_of(*text)];
        output_render_push(&render, piece.data, piece.length, false);
    }
    output_render_push(&render, NULL, 0, true);
    assert_int_equal(render.text.length, strlen(expected));
    assert_memory_equal(render.text.data, expected, strlen(expected));
    output_render_finish(&render);
}

/* The whole text is taken and may end there; it is read as `rendered`. */
static void expect_taken(const char *body, const struct output_parser_config *model,
                         const char *text, const char *rendered) {
    struct grammar *grammar = NULL;
    struct api_error err = {0};
    bool ends;
    if (build(body, model, &grammar, &err) != 0)
        fail_msg("%s", err.message);
    size_t taken = num_taken(grammar, text, &ends);
    if (taken != strlen(text) || !ends)
        fail_msg("of %s the first %zu are taken", text, taken);
    grammar_unref(grammar);
    expect_render(model, text, rendered);
}

/* The text is taken up to its last byte, which is refused. */
static void expect_refused(const char *body, const struct output_parser_config *model,
                           const char *text) {
    struct grammar *grammar = NULL;
    struct api_error err = {0};
    bool ends;
    if (build(body, model, &grammar, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(num_taken(grammar, text, &ends), strlen(text) - 1);
    grammar_unref(grammar);
}

/* It is taken, but it is not all of an answer. */
static void expect_open(const char *body, const struct output_parser_config *model,
                        const char *text) {
    struct grammar *grammar = NULL;
    struct api_error err = {0};
    bool ends;
    if (build(body, model, &grammar, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(num_taken(grammar, text, &ends), strlen(text));
    assert_false(ends);
    grammar_unref(grammar);
}

#define TOOL_F "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define TOOL_G                                                                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{\"type\":\"object\","     \
    "\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"                          \
    "\"additionalProperties\":false}}}"
#define REQUIRED "{\"tools\":[" TOOL_F "," TOOL_G "],\"tool_choice\":\"required\"}"
#define SINGLE                                                                                     \
    "{\"tools\":[" TOOL_F "," TOOL_G "],\"tool_choice\":\"required\","                             \
    "\"parallel_tool_calls\":false}"
#define NAMED                                                                                      \
    "{\"tools\":[" TOOL_F "," TOOL_G "],\"tool_choice\":{\"type\":\"function\",\"function\":"      \
    "{\"name\":\"g\"}}}"

#define CALL_F "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"
#define CALL_G "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": 1}}\n</tool_call>"

static const struct output_parser_config hermes = {.tools = TOOL_CALL_FORMAT_HERMES};
static const struct output_parser_config llama3 = {.tools = TOOL_CALL_FORMAT_LLAMA3_JSON};
static const struct output_parser_config mistral = {.tools = TOOL_CALL_FORMAT_MISTRAL};
static const struct output_parser_config none = {.tools = TOOL_CALL_FORMAT_NONE};

static void hermes_calls_are_forced(void **state) {
    expect_taken(REQUIRED, &hermes, CALL_F, "|call 0:f|arguments 0:{}");
    expect_taken(REQUIRED, &hermes, CALL_G "\n" CALL_F,
                 "|call 0:g|arguments 0:{\"a\": 1}|call 1:f|arguments 1:{}");
    expect_refused(REQUIRED, &hermes, "I");
    expect_refused(REQUIRED, &hermes, CALL_F " ");
    expect_open(REQUIRED, &hermes, "");
    expect_open(REQUIRED, &hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}");
    expect_refused(REQUIRED, &hermes, "<tool_call>\n{\"name\": \"h");
    expect_refused(REQUIRED, &hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"");
}

/* After the text a name may go on, but not end. */
static void expect_used_name(const char *body, const struct output_parser_config *model,
                             const char *text) {
    struct grammar *grammar = NULL;
    struct grammar_vocabulary *vocabulary = NULL;
    struct api_error error = {0};
    struct error err;
    uint32_t mask[FIXTURE_WORDS];
    if (build(body, model, &grammar, &error) != 0)
        fail_msg("%s", error.message);
    assert_int_equal(grammar_vocabulary_create(&tokenizer, &vocabulary, &err), 0);
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    for (const char *at = text; *at != '\0'; at++)
        assert_int_equal(grammar_state_accept(state, token_of(*at)), 0);
    assert_int_equal(grammar_state_mask(state, mask), 0);
    if (!fixture_allows(mask, 'b') || fixture_allows(mask, '"'))
        fail_msg("after %s the name may end", text);
    grammar_state_destroy(state);
    grammar_vocabulary_destroy(vocabulary);
    grammar_unref(grammar);
}

#define OPEN_TOOL                                                                                  \
    "{\"type\":\"function\",\"function\":{\"name\":\"o\",\"parameters\":{\"type\":\"object\","     \
    "\"additionalProperties\":{\"type\":\"integer\"}}}}"
#define OPEN "{\"tools\":[" TOOL_F "," OPEN_TOOL "],\"tool_choice\":\"required\"}"

static void arguments_have_no_name_twice(void **state) {
    expect_used_name(OPEN, &hermes, "<tool_call>\n{\"name\": \"o\", \"arguments\": {\"a\": 1, \"a");
    expect_used_name(OPEN, &hermes,
                     "<tool_call>\n{\"name\": \"o\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
                     "<tool_call>\n{\"name\": \"o\", \"arguments\": {\"c\": 1, \"c");
    expect_used_name(OPEN, &llama3, "{\"name\": \"o\", \"parameters\": {\"a\": 1, \"a");
}

static void a_model_without_a_format_calls_as_hermes(void **state) {
    expect_taken(REQUIRED, &none, CALL_G, "|call 0:g|arguments 0:{\"a\": 1}");
}

static void calls_that_are_not_parallel_are_one(void **state) {
    expect_taken(SINGLE, &hermes, CALL_F, "|call 0:f|arguments 0:{}");
    expect_refused(SINGLE, &hermes, CALL_F "\n");
}

static void a_named_function_is_called_once(void **state) {
    expect_taken(NAMED, &hermes, CALL_G, "|call 0:g|arguments 0:{\"a\": 1}");
    expect_refused(NAMED, &hermes, CALL_G "\n");
    expect_refused(NAMED, &hermes, "<tool_call>\n{\"name\": \"f");
}

static void llama3_calls_are_forced(void **state) {
    expect_taken(REQUIRED, &llama3,
                 "{\"name\": \"g\", \"parameters\": {\"a\": 1}}; {\"name\": \"f\", "
                 "\"parameters\": {}}",
                 "|call 0:g|arguments 0:{\"a\": 1}|call 1:f|arguments 1:{}");
    expect_refused(REQUIRED, &llama3, "{\"name\": \"g\", \"a");
}

static void mistral_calls_are_forced(void **state) {
    static const char answer[] = "|call 0:g|arguments 0:{\"a\": 1}|call 1:f|arguments 1:{}";
    set_vocabulary("[TOOL_CALLS]");
    expect_taken(REQUIRED, &mistral,
                 "\1[{\"name\": \"g\", \"arguments\": {\"a\": 1}}, {\"name\": \"f\", "
                 "\"arguments\": {}}]",
                 answer);
    expect_taken(NAMED, &mistral, "\1 [{\"name\": \"g\", \"arguments\": {\"a\": 1}}]",
                 "|call 0:g|arguments 0:{\"a\": 1}");
    expect_refused(REQUIRED, &mistral, "[");
    set_vocabulary("[ARGS]");
    expect_taken(REQUIRED, &mistral, "[TOOL_CALLS]g\1{\"a\": 1}[TOOL_CALLS]f\1{}", answer);
    set_up(NULL);
}

#define ARGUMENTS(schema)                                                                          \
    "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":" schema       \
    "}}],\"tool_choice\":\"required\"}"
/* A string, an optional number, and a choice. */
#define S_N_E                                                                                      \
    ARGUMENTS(                                                                                     \
        "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"$ref\":\"#/"    \
        "$defs/"                                                                                   \
        "n\"},\"e\":{\"enum\":[\"x\",\"y\"]}},\"required\":[\"s\"],\"$defs\":{\"n\":{\"type\":"    \
        "\"integer\"}}}")
#define QWEN(arguments) "<tool_call>\n<function=f>\n" arguments "</function>\n</tool_call>"
#define PARAMETER(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
#define GLM(arguments) "<tool_call>f\n" arguments "</tool_call>"
#define ARGUMENT(name, value) "<arg_key>" name "</arg_key>\n<arg_value>" value "</arg_value>\n"

static void calls_with_tags_are_forced(void **state) {
    static const char answer[] =
        "|call 0:f|arguments 0:{\"s\": \"1 </p \\\"\", \"n\": 12, \"e\": \"y\"}";
    const char types[] = "f\0ss\0";
    struct output_parser_config qwen = {.tools = TOOL_CALL_FORMAT_QWEN3_CODER,
                                        .parameter_types = {types, sizeof(types)}};
    struct output_parser_config glm = qwen;
    glm.tools = TOOL_CALL_FORMAT_GLM45;
    expect_taken(S_N_E, &qwen,
                 QWEN(PARAMETER("s", "1 </p \"") PARAMETER("n", "12") PARAMETER("e", "y")), answer);
    expect_taken(S_N_E, &glm, GLM(ARGUMENT("s", "1 </p \"") ARGUMENT("n", "12") ARGUMENT("e", "y")),
                 answer);
    expect_taken(
        S_N_E, &qwen, QWEN(PARAMETER("s", "")) "\n" QWEN(PARAMETER("s", "</parameter")),
        "|call 0:f|arguments 0:{\"s\": \"\"}|call 1:f|arguments 1:{\"s\": \"</parameter\"}");
    expect_taken(REQUIRED, &glm, GLM(""), "|call 0:f|arguments 0:{}");
    expect_refused(S_N_E, &qwen, "<tool_call>\n<function=f>\n</");
    expect_refused(S_N_E, &qwen, "<tool_call>\n<function=f>\n<parameter=n");
    expect_refused(S_N_E, &glm,
                   "<tool_call>f\n" ARGUMENT("s", "a") "<arg_key>n</arg_key>\n<arg_value>x");
    expect_refused(S_N_E, &glm,
                   "<tool_call>f\n" ARGUMENT("s", "a") "<arg_key>e</arg_key>\n<arg_value>z");
}

/* Arguments that are not required stand between those that are. */
#define MIXED                                                                                      \
    ARGUMENTS(                                                                                     \
        "{\"type\":\"object\",\"properties\":{\"o\":{\"type\":\"boolean\"},\"s\":{\"type\":"       \
        "\"string\",\"maxLength\":3},\"l\":{\"type\":\"array\",\"items\":{\"type\":[\"string\","   \
        "\"null\",\"boolean\"]}}},\"required\":[\"s\"]}")

static void calls_of_python_are_forced(void **state) {
    const struct output_parser_config model = {.tools = TOOL_CALL_FORMAT_PYTHONIC};
    expect_taken(REQUIRED, &model, "[f(), g(a=1)]",
                 "|call 0:f|arguments 0:{}|call 1:g|arguments 1:{\"a\": 1}");
    expect_taken(MIXED, &model, "[f(s=\"\\/\\n'\")]", "|call 0:f|arguments 0:{\"s\": \"/\\n'\"}");
    expect_taken(MIXED, &model, "[f(o=True, s=\"a\", l=[\"x\",null,true]), f(o=False, s=\"\")]",
                 "|call 0:f|arguments 0:{\"o\": true, \"s\": \"a\", \"l\": [\"x\", null, true]}"
                 "|call 1:f|arguments 1:{\"o\": false, \"s\": \"\"}");
    expect_refused(MIXED, &model, "[f()");
    expect_refused(MIXED, &model, "[f(l");
    expect_refused(MIXED, &model, "[f(,");
    expect_refused(MIXED, &model, "[f(o=t");
    expect_refused(MIXED, &model, "[f(o=True)");
    expect_refused(MIXED, &model, "[f(s=\"abcd");
    expect_refused(MIXED, &model, "[f(s=\"a\", o");
    expect_refused(MIXED, &model, "[]");
}

#define DS(word) "<\uff5ctool\u2581" word "\uff5c>"
#define DS_BEGIN DS("calls\u2581begin") DS("call\u2581begin")
#define DS_END DS("call\u2581end") DS("calls\u2581end")

static void calls_of_other_families_are_forced(void **state) {
    static const char answer[] = "|call 0:g|arguments 0:{\"a\": 1}";
    static const struct {
        enum tool_call_format format;
        const char *text;
    } forms[] = {
        {TOOL_CALL_FORMAT_DEEPSEEK_V3,
         DS_BEGIN "function" DS("sep") "g\n```json\n{\"a\": 1}\n```" DS_END},
        {TOOL_CALL_FORMAT_DEEPSEEK_V31, DS_BEGIN "g" DS("sep") "{\"a\": 1}" DS_END},
        {TOOL_CALL_FORMAT_KIMI_K2,
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>"
         "{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>"},
        {TOOL_CALL_FORMAT_GRANITE, "<|tool_call|>[{\"name\": \"g\", \"arguments\": {\"a\": 1}}]"},
        {TOOL_CALL_FORMAT_GRANITE_20B,
         "<function_call> {\"name\": \"g\", \"arguments\": {\"a\": 1}}"},
        {TOOL_CALL_FORMAT_PYTHONIC, "[g(a=1)]"},
        {TOOL_CALL_FORMAT_COHERE,
         "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"g\", \"parameters\": "
         "{\"a\": 1}}\n]<|END_ACTION|>"},
        {TOOL_CALL_FORMAT_HARMONY,
         "<|channel|>commentary to=functions.g <|constrain|>json<|message|>{\"a\": 1}"},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const struct output_parser_config model = {.tools = forms[i].format};
        expect_taken(REQUIRED, &model, forms[i].text, answer);
        expect_refused(REQUIRED, &model, "I");
    }
}

static void harmony_has_channels(void **state) {
    const struct output_parser_config model = {.tools = TOOL_CALL_FORMAT_HARMONY,
                                               .reasoning = REASONING_FORMAT_HARMONY};
    expect_taken(REQUIRED, &model,
                 "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
                 "to=functions.f <|constrain|>json<|message|>{}",
                 "|reasoning:a|call 0:f|arguments 0:{}");
    expect_refused(REQUIRED, &model, "<|channel|>f");
}

static void expect_refused_form_of(enum tool_call_format format, const char *body,
                                   const char *param) {
    const struct output_parser_config model = {.tools = format};
    struct grammar *grammar = NULL;
    struct api_error err = {0};
    assert_int_equal(build(body, &model, &grammar, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.code, "unsupported_json_schema");
    assert_string_equal(err.param, param);
}

static void expect_refused_form(const char *body, const char *param) {
    expect_refused_form_of(TOOL_CALL_FORMAT_QWEN3_CODER, body, param);
}

static void what_tags_cannot_force_is_refused(void **state) {
    expect_refused_form(ARGUMENTS("{\"anyOf\":[{}]}"), "tools[0].function.parameters.anyOf");
    expect_refused_form(ARGUMENTS("{\"required\":[\"a\"]}"),
                        "tools[0].function.parameters.required");
    expect_refused_form(
        ARGUMENTS("{\"properties\":{\"s\":{\"type\":\"string\",\"pattern\":\"a\"}}}"),
        "tools[0].function.parameters.properties.s");
    expect_refused_form(ARGUMENTS("{\"properties\":{\"a>\":{\"type\":\"string\"}}}"),
                        "tools[0].function.parameters.properties.a>");
    expect_refused_form_of(TOOL_CALL_FORMAT_PYTHONIC,
                           ARGUMENTS("{\"properties\":{\"a b\":{\"type\":\"string\"}}}"),
                           "tools[0].function.parameters.properties.a b");
}

static void reasoning_may_come_first(void **state) {
    struct output_parser_config model = hermes;
    model.reasoning = REASONING_FORMAT_THINK;
    expect_taken(REQUIRED, &model, CALL_F, "|call 0:f|arguments 0:{}");
    expect_taken(REQUIRED, &model,
                 "<think>\n<a></a><</thin</thi<t></think</ think>k<<\n</think>\n\n" CALL_F,
                 "|reasoning:<a></a><</thin</thi<t></think</ think>k<<"
                 "|call 0:f|arguments 0:{}");
    expect_refused(REQUIRED, &model, "<think></think>I");
    expect_refused(REQUIRED, &model, "<think><</think></");
    model.begins_in_reasoning = true;
    expect_taken(REQUIRED, &model, "Hm \u00e9.\n</think>\n" CALL_F,
                 "|reasoning:Hm \u00e9.|call 0:f|arguments 0:{}");
    expect_open(REQUIRED, &model, CALL_F);
}

#define WITH(strict, schema)                                                                       \
    "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":" strict           \
    ",\"parameters\":" schema "}}],\"tool_choice\":\"required\"}"

static void expect_error(const char *body, const char *param) {
    struct grammar *grammar = NULL;
    struct api_error err = {0};
    assert_int_equal(build(body, &llama3, &grammar, &err), -1);
    assert_int_equal(err.status, 400);
    assert_ptr_equal(strstr(err.param, param), err.param);
    assert_null(grammar);
}

static void what_a_schema_has_beyond_the_form_is_refused_if_strict(void **state) {
    expect_taken(WITH("false", "{\"x-order\":1}"), &llama3,
                 "{\"name\": \"f\", \"parameters\": {\"any\": 1}}",
                 "|call 0:f|arguments 0:{\"any\": 1}");
    expect_error(WITH("true", "{\"x-order\":1}"), "tools[0].function.parameters");
    expect_error(WITH("false", "{\"not\":{\"propertyNames\":{\"pattern\":\"a\"}}}"),
                 "tools[0].function.parameters");
}

#define CUSTOM(definition)                                                                         \
    "{\"tools\":[" TOOL_F ",{\"type\":\"custom\",\"custom\":{\"name\":\"c\",\"format\":{\"type\":" \
    "\"grammar\",\"grammar\":{\"syntax\":\"regex\",\"definition\":\"" definition                   \
    "\"}}}}],\"tool_choice\":\"required\"}"

static void errors_of_a_custom_tool_name_its_grammar(void **state) {
    static const char path[] = "tools[1].custom.format.grammar.definition";
    struct grammar *grammar = NULL;
    struct api_error err = {0};
    char begin[96];
    assert_int_equal(build(CUSTOM("("), &llama3, &grammar, &err), -1);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, path);
    snprintf(begin, sizeof(begin), "%s cannot be enforced: ", path);
    assert_ptr_equal(strstr(err.message, begin), err.message);
    expect_taken(CUSTOM("b+"), &llama3, "{\"name\": \"c\", \"parameters\": {\"input\": \"bb\"}}",
                 "|call 0:c|arguments 0:{\"input\": \"bb\"}");
    expect_refused(CUSTOM("b+"), &llama3, "{\"name\": \"c\", \"parameters\": {\"input\": \"a");
}

static void arguments_are_an_object(void **state) {
    expect_refused(WITH("false", "{}"), &llama3, "{\"name\": \"f\", \"parameters\": [");
    expect_refused(WITH("false", "{\"type\":null}"), &llama3,
                   "{\"name\": \"f\", \"parameters\": 1");
    expect_error(WITH("false", "{\"type\":\"string\"}"), "tools[0].function.parameters.type");
}

#define JSON_FORM                                                                                  \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":"    \
    "{\"enum\":[true]}}}"

static void an_answer_of_a_form_may_be_reasoned_about(void **state) {
    struct output_parser_config model = {.reasoning = REASONING_FORMAT_THINK};
    expect_taken("{" JSON_FORM "}", &model, "true", "|content:true");
    expect_refused("{" JSON_FORM "}", &model, "I");
    expect_taken("{" JSON_FORM "}", &model, "<think>Yes?</think>\ntrue",
                 "|reasoning:Yes?|content:true");
    model.begins_in_reasoning = true;
    expect_taken("{" JSON_FORM "}", &model, "Yes?</think>true", "|reasoning:Yes?|content:true");
    expect_open("{" JSON_FORM "}", &model, "true");
    expect_refused("{" JSON_FORM "}", &model, "Yes?</think>I");
}

static void an_answer_of_harmony_is_final(void **state) {
    const struct output_parser_config model = {.tools = TOOL_CALL_FORMAT_HARMONY,
                                               .reasoning = REASONING_FORMAT_HARMONY};
    const struct output_parser_config answers = {.reasoning = REASONING_FORMAT_HARMONY};
    expect_taken(
        "{" JSON_FORM "}", &answers,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>true",
        "|reasoning:a|content:true");
    expect_taken("{" JSON_FORM ",\"tools\":[" TOOL_F "]}", &model,
                 "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}",
                 "|call 0:f|arguments 0:{}");
    expect_refused("{" JSON_FORM "}", &answers, "t");
}

static void tools_may_be_called_instead(void **state) {
    expect_taken("{" JSON_FORM ",\"tools\":[" TOOL_F "]}", &hermes, "true", "|content:true");
    expect_taken("{" JSON_FORM ",\"tools\":[" TOOL_F "]}", &hermes, CALL_F,
                 "|call 0:f|arguments 0:{}");
    expect_refused("{" JSON_FORM ",\"tools\":[" TOOL_F "]}", &hermes, "I");
    expect_refused("{" JSON_FORM ",\"tools\":[" TOOL_F "]}", &none, "<");
}

static void without_a_form_any_text_may_come(void **state) {
    struct grammar *grammar = NULL;
    struct api_error err = {0};
    assert_int_equal(build("{\"tools\":[" TOOL_F "]}", &hermes, &grammar, &err), 0);
    assert_null(grammar);
}

#define FUNCTION(name, type)                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name                                        \
    "\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"" type "\"}}}}}"

/* A grammar that is kept is found again where nothing that it depends on is another, and only
 * there. */
static void test_kept(void **state) {
    static const struct output_parser_config plain = {0},
                                             calls = {.tools = TOOL_CALL_FORMAT_HERMES},
                                             thinks = {.tools = TOOL_CALL_FORMAT_HERMES,
                                                       .reasoning = REASONING_FORMAT_THINK},
                                             thinking = {.tools = TOOL_CALL_FORMAT_HERMES,
                                                         .reasoning = REASONING_FORMAT_THINK,
                                                         .begins_in_reasoning = true};
    static const struct {
        const char *body;
        const struct output_parser_config *model;
    } all[] = {
        {"{\"tools\":[" FUNCTION("f", "string") "],\"tool_choice\":\"required\"}", &plain},
        {"{\"tools\":[" FUNCTION("f", "string") "],\"tool_choice\":\"required\"}", &thinks},
        {"{\"tools\":[" FUNCTION("f", "string") "],\"tool_choice\":\"required\"}", &thinking},
        {"{\"tools\":[" FUNCTION("f", "number") "],\"tool_choice\":\"required\"}", &plain},
        {"{\"tools\":[" FUNCTION("f", "string") "],\"tool_choice\":\"required\","
                                                "\"parallel_tool_calls\":false}",
         &plain},
        {"{\"tools\":[" FUNCTION("f", "string") "," FUNCTION(
             "g", "string") "],\"tool_choice\":{"
                            "\"type\":\"function\",\"function\":{\"name\":\"f\"}}}",
         &plain},
        {"{\"tools\":[" FUNCTION("f", "string") "," FUNCTION(
             "g", "string") "],\"tool_choice\":{"
                            "\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
         &plain},
        {"{\"guided_regex\":\"a\",\"tools\":[" FUNCTION("f", "string") "]}", &calls},
        {"{\"guided_regex\":\"a\",\"tools\":[" FUNCTION("f", "number") "]}", &calls},
        {"{\"guided_regex\":\"b\",\"tools\":[" FUNCTION("f", "number") "]}", &calls},
        {"{\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"f\",\"format\":{\"type\":"
         "\"grammar\",\"grammar\":{\"syntax\":\"lark\",\"definition\":\"start: /a/\"}}}}],"
         "\"tool_choice\":\"required\"}",
         &plain},
        /* What the model is shown of the one before. */
        {"{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
         "\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":["
         "\"input\"],\"additionalProperties\":false},\"strict\":true,\"input_grammar\":"
         "\"start: /a/\"}}],\"tool_choice\":\"required\"}",
         &plain},
    };
    enum { COUNT = sizeof(all) / sizeof(all[0]) };
    struct grammar_cache *cache = grammar_cache_create(1 << 24);
    struct grammar *found[COUNT], *again;
    struct api_error err = {0};
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(build_with(cache, all[i].body, all[i].model, &found[i], &err), 0);
        for (int k = 0; k < i; k++)
            if (found[k] == found[i])
                fail_msg("%s and %s", all[k].body, all[i].body);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(build_with(cache, all[i].body, all[i].model, &again, &err), 0);
        assert_ptr_equal(again, found[i]);
        grammar_unref(again);
        grammar_unref(found[i]);
    }
    grammar_cache_destroy(cache);
}

/* One tool of these takes a good part of what a request may; it must differ from the others. */
static struct conversation many_tools(int count) {
    struct conversation conversation;
    struct api_error err = {0};
    struct byte_buffer body = {0};
    byte_buffer_append_text(&body, "{\"tools\":[");
    for (int i = 0; i < count; i++)
        byte_buffer_printf(
            &body,
            "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\",\"parameters\":{"
            "\"patternProperties\":{\".*a.{12}%d$\":{}}}}}",
            i > 0 ? "," : "", i, i);
    byte_buffer_append(&body, "]}", 3);
    if (conversation_fixture_read(body.data, &conversation, &err) != 0)
        fail_msg("%s", err.message);
    byte_buffer_finish(&body);
    return conversation;
}

static int64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns the least processor time of some checks. */
static int64_t check_ns(int num_tools) {
    struct conversation conversation = many_tools(num_tools);
    struct api_error err = {0};
    int64_t least = INT64_MAX;
    for (int i = 0; i < 3; i++) {
        int64_t begin = cpu_ns();
        assert_int_equal(tool_grammar_check(&conversation, NULL, &err), 0);
        int64_t ns = cpu_ns() - begin;
        least = ns < least ? ns : least;
    }
    conversation_finish(&conversation);
    return least;
}

/* 128 of them take a dozen times what one takes. */
static void many_tools_share_the_work_of_one_request(void **state) {
    assert_true(4 * check_ns(CONVERSATION_MAX_TOOLS) < CONVERSATION_MAX_TOOLS * check_ns(1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(hermes_calls_are_forced),
        cmocka_unit_test(arguments_have_no_name_twice),
        cmocka_unit_test(a_model_without_a_format_calls_as_hermes),
        cmocka_unit_test(calls_that_are_not_parallel_are_one),
        cmocka_unit_test(a_named_function_is_called_once),
        cmocka_unit_test(llama3_calls_are_forced),
        cmocka_unit_test(mistral_calls_are_forced),
        cmocka_unit_test(calls_with_tags_are_forced),
        cmocka_unit_test(calls_of_python_are_forced),
        cmocka_unit_test(calls_of_other_families_are_forced),
        cmocka_unit_test(harmony_has_channels),
        cmocka_unit_test(an_answer_of_harmony_is_final),
        cmocka_unit_test(what_tags_cannot_force_is_refused),
        cmocka_unit_test(reasoning_may_come_first),
        cmocka_unit_test(what_a_schema_has_beyond_the_form_is_refused_if_strict),
        cmocka_unit_test(errors_of_a_custom_tool_name_its_grammar),
        cmocka_unit_test(arguments_are_an_object),
        cmocka_unit_test(an_answer_of_a_form_may_be_reasoned_about),
        cmocka_unit_test(tools_may_be_called_instead),
        cmocka_unit_test(without_a_form_any_text_may_come),
        cmocka_unit_test(many_tools_share_the_work_of_one_request),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
