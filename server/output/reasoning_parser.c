#include "server/output/reasoning_parser.h"

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
