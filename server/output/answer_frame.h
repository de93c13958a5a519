/* Takes out the markers that Cohere's models put around an answer, byte by byte:
 * <|START_RESPONSE|>...<|END_RESPONSE|>, or with TEXT for RESPONSE. */
#ifndef QUIRE_SERVER_OUTPUT_ANSWER_FRAME_H
#define QUIRE_SERVER_OUTPUT_ANSWER_FRAME_H

#include "server/output/tool_parser.h"

/* Zeroed: nothing has come. */
struct answer_frame {
    char held[24]; /* the beginning of a marker */
    size_t length;
};

/* Passes on what is no marker. */
void answer_frame_push(struct answer_frame *frame, char byte, struct tool_parser *content);
/* Passes on what is held: nothing follows. */
void answer_frame_end(struct answer_frame *frame, struct tool_parser *content);

#endif
