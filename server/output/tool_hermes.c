/* <tool_call>
 * {"name": "f", "arguments": {"a": 1}}
 * </tool_call>
 *
 * The form that the chat templates of Hermes 2 Pro and of Qwen 2.5 and 3 request. The end marker
 * may be missing: some models leave it out before the next call and at the end. */
#include "server/output/tool_parser.h"

#define END_MARKER "</tool_call>"

enum hermes_state {
    HERMES_START, /* behind the marker */
    HERMES_OBJECT,
    HERMES_CLOSE, /* in front of the end marker */
    HERMES_IN_CLOSE,
};

static void begin(struct tool_parser *parser) {
    parser->state = HERMES_START;
}

/* The object's last brace may be missing. */
static bool finish(struct tool_parser *parser) {
    return parser->state == (int)HERMES_OBJECT && tool_call_object_end(&parser->object);
}

static enum tool_step push_close(struct tool_parser *parser, char byte) {
    if (byte != *parser->expected)
        return TOOL_END_BEFORE;
    parser->state = HERMES_IN_CLOSE;
    return *++parser->expected == '\0' ? TOOL_END : TOOL_MORE;
}

static enum tool_step push_object(struct tool_parser *parser, char byte) {
    enum tool_call_step step = tool_call_object_push(&parser->object, byte);
    bool is_end = step == TOOL_CALL_BAD && byte == *END_MARKER && finish(parser);
    if (step == TOOL_CALL_DONE || is_end) {
        parser->state = HERMES_CLOSE;
        parser->between_tool_calls = true;
    }
    parser->expected = END_MARKER;
    if (is_end)
        return push_close(parser, byte);
    return step == TOOL_CALL_BAD ? TOOL_BAD : TOOL_MORE;
}

static enum tool_step push(struct tool_parser *parser, char byte) {
    switch ((enum hermes_state)parser->state) {
    case HERMES_START:
        if (text_is_space(byte))
            return TOOL_MORE;
        tool_call_object_begin(&parser->object, &parser->sink, false);
        parser->state = HERMES_OBJECT;
        return push_object(parser, byte);
    case HERMES_OBJECT:
        return push_object(parser, byte);
    case HERMES_CLOSE:
        if (text_is_space(byte))
            return TOOL_MORE;
        parser->expected = END_MARKER;
        return push_close(parser, byte);
    case HERMES_IN_CLOSE:
        break;
    }
    return push_close(parser, byte);
}

const struct tool_format tool_hermes_format = {.marker = "<tool_call>",
                                               .takes_bare = true,
                                               .arguments_key = "arguments",
                                               .begin = begin,
                                               .push = push,
                                               .finish = finish};
