/* ```json
 * {"name": "f", "arguments": {"a": 1}}
 * ```
 *
 * Calls without markers, as the models of some families write them: objects, or a list of them,
 * with or without a fence of Markdown, which end the answer. What names no given tool, has other
 * keys, or is followed by more text (an example that is explained) is content. */
#include "server/output/tool_parser.h"

#define OPENING "<tool_call>"
#define CLOSING "</tool_call>" /* its opening is missing */
#define MAX_LANGUAGE_BYTES 16

enum bare_state {
    BARE_START,
    BARE_TICKS, /* in those that open a fence */
    BARE_LANGUAGE,
    BARE_OPEN, /* after the fence's line */
    BARE_ITEM, /* in front of an object of a list */
    BARE_IN_OBJECT,
    BARE_AFTER,     /* after an object */
    BARE_END_TICKS, /* in those that close a fence */
    BARE_OPENING,
    BARE_CLOSING,
};

static void begin(struct tool_parser *parser) {
    parser->state = BARE_START;
    parser->sink.defers = true;
    parser->bare = (struct tool_bare){0};
}

static enum tool_step go(struct tool_parser *parser, enum bare_state state) {
    parser->state = (int)state;
    return TOOL_MORE;
}

static enum tool_step push_object(struct tool_parser *parser, char byte) {
    enum tool_call_step step = tool_call_object_push(&parser->object, byte);
    if (step == TOOL_CALL_DONE) {
        parser->between_tool_calls = true;
        parser->state = BARE_AFTER;
    }
    return step == TOOL_CALL_BAD ? TOOL_BAD : TOOL_MORE;
}

/* After the last allowed call everything is content. */
static enum tool_step begin_object(struct tool_parser *parser, char byte) {
    if (!tool_call_sink_has_room(&parser->sink)) {
        tool_call_sink_release(&parser->sink);
        return TOOL_END_BEFORE;
    }
    tool_call_object_begin(&parser->object, &parser->sink, true);
    parser->object.names = parser->bare_names;
    parser->object.num_names = parser->num_bare_names;
    parser->object.arguments_key = parser->format->arguments_key;
    parser->between_tool_calls = false;
    parser->state = BARE_IN_OBJECT;
    return push_object(parser, byte);
}

static enum tool_step push_item(struct tool_parser *parser, char byte) {
    return byte == '{' ? begin_object(parser, byte) : TOOL_BAD;
}

static enum tool_step push_open(struct tool_parser *parser, char byte) {
    if (byte != '[')
        return push_item(parser, byte);
    parser->bare.in_list = true;
    return go(parser, BARE_ITEM);
}

static enum tool_step push_ticks(struct tool_parser *parser, char byte, enum bare_state next) {
    if (byte != '`')
        return TOOL_BAD;
    if (++parser->bare.length < 3)
        return TOOL_MORE;
    parser->bare.length = 0;
    parser->bare.in_fence = next == BARE_LANGUAGE;
    return go(parser, next);
}

static enum tool_step push_language(struct tool_parser *parser, char byte) {
    if (byte == '\n')
        return go(parser, BARE_OPEN);
    bool fits = ++parser->bare.length <= MAX_LANGUAGE_BYTES;
    return fits && (text_is_space(byte) || tool_call_name_is_valid(&byte, 1)) ? TOOL_MORE
                                                                              : TOOL_BAD;
}

static enum tool_step push_after(struct tool_parser *parser, char byte) {
    bool in_list = parser->bare.in_list;
    switch (byte) {
    case '`':
        parser->bare.length = 0;
        parser->state = parser->bare.in_fence ? BARE_END_TICKS : BARE_TICKS;
        return push_ticks(parser, byte, BARE_AFTER);
    case ',':
        return go(parser, BARE_ITEM);
    case ']':
        parser->bare.in_list = false;
        return in_list ? TOOL_MORE : TOOL_BAD;
    case '<':
        parser->expected = OPENING + 1;
        return go(parser, BARE_OPENING);
    default:
        return in_list ? TOOL_BAD : push_open(parser, byte);
    }
}

/* A marker of the family shows that the objects in front of it are calls. */
static enum tool_step push_tag(struct tool_parser *parser, char byte) {
    bool is_tag = strcmp(parser->format->marker, OPENING) == 0;
    if (parser->state == (int)BARE_OPENING && parser->expected == OPENING + 1 && byte == '/') {
        parser->expected = CLOSING + 1;
        parser->state = BARE_CLOSING;
    }
    if (!is_tag || byte != *parser->expected)
        return TOOL_BAD;
    if (*++parser->expected != '\0')
        return TOOL_MORE;
    tool_call_sink_release(&parser->sink);
    if (parser->state == (int)BARE_CLOSING)
        return TOOL_END;
    parser->sink.defers = false;
    parser->between_tool_calls = false;
    parser->reader = parser->format;
    parser->reader->begin(parser);
    return TOOL_MORE;
}

static enum tool_step push_between(struct tool_parser *parser, char byte) {
    switch ((enum bare_state)parser->state) {
    case BARE_START:
        return byte == '`' ? push_ticks(parser, byte, BARE_LANGUAGE) : push_open(parser, byte);
    case BARE_OPEN:
        return push_open(parser, byte);
    case BARE_ITEM:
        return push_item(parser, byte);
    default:
        return push_after(parser, byte);
    }
}

static enum tool_step push(struct tool_parser *parser, char byte) {
    switch ((enum bare_state)parser->state) {
    case BARE_TICKS:
        return push_ticks(parser, byte, BARE_LANGUAGE);
    case BARE_END_TICKS:
        return push_ticks(parser, byte, BARE_AFTER);
    case BARE_LANGUAGE:
        return push_language(parser, byte);
    case BARE_IN_OBJECT:
        return push_object(parser, byte);
    case BARE_OPENING:
    case BARE_CLOSING:
        return push_tag(parser, byte);
    default:
        return text_is_space(byte) ? TOOL_MORE : push_between(parser, byte);
    }
}

const struct tool_format tool_bare_format = {.begin = begin, .push = push};
