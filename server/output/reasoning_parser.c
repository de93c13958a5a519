#include "server/output/reasoning_parser.h"

/* --- Markers around an answer --- */

static void answer_frame_end(struct answer_frame *frame, struct tool_parser *content) {
    for (size_t i = 0; i < frame->length; i++)
        tool_parser_push(content, frame->held[i]);
    frame->length = 0;
}

/* A '<' begins each marker and is in none of them again. */
static void answer_frame_push(struct answer_frame *frame, char byte, struct tool_parser *content) {
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

/* --- The tags around an answer --- */

static void response_frame_init(struct response_frame *frame) {
    *frame = (struct response_frame){0};
    text_marker_init(&frame->marker, "<response>");
}

static void response_frame_finish(struct response_frame *frame) {
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

static void push_inside_frame(struct response_frame *frame, char byte,
                              struct tool_parser *content) {
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

static void response_frame_push(struct response_frame *frame, char byte,
                                struct tool_parser *content) {
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
        push_inside_frame(frame, byte, content);
        break;
    case RESPONSE_FRAME_INSIDE:
        push_inside_frame(frame, byte, content);
        break;
    case RESPONSE_FRAME_NONE:
        tool_parser_push(content, byte);
        break;
    }
    content->failed = content->failed || frame->marker.held.failed || frame->end.failed;
}

static void response_frame_end(struct response_frame *frame, struct tool_parser *content) {
    if (frame->state != RESPONSE_FRAME_ENDED)
        pass_on(&frame->marker.held, frame->marker.held.length, content);
}

void reasoning_parser_init(struct reasoning_parser *parser,
                           const struct output_parser_config *config, struct output_parts *parts,
                           struct tool_parser *content) {
    *parser = (struct reasoning_parser){.state = REASONING_OVER,
                                        .is_open = config->begins_in_reasoning,
                                        .skips_space = true,
                                        .parts = parts,
                                        .content = content};
    parser->has_frame =
        config->reasoning == REASONING_FORMAT_COHERE || config->tools == TOOL_CALL_FORMAT_COHERE;
    response_frame_init(&parser->response);
    const struct reasoning_markers *markers = reasoning_format_markers(config->reasoning);
    if (markers == NULL)
        return;
    parser->state = REASONING_START;
    parser->has_response = config->reasoning == REASONING_FORMAT_GRANITE_33;
    parser->end = markers->end;
    text_marker_init(&parser->marker, markers->begin);
}

void reasoning_parser_finish(struct reasoning_parser *parser) {
    text_marker_finish(&parser->marker);
    response_frame_finish(&parser->response);
}

static void enter_reasoning(struct reasoning_parser *parser) {
    parser->state = REASONING_INSIDE;
    text_marker_finish(&parser->marker);
    text_marker_init(&parser->marker, parser->end);
}

/* Gives what was held for the first marker, which is missing, to what follows it. */
static void decide(struct reasoning_parser *parser) {
    struct byte_buffer text = parser->marker.held;
    parser->marker.held = (struct byte_buffer){0};
    if (parser->is_open)
        enter_reasoning(parser);
    else {
        parser->state = REASONING_OVER;
        parser->has_response = false;
    }
    parser->content->failed = parser->content->failed || text.failed;
    for (size_t i = 0; i < text.length; i++)
        reasoning_parser_push(parser, text.data[i]);
    byte_buffer_finish(&text);
}

static void push_over(struct reasoning_parser *parser, char byte) {
    if (parser->has_frame)
        answer_frame_push(&parser->frame, byte, parser->content);
    else if (parser->has_response)
        response_frame_push(&parser->response, byte, parser->content);
    else
        tool_parser_push(parser->content, byte);
}

static void push_inside(struct reasoning_parser *parser, char byte) {
    struct text_marker *marker = &parser->marker;
    size_t num_text;
    if (parser->skips_space && marker->matched == 0 && text_is_space(byte))
        return;
    if (text_marker_push(marker, byte, &num_text)) {
        parser->state = REASONING_OVER;
        parser->content->skips_space = true;
        text_marker_reset(marker);
        return;
    }
    parser->skips_space = parser->skips_space && num_text == 0;
    output_parts_add(parser->parts, OUTPUT_PART_REASONING, 0, marker->held.data, num_text);
    byte_buffer_consume(&marker->held, num_text);
}

void reasoning_parser_push(struct reasoning_parser *parser, char byte) {
    size_t num_text;
    switch (parser->state) {
    case REASONING_START:
        if (text_marker_push(&parser->marker, byte, &num_text))
            enter_reasoning(parser);
        else if (num_text > 0)
            decide(parser);
        break;
    case REASONING_INSIDE:
        push_inside(parser, byte);
        break;
    case REASONING_OVER:
        push_over(parser, byte);
        break;
    }
    if (parser->marker.held.failed)
        parser->content->failed = true;
}

void reasoning_parser_end(struct reasoning_parser *parser, bool is_cut) {
    if (parser->state == REASONING_START)
        decide(parser);
    if (parser->state == REASONING_INSIDE)
        output_parts_add(parser->parts, OUTPUT_PART_REASONING, 0, parser->marker.held.data,
                         parser->marker.held.length);
    answer_frame_end(&parser->frame, parser->content);
    response_frame_end(&parser->response, parser->content);
    tool_parser_end(parser->content, is_cut);
}
