/* The names of the formats, what the templates of each have, and which tokens they need. */
#include "server/output/output_parser.h"

#include "server/output/tool_parser.h"

#include <string.h>

struct format_name {
    const char *name;
    int format;
};

/* "none" is a name too. A form's first name is the one it is shown by; vLLM has several for some.
 */
static const struct format_name tool_names[] = {
    {"none", TOOL_CALL_FORMAT_NONE},
    {"hermes", TOOL_CALL_FORMAT_HERMES},
    {"llama3_json", TOOL_CALL_FORMAT_LLAMA3_JSON},
    {"mistral", TOOL_CALL_FORMAT_MISTRAL},
    {"qwen3_coder", TOOL_CALL_FORMAT_QWEN3_CODER},
    {"qwen3_xml", TOOL_CALL_FORMAT_QWEN3_CODER},
    {"deepseek_v3", TOOL_CALL_FORMAT_DEEPSEEK_V3},
    {"deepseek_v31", TOOL_CALL_FORMAT_DEEPSEEK_V31},
    {"kimi_k2", TOOL_CALL_FORMAT_KIMI_K2},
    {"granite", TOOL_CALL_FORMAT_GRANITE},
    {"cohere", TOOL_CALL_FORMAT_COHERE},
    {"openai", TOOL_CALL_FORMAT_HARMONY},
    {"glm45", TOOL_CALL_FORMAT_GLM45},
    {"glm47", TOOL_CALL_FORMAT_GLM45},
    {"pythonic", TOOL_CALL_FORMAT_PYTHONIC},
    {"llama4_pythonic", TOOL_CALL_FORMAT_PYTHONIC},
    {"granite-20b-fc", TOOL_CALL_FORMAT_GRANITE_20B},
};
static const struct format_name reasoning_names[] = {
    {"none", REASONING_FORMAT_NONE},
    {"think", REASONING_FORMAT_THINK},
    {"deepseek_r1", REASONING_FORMAT_THINK},
    {"qwen3", REASONING_FORMAT_THINK},
    {"glm45", REASONING_FORMAT_THINK},
    {"deepseek_v3", REASONING_FORMAT_THINK},
    {"kimi_k2", REASONING_FORMAT_THINK},
    {"granite", REASONING_FORMAT_GRANITE},
    {"cohere", REASONING_FORMAT_COHERE},
    {"openai_gptoss", REASONING_FORMAT_HARMONY},
    {"granite33", REASONING_FORMAT_GRANITE_33},
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

/* Three forms have the same marker; what stands between shows in the template. */
static enum tool_call_format format_of_tool_call_tag(const char *text) {
    if (has(text, "<function="))
        return TOOL_CALL_FORMAT_QWEN3_CODER;
    return has(text, "<arg_key>") ? TOOL_CALL_FORMAT_GLM45 : TOOL_CALL_FORMAT_HERMES;
}

static bool is_llama3(const char *text) {
    return has(text, "\"parameters\"") && (has(text, "<|python_tag|>") || has(text, "ipython"));
}

/* DeepSeek V3 and R1 put the arguments into a fence of Markdown. */
static enum tool_call_format format_of_deepseek(const char *text) {
    return has(text, "```json") ? TOOL_CALL_FORMAT_DEEPSEEK_V3 : TOOL_CALL_FORMAT_DEEPSEEK_V31;
}

#define HARMONY_CHANNEL "<|channel|>commentary"

enum tool_call_format tool_call_format_of_template(const char *chat_template) {
    /* A marker that no other family's templates have. */
    static const struct {
        const char *marker;
        enum tool_call_format format;
    } families[] = {
        {"[TOOL_CALLS]", TOOL_CALL_FORMAT_MISTRAL},
        {HARMONY_CHANNEL, TOOL_CALL_FORMAT_HARMONY},
        {"<|tool_calls_section_begin|>", TOOL_CALL_FORMAT_KIMI_K2},
        {"<|START_ACTION|>", TOOL_CALL_FORMAT_COHERE},
        {"<|tool_call|>", TOOL_CALL_FORMAT_GRANITE},
        {"<function_call>", TOOL_CALL_FORMAT_GRANITE_20B},
        {"[func_name1(", TOOL_CALL_FORMAT_PYTHONIC},
    };
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (has(chat_template, families[i].marker))
            return families[i].format;
    if (has(chat_template, tool_call_format_marker(TOOL_CALL_FORMAT_DEEPSEEK_V3)))
        return format_of_deepseek(chat_template);
    if (has(chat_template, "<tool_call>"))
        return format_of_tool_call_tag(chat_template);
    return is_llama3(chat_template) ? TOOL_CALL_FORMAT_LLAMA3_JSON : TOOL_CALL_FORMAT_NONE;
}

enum reasoning_format reasoning_format_of_template(const char *chat_template) {
    if (has(chat_template, HARMONY_CHANNEL))
        return REASONING_FORMAT_HARMONY;
    if (has(chat_template, "<|START_THINKING|>"))
        return REASONING_FORMAT_COHERE;
    if (has(chat_template, "Here is my thought process:"))
        return REASONING_FORMAT_GRANITE;
    if (has(chat_template, "<think></think>") && has(chat_template, "<response></response>"))
        return REASONING_FORMAT_GRANITE_33;
    bool thinks = has(chat_template, "<think>") || has(chat_template, "</think>");
    return thinks ? REASONING_FORMAT_THINK : REASONING_FORMAT_NONE;
}

bool tool_call_format_needs_special(enum tool_call_format format) {
    return format == TOOL_CALL_FORMAT_LLAMA3_JSON || format == TOOL_CALL_FORMAT_MISTRAL ||
           format == TOOL_CALL_FORMAT_HARMONY || format == TOOL_CALL_FORMAT_COHERE;
}

const struct tool_format *tool_format_of(enum tool_call_format format) {
    switch (format) {
    case TOOL_CALL_FORMAT_HERMES:
        return &tool_hermes_format;
    case TOOL_CALL_FORMAT_LLAMA3_JSON:
        return &tool_llama3_format;
    case TOOL_CALL_FORMAT_MISTRAL:
        return &tool_mistral_format;
    case TOOL_CALL_FORMAT_QWEN3_CODER:
        return &tool_qwen3_coder_format;
    case TOOL_CALL_FORMAT_GLM45:
        return &tool_glm_format;
    case TOOL_CALL_FORMAT_DEEPSEEK_V3:
    case TOOL_CALL_FORMAT_DEEPSEEK_V31:
        return &tool_deepseek_format;
    case TOOL_CALL_FORMAT_KIMI_K2:
        return &tool_kimi_k2_format;
    case TOOL_CALL_FORMAT_GRANITE:
        return &tool_granite_format;
    case TOOL_CALL_FORMAT_COHERE:
        return &tool_cohere_format;
    case TOOL_CALL_FORMAT_PYTHONIC:
        return &tool_pythonic_format;
    case TOOL_CALL_FORMAT_GRANITE_20B:
        return &tool_granite_20b_format;
    case TOOL_CALL_FORMAT_HARMONY:
    case TOOL_CALL_FORMAT_NONE:
        break;
    }
    return NULL;
}

const char *tool_call_format_marker(enum tool_call_format format) {
    const struct tool_format *found = tool_format_of(format);
    return found != NULL ? found->marker : NULL;
}

const struct reasoning_markers *reasoning_format_markers(enum reasoning_format format) {
    static const struct reasoning_markers think = {"<think>", "</think>"};
    static const struct reasoning_markers granite = {"Here is my thought process:",
                                                     "Here is my response:"};
    static const struct reasoning_markers cohere = {"<|START_THINKING|>", "<|END_THINKING|>"};
    static const struct reasoning_markers harmony = {"<|channel|>analysis<|message|>", "<|end|>"};
    switch (format) {
    case REASONING_FORMAT_THINK:
    case REASONING_FORMAT_GRANITE_33:
        return &think;
    case REASONING_FORMAT_GRANITE:
        return &granite;
    case REASONING_FORMAT_COHERE:
        return &cohere;
    case REASONING_FORMAT_HARMONY:
        return &harmony;
    case REASONING_FORMAT_NONE:
        break;
    }
    return NULL;
}
