/* Separates a model's reasoning from its answer, byte by byte: text between the format's markers
 * (<think>...</think>) at the beginning is reasoning, what follows is content. Without the markers
 * all is content. */
#ifndef QUIRE_SERVER_OUTPUT_REASONING_PARSER_H
#define QUIRE_SERVER_OUTPUT_REASONING_PARSER_H

#include "server/output/tool_parser.h"

/* Removes the markers that Cohere's models put around an answer, byte by byte:
 * <|START_RESPONSE|>...<|END_RESPONSE|>, or with TEXT for RESPONSE. Zeroed: nothing received. */
struct answer_frame {
    char held[24]; /* the beginning of a marker */
    size_t length;
};

/* Removes the tags that Granite 3.3 puts around the answer after its reasoning, byte by byte:
 * <response>...</response>. The first must be at the answer's beginning and the last at its end:
 * anywhere else they are part of its text. */
enum response_frame_state {
    RESPONSE_FRAME_START,
    RESPONSE_FRAME_INSIDE,
    RESPONSE_FRAME_ENDED, /* unless more than white space follows */
    RESPONSE_FRAME_NONE,  /* the first tag is missing */
};

struct response_frame {
    enum response_frame_state state;
    struct text_marker marker; /* the first tag, then the last */
    struct byte_buffer end;    /* the last tag, and the white space around it */
};

enum reasoning_state {
    REASONING_START, /* only white space and the beginning of the first marker so far */
    REASONING_INSIDE,
    REASONING_OVER, /* reasoning has ended, or there is none */
};

struct reasoning_parser {
    enum reasoning_state state;
    bool is_open;               /* the prompt has opened the reasoning; its marker may come again */
    bool skips_space;           /* of the reasoning's beginning */
    struct output_parts *parts; /* borrowed */
    struct tool_parser *content; /* borrowed */
    const char *end;             /* the second marker */
    struct text_marker marker;   /* the first, then the second */
    bool has_frame;              /* the answer is enclosed in the markers that frame removes */
    struct answer_frame frame;
    bool has_response; /* the answer after the reasoning is enclosed in the tags that response
                        * removes
                        */
    struct response_frame response;
};

void reasoning_parser_init(struct reasoning_parser *parser,
                           const struct output_parser_config *config, struct output_parts *parts,
                           struct tool_parser *content);
void reasoning_parser_finish(struct reasoning_parser *parser);
void reasoning_parser_push(struct reasoning_parser *parser, char byte);
/* Releases what is held: the text has ended. */
void reasoning_parser_end(struct reasoning_parser *parser, bool is_cut);

#endif
