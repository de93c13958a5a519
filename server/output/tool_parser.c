#include "server/output/tool_parser.h"

void tool_parser_init(struct tool_parser *parser, const struct tool_format *format,
                      struct output_parts *parts) {
    *parser = (struct tool_parser){.format = format, .sink = {.parts = parts}};
    if (format != NULL)
        text_marker_init_two(&parser->marker, format->marker, format->short_marker);
}

void tool_parser_finish(struct tool_parser *parser) {
    text_marker_finish(&parser->marker);
    byte_buffer_finish(&parser->held);
    tool_call_sink_finish(&parser->sink);
    tool_call_object_finish(&parser->object);
    tool_members_finish(&parser->members);
    byte_buffer_finish(&parser->key);
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
static void enter_tool_calls(struct tool_parser *parser, const struct tool_format *reader) {
    struct text_marker *marker = &parser->marker;
    parser->failed = parser->failed || marker->held.failed;
    byte_buffer_append(&parser->held, marker->held.data, marker->held.length);
    parser->is_short = marker->matched > 0 && marker->matched < strlen(parser->format->marker);
    text_marker_reset(marker);
    parser->reader = reader;
    parser->in_tool_calls = true;
    parser->between_tool_calls = false;
    reader->begin(parser);
}

static void leave_tool_calls(struct tool_parser *parser) {
    parser->in_tool_calls = false;
    parser->sink.defers = false;
    tool_call_sink_drop(&parser->sink);
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

/* What is held of tool calls that are out goes with them. */
static void drop_what_is_out(struct tool_parser *parser) {
    drop_held(parser);
    parser->skips_space = true;
}

/* Bounds what is held: a call that has begun then comes out as far as it has come. */
static void hold(struct tool_parser *parser, char byte) {
    byte_buffer_append(&parser->held, &byte, 1);
    if (parser->held.length <= TEXT_MARKER_MAX_HELD_BYTES)
        return;
    if (!parser->sink.is_open || parser->sink.defers) {
        give_up_tool_call(parser);
        return;
    }
    tool_call_sink_release(&parser->sink);
    drop_what_is_out(parser);
}

static bool note_failure(struct tool_parser *parser) {
    parser->failed = parser->failed || parser->held.failed || parser->marker.held.failed ||
                     parser->object.waiting.failed || parser->members.held.failed ||
                     parser->key.failed || parser->literal.out.failed ||
                     output_parts_failed(&parser->sink.pending);
    return parser->failed;
}

static void push_in_tool_calls(struct tool_parser *parser, char byte) {
    bool was_out = parser->sink.is_open && parser->sink.is_out;
    int32_t num_out = parser->sink.num_out;
    enum tool_step step = parser->reader->push(parser, byte);
    if (note_failure(parser)) /* what the reader says is not of the text */
        return;
    bool is_out = was_out || parser->sink.num_out != num_out || parser->drops_held;
    parser->drops_held = false;
    if (is_out)
        drop_what_is_out(parser);
    switch (step) {
    case TOOL_MORE:
        if (!is_out)
            hold(parser, byte);
        return;
    case TOOL_AGAIN:
        push_in_tool_calls(parser, byte);
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

/* Returns who reads the tool calls that the byte may open without a marker; NULL: it opens none. */
static const struct tool_format *bare_reader(const struct tool_parser *parser, char byte) {
    const struct tool_format *format = parser->format;
    if (parser->marker.matched > 0)
        return NULL;
    if (format->opens_bare != '\0' && byte == format->opens_bare && !parser->has_content)
        return format;
    bool opens = byte == '{' || byte == '[' || byte == '`';
    return opens && parser->num_bare_names > 0 ? &tool_bare_format : NULL;
}

static void push_content(struct tool_parser *parser, char byte) {
    struct text_marker *marker = &parser->marker;
    size_t num_text;
    if (parser->format == NULL || !tool_call_sink_has_room(&parser->sink)) {
        add_content(parser, &byte, 1);
        return;
    }
    if (parser->skips_space && marker->matched == 0 && text_is_space(byte))
        return;
    const struct tool_format *reader = bare_reader(parser, byte);
    if (reader != NULL) {
        enter_tool_calls(parser, reader);
        push_in_tool_calls(parser, byte);
        return;
    }
    if (text_marker_push(marker, byte, &num_text)) {
        enter_tool_calls(parser, parser->format);
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
    note_failure(parser);
}

void tool_parser_end(struct tool_parser *parser, bool is_cut) {
    bool is_in_call = parser->in_tool_calls && !parser->between_tool_calls;
    if (is_in_call && !is_cut && parser->reader->finish != NULL && parser->reader->finish(parser))
        is_in_call = false;
    if (is_in_call && is_cut)
        tool_call_sink_cut(&parser->sink);
    if (parser->in_tool_calls && !is_in_call) {
        tool_call_sink_release(&parser->sink);
        drop_held(parser);
    }
    if (parser->in_tool_calls)
        give_up_tool_call(parser);
    add_content(parser, parser->marker.held.data, parser->marker.held.length);
    text_marker_reset(&parser->marker);
}
