/* Takes out the tags that Granite 3.3 puts around the answer that follows its reasoning, byte by
 * byte: <response>...</response>. The first is the answer's beginning and the last its end:
 * anywhere else they are its text. */
#ifndef QUIRE_SERVER_OUTPUT_RESPONSE_FRAME_H
#define QUIRE_SERVER_OUTPUT_RESPONSE_FRAME_H

#include "server/output/tool_parser.h"

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

void response_frame_init(struct response_frame *frame);
void response_frame_finish(struct response_frame *frame);
/* Passes on what is no tag. Short memory shows in the content's parser. */
void response_frame_push(struct response_frame *frame, char byte, struct tool_parser *content);
/* Passes on what is held: nothing follows. */
void response_frame_end(struct response_frame *frame, struct tool_parser *content);

#endif
