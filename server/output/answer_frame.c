#include "server/output/answer_frame.h"

void answer_frame_end(struct answer_frame *frame, struct tool_parser *content) {
    for (size_t i = 0; i < frame->length; i++)
        tool_parser_push(content, frame->held[i]);
    frame->length = 0;
}

/* A '<' begins each marker and is in none of them again. */
void answer_frame_push(struct answer_frame *frame, char byte, struct tool_parser *content) {
    static const char *const markers[] = {"<|START_RESPONSE|>", "<|END_RESPONSE|>",
                                          "<|START_TEXT|>", "<|END_TEXT|>"};
    if (byte == '<')
        answer_frame_end(frame, content);
    frame->held[frame->length++] = byte;
    for (size_t i = 0; i < sizeof(markers) / sizeof(markers[0]); i++) {
        if (strncmp(markers[i], frame->held, frame->length) != 0)
            continue;
        if (markers[i][frame->length] == '\0')
            frame->length = 0;
        return;
    }
    answer_frame_end(frame, content);
}
