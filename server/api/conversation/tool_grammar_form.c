#include "server/api/conversation/tool_grammar_form.h"

#include "server/output/tool_sections.h"

#include <string.h>

static grammar_node literal(const struct tool_grammar_form *form, const char *text) {
    return grammar_literal(form->builder, text, strlen(text));
}

int32_t tool_grammar_control_token(const struct tokenizer *tokenizer, const char *name) {
    for (int32_t token = 0; token < tokenizer_vocab_size(tokenizer); token++) {
        struct text piece = tokenizer_piece(tokenizer, token);
        if (tokenizer_is_special(tokenizer, token) && piece.length == strlen(name) &&
            memcmp(piece.data, name, piece.length) == 0)
            return token;
    }
    return -1;
}

grammar_node tool_grammar_marker(struct grammar_builder *builder, const struct tokenizer *tokenizer,
                                 const char *name) {
    int32_t token = tool_grammar_control_token(tokenizer, name);
    return token >= 0 ? grammar_token(builder, token)
                      : grammar_literal(builder, name, strlen(name));
}

/* Places in `markers`. */
enum { ANSWER_BEGIN, ANSWER_END, CALL_BEGIN, SEPARATOR, CALL_END };

/* The names of a format's markers; NULL: it has none in that place. */
struct marker_names {
    const char *names[TOOL_GRAMMAR_MAX_MARKERS];
};

static struct marker_names names_of(enum tool_call_format format) {
    const struct tool_sections *sections = tool_sections_of(format);
    if (sections != NULL)
        return (struct marker_names){{tool_call_format_marker(format), sections->section_end,
                                      sections->call_begin, sections->separator,
                                      sections->call_end}};
    switch (format) {
    case TOOL_CALL_FORMAT_QWEN3_CODER:
    case TOOL_CALL_FORMAT_GLM45:
        return (struct marker_names){{[CALL_BEGIN] = "<tool_call>", [CALL_END] = "</tool_call>"}};
    case TOOL_CALL_FORMAT_MISTRAL:
        return (struct marker_names){{[ANSWER_BEGIN] = "[TOOL_CALLS]", [SEPARATOR] = "[ARGS]"}};
    case TOOL_CALL_FORMAT_GRANITE:
        return (struct marker_names){{[ANSWER_BEGIN] = "<|tool_call|>"}};
    case TOOL_CALL_FORMAT_GRANITE_20B:
        return (struct marker_names){{[CALL_BEGIN] = "<function_call>"}};
    case TOOL_CALL_FORMAT_COHERE:
        return (struct marker_names){
            {[ANSWER_BEGIN] = "<|START_ACTION|>", [ANSWER_END] = "<|END_ACTION|>"}};
    case TOOL_CALL_FORMAT_HARMONY:
        return (struct marker_names){{[CALL_BEGIN] = "<|channel|>",
                                      [SEPARATOR] = "<|constrain|>",
                                      [CALL_END] = "<|message|>"}};
    case TOOL_CALL_FORMAT_NONE:
    case TOOL_CALL_FORMAT_HERMES:
    case TOOL_CALL_FORMAT_LLAMA3_JSON:
    case TOOL_CALL_FORMAT_DEEPSEEK_V3:
    case TOOL_CALL_FORMAT_DEEPSEEK_V31:
    case TOOL_CALL_FORMAT_KIMI_K2:
    case TOOL_CALL_FORMAT_PYTHONIC:
        break;
    }
    return (struct marker_names){{NULL}};
}

void tool_grammar_form_init(struct tool_grammar_form *form, struct grammar_builder *builder,
                            const struct tokenizer *tokenizer, enum tool_call_format format) {
    struct marker_names markers = names_of(format);
    *form = (struct tool_grammar_form){.builder = builder, .format = format};
    for (int i = 0; i < TOOL_GRAMMAR_MAX_MARKERS; i++)
        form->markers[i] = markers.names[i] != NULL
                               ? tool_grammar_marker(builder, tokenizer, markers.names[i])
                               : literal(form, "");
    form->has_args_token =
        format == TOOL_CALL_FORMAT_MISTRAL && tool_grammar_control_token(tokenizer, "[ARGS]") >= 0;
}

const struct argument_form *tool_grammar_argument_form(enum tool_call_format format) {
    static const struct argument_form qwen3_coder = {.key_begin = "<parameter=",
                                                     .key_end = ">\n",
                                                     .feed = "\n",
                                                     .value_end = "</parameter>",
                                                     .behind = "\n",
                                                     .separator = "",
                                                     .not_in_keys = "<>=\n"};
    static const struct argument_form glm = {.key_begin = "<arg_key>",
                                             .key_end = "</arg_key>\n<arg_value>",
                                             .feed = "",
                                             .value_end = "</arg_value>",
                                             .behind = "\n",
                                             .separator = "",
                                             .not_in_keys = "<>=\n"};
    static const struct argument_form pythonic = {.key_begin = "",
                                                  .key_end = "=",
                                                  .feed = "",
                                                  .value_end = "",
                                                  .behind = "",
                                                  .separator = ", ",
                                                  .is_python = true,
                                                  .not_in_keys =
                                                      "\t\n\r !\"#%&'()*+,;<=>?@[\\]^`{|}~"};
    if (format == TOOL_CALL_FORMAT_QWEN3_CODER)
        return &qwen3_coder;
    if (format == TOOL_CALL_FORMAT_GLM45)
        return &glm;
    return format == TOOL_CALL_FORMAT_PYTHONIC ? &pythonic : NULL;
}

/* Returns {"name": "f", "arguments": {...}}, where `front` and `key` may be other words. */
static grammar_node object(const struct tool_grammar_form *form, const char *front,
                           const char *name, const char *key, grammar_node arguments) {
    grammar_node items[] = {literal(form, front), literal(form, name),   literal(form, "\", \""),
                            literal(form, key),   literal(form, "\": "), arguments,
                            literal(form, "}")};
    return grammar_sequence(form->builder, items, 7);
}

static grammar_node number(const struct tool_grammar_form *form) {
    const struct character_range digits = {'0', '9'};
    return grammar_repeat(form->builder, grammar_characters(form->builder, &digits, 1, false), 1,
                          3);
}

static grammar_node cohere_call(const struct tool_grammar_form *form, const char *name,
                                grammar_node arguments) {
    grammar_node items[] = {literal(form, "\n    {\"tool_call_id\": \""), number(form),
                            object(form, "\", \"tool_name\": \"", name, "parameters", arguments)};
    return grammar_sequence(form->builder, items, 3);
}

/* Returns a call whose parts are between markers. */
static grammar_node marked_call(const struct tool_grammar_form *form, const char *front,
                                const char *name, const char *behind, grammar_node arguments,
                                const char *end) {
    grammar_node items[] = {form->markers[CALL_BEGIN],
                            literal(form, front),
                            literal(form, name),
                            literal(form, behind),
                            arguments,
                            literal(form, end),
                            form->markers[CALL_END]};
    return grammar_sequence(form->builder, items, 7);
}

static grammar_node behind_separator(const struct tool_grammar_form *form, const char *text,
                                     grammar_node arguments) {
    grammar_node items[] = {form->markers[SEPARATOR], literal(form, text), arguments};
    return grammar_sequence(form->builder, items, 3);
}

/* Returns function<separator>f, a line feed and a fence with the arguments. */
static grammar_node fenced_call(const struct tool_grammar_form *form, const char *name,
                                grammar_node arguments) {
    grammar_node items[] = {literal(form, name), literal(form, "\n```json\n"), arguments};
    grammar_node behind = behind_separator(form, "", grammar_sequence(form->builder, items, 3));
    return marked_call(form, "", "function", "", behind, "\n```");
}

static grammar_node kimi_call(const struct tool_grammar_form *form, const char *name,
                              grammar_node arguments) {
    grammar_node items[] = {number(form), behind_separator(form, "", arguments)};
    return marked_call(form, "functions.", name, ":", grammar_sequence(form->builder, items, 2),
                       "");
}

static grammar_node harmony_call(const struct tool_grammar_form *form, const char *name,
                                 grammar_node arguments) {
    grammar_node items[] = {form->markers[CALL_BEGIN],
                            literal(form, "commentary to=functions."),
                            literal(form, name),
                            literal(form, " "),
                            behind_separator(form, "json", form->markers[CALL_END]),
                            arguments};
    return grammar_sequence(form->builder, items, 6);
}

static grammar_node mistral_call(const struct tool_grammar_form *form, const char *name,
                                 grammar_node arguments) {
    if (!form->has_args_token)
        return object(form, "{\"name\": \"", name, "arguments", arguments);
    grammar_node items[] = {form->markers[ANSWER_BEGIN], literal(form, name),
                            form->markers[SEPARATOR], arguments};
    return grammar_sequence(form->builder, items, 4);
}

grammar_node tool_grammar_form_call(const struct tool_grammar_form *form, const char *name,
                                    grammar_node arguments) {
    switch (form->format) {
    case TOOL_CALL_FORMAT_QWEN3_CODER:
        return marked_call(form, "\n<function=", name, ">\n", arguments, "</function>\n");
    case TOOL_CALL_FORMAT_GLM45:
        return marked_call(form, "", name, "\n", arguments, "");
    case TOOL_CALL_FORMAT_DEEPSEEK_V3:
        return fenced_call(form, name, arguments);
    case TOOL_CALL_FORMAT_DEEPSEEK_V31:
        return marked_call(form, "", name, "", behind_separator(form, "", arguments), "");
    case TOOL_CALL_FORMAT_KIMI_K2:
        return kimi_call(form, name, arguments);
    case TOOL_CALL_FORMAT_COHERE:
        return cohere_call(form, name, arguments);
    case TOOL_CALL_FORMAT_HARMONY:
        return harmony_call(form, name, arguments);
    case TOOL_CALL_FORMAT_MISTRAL:
        return mistral_call(form, name, arguments);
    case TOOL_CALL_FORMAT_LLAMA3_JSON:
        return object(form, "{\"name\": \"", name, "parameters", arguments);
    case TOOL_CALL_FORMAT_GRANITE:
        return object(form, "{\"name\": \"", name, "arguments", arguments);
    case TOOL_CALL_FORMAT_GRANITE_20B:
        return marked_call(form, " {\"name\": \"", name, "\", \"arguments\": ", arguments, "}");
    case TOOL_CALL_FORMAT_PYTHONIC:
        return marked_call(form, "", name, "(", arguments, ")");
    case TOOL_CALL_FORMAT_HERMES:
    case TOOL_CALL_FORMAT_NONE:
        break;
    }
    grammar_node items[] = {literal(form, "<tool_call>\n"),
                            object(form, "{\"name\": \"", name, "arguments", arguments),
                            literal(form, "\n</tool_call>")};
    return grammar_sequence(form->builder, items, 3);
}

/* A call ends the turn of gpt-oss, so there is only one. */
bool tool_grammar_form_has_rows(const struct tool_grammar_form *form) {
    return form->format != TOOL_CALL_FORMAT_HARMONY;
}

const char *tool_grammar_form_separator(const struct tool_grammar_form *form) {
    switch (form->format) {
    case TOOL_CALL_FORMAT_LLAMA3_JSON:
        return "; ";
    case TOOL_CALL_FORMAT_MISTRAL:
        return form->has_args_token ? "" : ", ";
    case TOOL_CALL_FORMAT_GRANITE:
    case TOOL_CALL_FORMAT_PYTHONIC:
        return ", ";
    case TOOL_CALL_FORMAT_COHERE:
        return ",";
    case TOOL_CALL_FORMAT_DEEPSEEK_V31:
    case TOOL_CALL_FORMAT_KIMI_K2:
    case TOOL_CALL_FORMAT_GRANITE_20B:
        return "";
    case TOOL_CALL_FORMAT_NONE:
    case TOOL_CALL_FORMAT_HERMES:
    case TOOL_CALL_FORMAT_QWEN3_CODER:
    case TOOL_CALL_FORMAT_DEEPSEEK_V3:
    case TOOL_CALL_FORMAT_HARMONY:
    case TOOL_CALL_FORMAT_GLM45:
        break;
    }
    return "\n";
}

static grammar_node framed(const struct tool_grammar_form *form, const char *open,
                           grammar_node calls, const char *close) {
    bool may_have_space = form->format == TOOL_CALL_FORMAT_MISTRAL;
    grammar_node items[] = {
        form->markers[ANSWER_BEGIN],
        grammar_repeat(form->builder, literal(form, " "), 0, may_have_space ? 1 : 0),
        literal(form, open),
        calls,
        literal(form, close),
        form->markers[ANSWER_END]};
    return grammar_sequence(form->builder, items, 6);
}

grammar_node tool_grammar_form_answer(const struct tool_grammar_form *form, grammar_node calls) {
    switch (form->format) {
    case TOOL_CALL_FORMAT_MISTRAL:
        return form->has_args_token ? calls : framed(form, "[", calls, "]");
    case TOOL_CALL_FORMAT_GRANITE:
    case TOOL_CALL_FORMAT_PYTHONIC:
        return framed(form, "[", calls, "]");
    case TOOL_CALL_FORMAT_COHERE:
        return framed(form, "[", calls, "\n]");
    case TOOL_CALL_FORMAT_DEEPSEEK_V3:
    case TOOL_CALL_FORMAT_DEEPSEEK_V31:
    case TOOL_CALL_FORMAT_KIMI_K2:
        return framed(form, "", calls, "");
    case TOOL_CALL_FORMAT_NONE:
    case TOOL_CALL_FORMAT_HERMES:
    case TOOL_CALL_FORMAT_LLAMA3_JSON:
    case TOOL_CALL_FORMAT_QWEN3_CODER:
    case TOOL_CALL_FORMAT_HARMONY:
    case TOOL_CALL_FORMAT_GLM45:
    case TOOL_CALL_FORMAT_GRANITE_20B:
        break;
    }
    return calls;
}
