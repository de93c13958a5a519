/* The names of the formats, what the templates of each have, and which tokens they need. */
#include "server/output/output_parser.h"

#include <string.h>

struct format_name {
    const char *name;
    int format;
};

/* "none" is a name too. A form's first name is the one it is shown by; vLLM has several for some. */
static const struct format_name tool_names[] = {
    {"none", TOOL_CALL_FORMAT_NONE},
    {"hermes", TOOL_CALL_FORMAT_HERMES},
    {"llama3_json", TOOL_CALL_FORMAT_LLAMA3_JSON},
    {"mistral", TOOL_CALL_FORMAT_MISTRAL},
    {"qwen3_coder", TOOL_CALL_FORMAT_QWEN3_CODER},
    {"qwen3_xml", TOOL_CALL_FORMAT_QWEN3_CODER},
    {"openai", TOOL_CALL_FORMAT_HARMONY},
    {"glm45", TOOL_CALL_FORMAT_GLM45},
    {"glm47", TOOL_CALL_FORMAT_GLM45},
};
static const struct format_name reasoning_names[] = {
    {"none", REASONING_FORMAT_NONE},
    {"think", REASONING_FORMAT_THINK},
    {"deepseek_r1", REASONING_FORMAT_THINK},
    {"qwen3", REASONING_FORMAT_THINK},
    {"glm45", REASONING_FORMAT_THINK},
    {"deepseek_v3", REASONING_FORMAT_THINK},
    {"openai_gptoss", REASONING_FORMAT_HARMONY},
};

#define HARMONY_CHANNEL "<|channel|>commentary"

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

/* Three forms have the same marker; what stands between shows in the template. */
static enum tool_call_format format_of_tool_call_tag(const char *text) {
    if (has(text, "<function="))
        return TOOL_CALL_FORMAT_QWEN3_CODER;
    return has(text, "<arg_key>") ? TOOL_CALL_FORMAT_GLM45 : TOOL_CALL_FORMAT_HERMES;
}

static bool is_llama3(const char *text) {
    return has(text, "\"parameters\"") && (has(text, "<|python_tag|>") || has(text, "ipython"));
}

enum tool_call_format tool_call_format_of_template(const char *chat_template) {
    if (has(chat_template, "[TOOL_CALLS]"))
        return TOOL_CALL_FORMAT_MISTRAL;
    if (has(chat_template, HARMONY_CHANNEL))
        return TOOL_CALL_FORMAT_HARMONY;
    if (has(chat_template, "<tool_call>"))
        return format_of_tool_call_tag(chat_template);
    return is_llama3(chat_template) ? TOOL_CALL_FORMAT_LLAMA3_JSON : TOOL_CALL_FORMAT_NONE;
}

enum reasoning_format reasoning_format_of_template(const char *chat_template) {
    if (has(chat_template, HARMONY_CHANNEL))
        return REASONING_FORMAT_HARMONY;
    bool thinks = has(chat_template, "<think>") || has(chat_template, "</think>");
    return thinks ? REASONING_FORMAT_THINK : REASONING_FORMAT_NONE;
}

bool tool_call_format_needs_special(enum tool_call_format format) {
    return format == TOOL_CALL_FORMAT_LLAMA3_JSON || format == TOOL_CALL_FORMAT_MISTRAL ||
           format == TOOL_CALL_FORMAT_HARMONY;
}

bool tool_call_format_has_tag(enum tool_call_format format) {
    return format == TOOL_CALL_FORMAT_HERMES || format == TOOL_CALL_FORMAT_QWEN3_CODER ||
           format == TOOL_CALL_FORMAT_GLM45;
}
