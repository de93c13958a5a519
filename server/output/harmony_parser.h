/* Parses OpenAI's harmony, the format of gpt-oss, byte by byte: an answer consists of several
 * messages, each for a channel. It replaces the reasoning parser and also reads the tool calls.
 *
 *     <|channel|>analysis<|message|>...<|end|>                                     reasoning
 *     <|start|>assistant<|channel|>commentary<|message|>...<|end|>                 content
 *     <|start|>assistant<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{...}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>...<|return|>                   content
 *
 * (cookbook.openai.com/articles/openai-harmony; the recipient may also come before the channel.) A
 * message for another recipient is content, including its header, or reasoning if it is in that
 * channel; text without a header is content. A line feed is put between two messages of the same
 * kind. */
#ifndef QUIRE_SERVER_OUTPUT_HARMONY_PARSER_H
#define QUIRE_SERVER_OUTPUT_HARMONY_PARSER_H

#include "server/output/tool_parser.h"

#define HARMONY_MAX_HEADER_BYTES 1024 /* longer is content */

enum harmony_state {
    HARMONY_START, /* before a message */
    HARMONY_HEADER,
    HARMONY_REASONING,
    HARMONY_CONTENT,
    HARMONY_CALL,       /* in a call's arguments, or before them */
    HARMONY_AFTER_CALL, /* after them */
};

struct harmony_parser {
    enum harmony_state state;
    bool reads_calls, reads_reasoning; /* if not, they are content */
    bool has_message[2];               /* some content, reasoning has been written */
    bool begins_message;               /* nothing of the message has been written */
    struct output_parts *parts;        /* borrowed */
    struct tool_parser *content;       /* borrowed */
    struct byte_buffer held;           /* a header, or what may be a marker */
    struct tool_call_object call;
};

void harmony_parser_init(struct harmony_parser *parser, const struct output_parser_config *config,
                         struct output_parts *parts, struct tool_parser *content);
void harmony_parser_finish(struct harmony_parser *parser);
void harmony_parser_push(struct harmony_parser *parser, char byte);
/* Releases what is held: the text has ended. */
void harmony_parser_end(struct harmony_parser *parser, bool is_cut);

#endif
