#include "server/output/tool_parser.h"

void tool_parser_init(struct tool_parser *parser, const struct tool_format *format,
                      struct output_parts *parts) {
    *parser = (struct tool_parser){.format = format, .sink = {.parts = parts}};
    if (format != NULL)
        text_marker_init(&parser->marker, format->marker);
}

void tool_parser_finish(struct tool_parser *parser) {
    text_marker_finish(&parser->marker);
    byte_buffer_finish(&parser->held);
    tool_call_object_finish(&parser->object);
    tool_members_finish(&parser->members);
    byte_buffer_finish(&parser->key);
    text_marker_finish(&parser->value_end);
    python_literal_finish(&parser->literal);
}

static void add_content(struct tool_parser *parser, const char *text, size_t length) {
    size_t start = 0;
    while (start < length && text_is_space(text[start]))
        start++;
    if (start < length)
        parser->has_content = true;
    if (!parser->skips_space)
        start = 0;
    else if (start < length)
        parser->skips_space = false;
    if (start < length)
        output_parts_add(parser->sink.parts, OUTPUT_PART_CONTENT, 0, text + start, length - start);
}

static void drop_held(struct tool_parser *parser) {
    parser->failed = parser->failed || parser->held.failed;
    byte_buffer_clear(&parser->held);
}

/* Takes over what the marker's matcher holds. */
static void enter_tool_calls(struct tool_parser *parser) {
    struct text_marker *marker = &parser->marker;
    parser->failed = parser->failed || marker->held.failed;
    byte_buffer_append(&parser->held, marker->held.data, marker->held.length);
    text_marker_reset(marker);
    parser->in_tool_calls = true;
    parser->between_tool_calls = false;
    parser->in_markup = false;
    parser->format->begin(parser);
}

static void leave_tool_calls(struct tool_parser *parser) {
    parser->in_tool_calls = false;
    if (parser->format->leave != NULL)
        parser->format->leave(parser);
    if (parser->sink.is_open)
        tool_call_sink_end(&parser->sink);
}

/* Makes content of what is held, which was no tool call. */
static void give_up_tool_call(struct tool_parser *parser) {
    leave_tool_calls(parser);
    add_content(parser, parser->held.data, parser->held.length);
    drop_held(parser);
}

static void push_content(struct tool_parser *parser, char byte);

/* Ends, as what is held is less than a tool call. */
static void read_held_again(struct tool_parser *parser) {
    struct byte_buffer text = parser->held;
    parser->held = (struct byte_buffer){0};
    parser->failed = parser->failed || text.failed;
    leave_tool_calls(parser);
    for (size_t i = 0; i < text.length; i++)
        push_content(parser, text.data[i]);
    byte_buffer_finish(&text);
}

static void push_in_tool_calls(struct tool_parser *parser, char byte) {
    bool is_out = parser->sink.is_open;
    int32_t num_calls = parser->sink.num_calls;
    enum tool_step step = parser->format->push(parser, byte);
    is_out = is_out || parser->sink.num_calls != num_calls || parser->drops_held;
    parser->drops_held = false;
    if (is_out) {
        if (!parser->in_markup)
            drop_held(parser);
        parser->skips_space = true;
    }
    switch (step) {
    case TOOL_MORE:
        if (is_out && !parser->in_markup)
            return;
        byte_buffer_append(&parser->held, &byte, 1);
        if (parser->held.length > TEXT_MARKER_MAX_HELD_BYTES)
            give_up_tool_call(parser);
        return;
    case TOOL_END:
        drop_held(parser);
        leave_tool_calls(parser);
        return;
    case TOOL_END_BEFORE:
        read_held_again(parser);
        break;
    case TOOL_BAD:
        give_up_tool_call(parser);
        break;
    }
    push_content(parser, byte);
}

static void push_content(struct tool_parser *parser, char byte) {
    struct text_marker *marker = &parser->marker;
    bool is_plain = marker->matched == 0;
    size_t num_text;
    if (parser->format == NULL || !tool_call_sink_has_room(&parser->sink)) {
        add_content(parser, &byte, 1);
        return;
    }
    if (parser->skips_space && is_plain && text_is_space(byte))
        return;
    bool opens = parser->format->opens_bare != '\0' && byte == parser->format->opens_bare;
    if (opens && !parser->has_content && is_plain) {
        enter_tool_calls(parser);
        push_in_tool_calls(parser, byte);
        return;
    }
    if (text_marker_push(marker, byte, &num_text)) {
        enter_tool_calls(parser);
        return;
    }
    add_content(parser, marker->held.data, num_text);
    byte_buffer_consume(&marker->held, num_text);
}

void tool_parser_push(struct tool_parser *parser, char byte) {
    if (parser->in_tool_calls)
        push_in_tool_calls(parser, byte);
    else
        push_content(parser, byte);
    parser->failed = parser->failed || parser->held.failed || parser->marker.held.failed ||
                     parser->object.waiting.failed || parser->members.held.failed ||
                     parser->key.failed || parser->value_end.held.failed ||
                     parser->literal.out.failed;
}

void tool_parser_end(struct tool_parser *parser) {
    if (parser->in_tool_calls && parser->between_tool_calls)
        drop_held(parser);
    if (parser->in_tool_calls)
        give_up_tool_call(parser);
    add_content(parser, parser->marker.held.data, parser->marker.held.length);
    text_marker_reset(&parser->marker);
}
