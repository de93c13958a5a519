/* Parses content with tool calls, byte by byte: the part that all tool call formats share. Content
 * is searched for the format's marker. After it the format reads, and its input is held until it is
 * a complete tool call; if it is not one, all of it is content. A call longer than
 * TEXT_MARKER_MAX_HELD_BYTES, or one that a grammar writes, is released while it is read. White
 * space around tool calls belongs to them. */
#ifndef QUIRE_SERVER_OUTPUT_TOOL_PARSER_H
#define QUIRE_SERVER_OUTPUT_TOOL_PARSER_H

#include "server/output/python_literal.h"
#include "server/output/tool_call.h"
#include "server/output/tool_members.h"
#include "server/output/text_marker.h"

#define TOOL_KEY_MAX_BYTES 1024 /* of a non-JSON argument name; longer: not a call */

/* The result of the format's push of a byte. */
enum tool_step {
    TOOL_MORE,
    TOOL_AGAIN,      /* the state is another one: the byte is pushed again */
    TOOL_END,        /* the byte is the last of the tool calls: content follows */
    TOOL_END_BEFORE, /* the tool calls are over: what followed them and the byte are content again
                      */
    TOOL_BAD,        /* not a tool call: what is held is content, and the byte is content again */
};

struct tool_parser;
struct tool_tags;
struct tool_sections;

struct tool_format {
    const char *marker;       /* opens tool calls anywhere in the content */
    const char *short_marker; /* opens them too; NULL: none */
    char opens_bare; /* this byte opens them too, at the beginning of the content; '\0': none */
    bool takes_bare; /* calls may come without markers: tool_bare.c */
    const char *arguments_key; /* key of their arguments; NULL: any key of tool_call.h */
    /* Called after the marker; a bare byte that opens is the first that push gets. */
    void (*begin)(struct tool_parser *parser);
    enum tool_step (*push)(struct tool_parser *parser, char byte);
    /* The model ends its text: completes a call that lacks only its closing characters, and returns
     * whether there was one. NULL: there never is one. */
    bool (*finish)(struct tool_parser *parser);
    const struct tool_tags *tags;         /* of tool_tags.c */
    const struct tool_sections *sections; /* of tool_sections.c */
    const char *end; /* closes tool calls; of tool_list.c and tool_pythonic.c */
};

extern const struct tool_format tool_hermes_format, tool_llama3_format, tool_mistral_format,
    tool_qwen3_coder_format, tool_glm_format, tool_deepseek_format, tool_kimi_k2_format,
    tool_granite_format, tool_cohere_format, tool_pythonic_format, tool_granite_20b_format,
    tool_bare_format;

/* Returns NULL if the format's calls are read elsewhere, or it is NONE. */
const struct tool_format *tool_format_of(enum tool_call_format format);

/* The state of tool_bare.c. */
struct tool_bare {
    size_t length; /* of the ticks, or the language */
    bool in_fence, in_list;
};

#define TOOL_TAIL_BYTES 320 /* of a possible end of an argument's value: tool_tags.c */

struct tool_parser {
    const struct tool_format *format; /* NULL: all is content */
    const struct tool_format *reader; /* of the tool calls: the format, or tool_bare_format */
    struct tool_call_sink sink;
    bool in_tool_calls;        /* the reader reads */
    bool drops_held;           /* set by the format: what is held up to this byte is markers */
    bool between_tool_calls;   /* set by the format: what is held belongs to no call */
    bool skips_space;          /* only white space since a call, or since the reasoning */
    bool has_content;          /* there was content other than white space */
    bool failed;               /* memory was short */
    const char *bare_names;    /* borrowed: as in output_parser_config */
    int num_bare_names;        /* 0: no call stands without markers */
    struct text_marker marker; /* unused without a format */
    struct byte_buffer held;   /* since the marker's beginning or the last call's end */

    /* State of the readers: */
    int state;
    struct tool_call_object object;
    const char *expected; /* what is left of a literal */
    char name[OUTPUT_MAX_TOOL_NAME_BYTES];
    size_t name_length;
    struct text parameter_types; /* borrowed: tool_members.h */
    struct tool_members members;
    struct byte_buffer key;     /* an argument's name */
    char tail[TOOL_TAIL_BYTES]; /* of an argument's value: may be its end */
    size_t tail_length;
    bool is_short; /* the format's short marker opened the tool calls */
    struct tool_bare bare;
    struct python_literal literal; /* an argument's value */
};

void tool_parser_init(struct tool_parser *parser, const struct tool_format *format,
                      struct output_parts *parts);
void tool_parser_finish(struct tool_parser *parser);
void tool_parser_push(struct tool_parser *parser, char byte);
/* Releases what is held: the text has ended. */
void tool_parser_end(struct tool_parser *parser, bool is_cut);

#endif
