/* A pipeline that takes the text byte by byte: the reasoning parser writes reasoning and passes the
 * rest to the tool parser, which writes content and tool calls. As no stage sees where a push ends,
 * how the text is cut cannot matter. */
#include "server/output/output_parser.h"

#include "server/output/reasoning_parser.h"

#include <stdlib.h>
#include <string.h>

struct format_name {
    const char *name;
    int format;
};

/* "none" is a name too; vLLM has further names for the same form of reasoning. */
static const struct format_name tool_names[] = {
    {"none", TOOL_CALL_FORMAT_NONE},
    {"hermes", TOOL_CALL_FORMAT_HERMES},
    {"llama3_json", TOOL_CALL_FORMAT_LLAMA3_JSON},
    {"mistral", TOOL_CALL_FORMAT_MISTRAL},
};
static const struct format_name reasoning_names[] = {
    {"none", REASONING_FORMAT_NONE},
    {"think", REASONING_FORMAT_THINK},
    {"deepseek_r1", REASONING_FORMAT_THINK},
    {"qwen3", REASONING_FORMAT_THINK},
};

static const struct format_name *find(const struct format_name *names, size_t count,
                                      const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i].name, name) == 0)
            return &names[i];
    return NULL;
}

bool tool_call_format_find(const char *name, enum tool_call_format *out) {
    const struct format_name *found =
        find(tool_names, sizeof(tool_names) / sizeof(tool_names[0]), name);
    if (found != NULL)
        *out = (enum tool_call_format)found->format;
    return found != NULL;
}

bool reasoning_format_find(const char *name, enum reasoning_format *out) {
    const struct format_name *found =
        find(reasoning_names, sizeof(reasoning_names) / sizeof(reasoning_names[0]), name);
    if (found != NULL)
        *out = (enum reasoning_format)found->format;
    return found != NULL;
}

/* Returns the first of a format's names. */
static const char *name_of(const struct format_name *names, int format) {
    while (names->format != format)
        names++;
    return names->name;
}

const char *tool_call_format_name(enum tool_call_format format) {
    return name_of(tool_names, (int)format);
}

const char *reasoning_format_name(enum reasoning_format format) {
    return name_of(reasoning_names, (int)format);
}

static bool has(const char *text, const char *part) {
    return strstr(text, part) != NULL;
}

/* Leaves out Qwen3-Coder and GLM, which write no JSON between the same markers. */
static bool is_hermes(const char *text) {
    return has(text, "<tool_call>") && !has(text, "<function=") && !has(text, "<arg_key>");
}

static bool is_llama3(const char *text) {
    return has(text, "\"parameters\"") && (has(text, "<|python_tag|>") || has(text, "ipython"));
}

enum tool_call_format tool_call_format_of_template(const char *chat_template) {
    if (has(chat_template, "[TOOL_CALLS]"))
        return TOOL_CALL_FORMAT_MISTRAL;
    if (is_hermes(chat_template))
        return TOOL_CALL_FORMAT_HERMES;
    return is_llama3(chat_template) ? TOOL_CALL_FORMAT_LLAMA3_JSON : TOOL_CALL_FORMAT_NONE;
}

enum reasoning_format reasoning_format_of_template(const char *chat_template) {
    bool thinks = has(chat_template, "<think>") || has(chat_template, "</think>");
    return thinks ? REASONING_FORMAT_THINK : REASONING_FORMAT_NONE;
}

bool tool_call_format_needs_special(enum tool_call_format format) {
    return format == TOOL_CALL_FORMAT_LLAMA3_JSON || format == TOOL_CALL_FORMAT_MISTRAL;
}

struct output_parser {
    struct output_parts parts;
    struct reasoning_parser reasoning;
    struct tool_parser content;
};

static const struct tool_format *format_of(enum tool_call_format format) {
    switch (format) {
    case TOOL_CALL_FORMAT_HERMES:
        return &tool_hermes_format;
    case TOOL_CALL_FORMAT_LLAMA3_JSON:
        return &tool_llama3_format;
    case TOOL_CALL_FORMAT_MISTRAL:
        return &tool_mistral_format;
    case TOOL_CALL_FORMAT_NONE:
        break;
    }
    return NULL;
}

struct output_parser *output_parser_create(const struct output_parser_config *config) {
    struct output_parser *parser = calloc(1, sizeof(*parser));
    if (parser == NULL)
        return NULL;
    tool_parser_init(&parser->content, format_of(config->tools), &parser->parts);
    parser->content.sink.allowed_names = config->allowed_names;
    parser->content.sink.num_allowed_names = config->num_allowed_names;
    parser->content.sink.max_calls =
        config->max_tool_calls > 0 ? config->max_tool_calls : OUTPUT_MAX_TOOL_CALLS;
    reasoning_parser_init(&parser->reasoning, config, &parser->parts, &parser->content);
    return parser;
}

void output_parser_destroy(struct output_parser *parser) {
    if (parser == NULL)
        return;
    reasoning_parser_finish(&parser->reasoning);
    tool_parser_finish(&parser->content);
    output_parts_finish(&parser->parts);
    free(parser);
}

static bool has_failed(const struct output_parser *parser) {
    return parser->content.failed || output_parts_failed(&parser->parts);
}

int output_parser_push(struct output_parser *parser, const char *text, size_t length, bool is_end) {
    for (size_t i = 0; i < length && !has_failed(parser); i++)
        reasoning_parser_push(&parser->reasoning, text[i]);
    if (is_end && !has_failed(parser))
        reasoning_parser_end(&parser->reasoning);
    return has_failed(parser) ? -1 : 0;
}

bool output_parser_next(struct output_parser *parser, struct output_part *out) {
    return output_parts_take(&parser->parts, out);
}

int32_t output_parser_num_tool_calls(const struct output_parser *parser) {
    return parser->content.sink.num_calls;
}
