#include "server/output/response_frame.h"

void response_frame_init(struct response_frame *frame) {
    *frame = (struct response_frame){0};
    text_marker_init(&frame->marker, "<response>");
}

void response_frame_finish(struct response_frame *frame) {
    text_marker_finish(&frame->marker);
    byte_buffer_finish(&frame->end);
}

static void pass_on(struct byte_buffer *held, size_t length, struct tool_parser *content) {
    content->failed = content->failed || held->failed;
    for (size_t i = 0; i < length; i++)
        tool_parser_push(content, held->data[i]);
    byte_buffer_consume(held, length);
}

static void push_start(struct response_frame *frame, char byte, struct tool_parser *content) {
    size_t num_text;
    if (text_marker_push(&frame->marker, byte, &num_text)) {
        text_marker_finish(&frame->marker);
        text_marker_init(&frame->marker, "</response>");
        frame->state = RESPONSE_FRAME_INSIDE;
    } else if (num_text > 0) {
        pass_on(&frame->marker.held, frame->marker.held.length, content);
        frame->state = RESPONSE_FRAME_NONE;
    }
}

static void push_inside(struct response_frame *frame, char byte, struct tool_parser *content) {
    struct text_marker *marker = &frame->marker;
    size_t num_text;
    if (text_marker_push(marker, byte, &num_text)) {
        byte_buffer_append(&frame->end, marker->held.data, marker->held.length);
        text_marker_reset(marker);
        frame->state = RESPONSE_FRAME_ENDED;
    } else {
        pass_on(&marker->held, num_text, content);
    }
}

void response_frame_push(struct response_frame *frame, char byte, struct tool_parser *content) {
    switch (frame->state) {
    case RESPONSE_FRAME_START:
        push_start(frame, byte, content);
        break;
    case RESPONSE_FRAME_ENDED:
        if (text_is_space(byte) && frame->end.length < TEXT_MARKER_MAX_HELD_BYTES) {
            byte_buffer_append(&frame->end, &byte, 1);
            break;
        }
        pass_on(&frame->end, frame->end.length, content);
        frame->state = RESPONSE_FRAME_INSIDE;
        push_inside(frame, byte, content);
        break;
    case RESPONSE_FRAME_INSIDE:
        push_inside(frame, byte, content);
        break;
    case RESPONSE_FRAME_NONE:
        tool_parser_push(content, byte);
        break;
    }
    content->failed = content->failed || frame->marker.held.failed || frame->end.failed;
}

void response_frame_end(struct response_frame *frame, struct tool_parser *content) {
    if (frame->state != RESPONSE_FRAME_ENDED)
        pass_on(&frame->marker.held, frame->marker.held.length, content);
}
