/* OpenAI's harmony, the form of gpt-oss, byte by byte: an answer of several messages, each for a
 * channel. It stands in the reasoning parser's place and reads the tool calls too.
 *
 *     <|channel|>analysis<|message|>...<|end|>                                     reasoning
 *     <|start|>assistant<|channel|>commentary<|message|>...<|end|>                 content
 *     <|start|>assistant<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{...}<|call|>
 *     <|start|>assistant<|channel|>final<|message|>...<|return|>                   content
 *
 * (cookbook.openai.com/articles/openai-harmony; the recipient may also stand in front of the
 * channel.) A message for another recipient is content with its header, or reasoning in the channel
 * of that; text without a header is content. A line feed is put between two messages of a kind. */
#ifndef QUIRE_SERVER_OUTPUT_HARMONY_PARSER_H
#define QUIRE_SERVER_OUTPUT_HARMONY_PARSER_H

#include "server/output/tool_parser.h"

#define HARMONY_MAX_HEADER_BYTES 1024 /* longer is content */

enum harmony_state {
    HARMONY_START, /* in front of a message */
    HARMONY_HEADER,
    HARMONY_REASONING,
    HARMONY_CONTENT,
    HARMONY_CALL,       /* in a call's arguments, or in front of them */
    HARMONY_AFTER_CALL, /* behind them */
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
/* Releases what is held: nothing follows. */
void harmony_parser_end(struct harmony_parser *parser, bool is_cut);

#endif
