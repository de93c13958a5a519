/* Splits the text of one choice into reasoning, content and tool calls, as it arrives.
 *
 * What is released after k bytes depends only on those k bytes: however the text is split into
 * pushes, the same reasoning, content, names and arguments come out at the same byte. Text that may
 * still turn out to be a marker or a tool call is held back until that is decided. The arguments of
 * a call are therefore complete JSON, unless the call is forced or longer than what is held (64
 * KiB). The text comes from a model, so it is not trusted: all of it comes out as one of the kinds,
 * and nothing is lost except markers, the white space around them and what a call contains besides
 * name and arguments.
 *
 * One parser per choice; one thread at a time. */
#ifndef QUIRE_SERVER_OUTPUT_OUTPUT_PARSER_H
#define QUIRE_SERVER_OUTPUT_OUTPUT_PARSER_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTPUT_MAX_TOOL_CALLS 128      /* of one choice; further ones are content */
#define OUTPUT_MAX_TOOL_NAME_BYTES 128 /* the bound of Anthropic's API and of MCP */

/* The format in which a family of models writes tool calls. */
enum tool_call_format {
    TOOL_CALL_FORMAT_NONE,
    TOOL_CALL_FORMAT_HERMES,      /* <tool_call>{"name":...,"arguments":{...}}</tool_call>: Hermes,
                                     Qwen 2.5, Qwen 3 */
    TOOL_CALL_FORMAT_LLAMA3_JSON, /* [<|python_tag|>]{"name":...,"parameters":{...}}, more after ";"
                                   */
    TOOL_CALL_FORMAT_MISTRAL,     /* [TOOL_CALLS][{"name":...,"arguments":{...}}, ...] and the newer
                                     [TOOL_CALLS]name[ARGS]{...} */
    TOOL_CALL_FORMAT_QWEN3_CODER, /* <tool_call><function=name><parameter=key>value</parameter>...
                                   */
    TOOL_CALL_FORMAT_DEEPSEEK_V3, /* tool_sections.c, V3's and R1's */
    TOOL_CALL_FORMAT_DEEPSEEK_V31, /* the same, V3.1's */
    TOOL_CALL_FORMAT_KIMI_K2,      /* the same with functions.name:0 */
    TOOL_CALL_FORMAT_GRANITE,      /* <|tool_call|>[{"name":...,"arguments":{...}}, ...] */
    TOOL_CALL_FORMAT_COHERE,       /* <|START_ACTION|>[{"tool_name":...,"parameters":{...}}, ...] */
    TOOL_CALL_FORMAT_HARMONY,      /* gpt-oss: harmony_parser.h */
    TOOL_CALL_FORMAT_GLM45,        /* <tool_call>name<arg_key>key</arg_key><arg_value>value... */
    TOOL_CALL_FORMAT_PYTHONIC,     /* [name(key=value, ...), ...]: Llama 3.2 and 4, ToolACE */
    TOOL_CALL_FORMAT_GRANITE_20B,  /* <function_call> {"name":...,"arguments":{...}}, once a call */
};
#define TOOL_CALL_FORMAT_LAST TOOL_CALL_FORMAT_GRANITE_20B

/* The format in which it writes its reasoning before the answer. */
enum reasoning_format {
    REASONING_FORMAT_NONE,
    REASONING_FORMAT_THINK,   /* <think>...</think>; also if the end of the prompt has opened it */
    REASONING_FORMAT_GRANITE, /* Here is my thought process:... Here is my response: */
    REASONING_FORMAT_COHERE,  /* <|START_THINKING|>...<|END_THINKING|>; around the answer see
                              reasoning_parser.h */
    REASONING_FORMAT_HARMONY, /* gpt-oss: harmony_parser.h */
    REASONING_FORMAT_GRANITE_33, /* like THINK; around the answer see reasoning_parser.h */
};

/* Find a format by its name in --tool-call-parser or --reasoning-parser; return false if
 * unknown. */
bool tool_call_format_find(const char *name, enum tool_call_format *out);
bool reasoning_format_find(const char *name, enum reasoning_format *out);
const char *tool_call_format_name(enum tool_call_format format);
const char *reasoning_format_name(enum reasoning_format format);
/* Return the format that a chat template tells its model to use. */
enum tool_call_format tool_call_format_of_template(const char *chat_template);
enum reasoning_format reasoning_format_of_template(const char *chat_template);
/* Returns whether the format's markers are control tokens, which must then be left in the text. */
bool tool_call_format_needs_special(enum tool_call_format format);
/* Returns the marker that opens its calls, a control token in some vocabularies; NULL: it has no
 * single one. */
const char *tool_call_format_marker(enum tool_call_format format);

/* The markers around reasoning. */
struct reasoning_markers {
    const char *begin, *end;
};
/* Returns NULL for REASONING_FORMAT_NONE. */
const struct reasoning_markers *reasoning_format_markers(enum reasoning_format format);

struct output_parser_config {
    enum tool_call_format tools; /* NONE when the request has no tools, or forbids calls */
    enum reasoning_format reasoning;
    bool begins_in_reasoning; /* the prompt ended inside the markers */
    /* The tools that may be called; a call of another one is content. Consecutive names, each with
     * its NUL; borrowed: they outlive the parser. None: any tool. */
    const char *allowed_names;
    int num_allowed_names;
    /* In the same form, the tools whose calls may come without markers at the end of the text, if
     * the format allows that. None: no call may. */
    const char *bare_names;
    int num_bare_names;
    bool is_forced;              /* a grammar writes the calls: they are released as they come */
    struct text parameter_types; /* of the tools: tool_members.h; borrowed as the names are */
    int32_t max_tool_calls;      /* further ones are content; 0: OUTPUT_MAX_TOOL_CALLS */
};

/* A part of a choice's output. Strings live until the next call of one of the parser's
 * functions. */
enum output_part_kind {
    OUTPUT_PART_REASONING,      /* text: more of it */
    OUTPUT_PART_CONTENT,        /* text: more of it */
    OUTPUT_PART_TOOL_CALL,      /* text: the name of call number tool_index, which begins */
    OUTPUT_PART_TOOL_ARGUMENTS, /* text: more of the arguments of call number tool_index: JSON as
                                   written by the model, or converted from what it writes */
};

struct output_part {
    enum output_part_kind kind;
    int32_t tool_index;
    const char *text;
    size_t length;
    bool is_custom; /* initially false; the reader sets it for a custom tool */
};

/* Whether the text ends with a push. */
enum output_end {
    OUTPUT_GOES_ON,
    OUTPUT_ENDS,   /* the model ended it: a tool call may lack its closing characters */
    OUTPUT_IS_CUT, /* at a length, a stop string, ...: an incomplete tool call does not count */
};

struct output_parser;

/* NULL when memory is short. */
struct output_parser *output_parser_create(const struct output_parser_config *config);
void output_parser_destroy(struct output_parser *parser); /* accepts NULL */
/* Parses text (whole UTF-8 characters; may be empty), and releases what is held if the text ends.
 * Returns -1 when memory is short: the choice cannot continue. */
int output_parser_push(struct output_parser *parser, const char *text, size_t length,
                       enum output_end how);
/* Takes the next part that the last push released, in order; false when there are no more. */
bool output_parser_next(struct output_parser *parser, struct output_part *out);
/* Returns the number of tool calls begun so far. */
int32_t output_parser_num_tool_calls(const struct output_parser *parser);
/* Returns whether a tool call whose beginning was released turned out broken, or a later one was
 * cut off: the tool calls are not all that the model was about to request. */
bool output_parser_is_broken(const struct output_parser *parser);

#endif
