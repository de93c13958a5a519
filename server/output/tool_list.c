/* <|tool_call|>[{"name": "f", "arguments": {"a": 1}}, ...]
 * <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}, ...]<|END_ACTION|>
 * <function_call> {"name": "f", "arguments": {"a": 1}}
 *
 * The forms that the chat templates of Granite 3, of Command R7B and Command A, and of
 * granite-20b-functioncalling request, which has a marker in front of each call. One object without
 * the list is taken of all, and the end marker may be missing. */
#include "server/output/tool_parser.h"

enum list_state {
    LIST_START,
    LIST_ITEM,       /* in front of an object */
    LIST_IN_ITEM,    /* in one */
    LIST_AFTER_ITEM, /* behind one */
    LIST_ONE,        /* in an object without the list */
    LIST_CLOSE,      /* in front of the end marker */
    LIST_IN_CLOSE,
};

static void begin(struct tool_parser *parser) {
    parser->state = LIST_START;
}

static enum tool_step go(struct tool_parser *parser, enum list_state state) {
    parser->state = (int)state;
    return TOOL_MORE;
}

static enum tool_step close(struct tool_parser *parser) {
    parser->between_tool_calls = true;
    parser->drops_held = true;
    return parser->format->end == NULL ? TOOL_END : go(parser, LIST_CLOSE);
}

static enum tool_step push_object(struct tool_parser *parser, char byte) {
    switch (tool_call_object_push(&parser->object, byte)) {
    case TOOL_CALL_MORE:
        return TOOL_MORE;
    case TOOL_CALL_DONE:
        if (parser->state == (int)LIST_ONE)
            return close(parser);
        parser->between_tool_calls = true;
        return go(parser, LIST_AFTER_ITEM);
    case TOOL_CALL_BAD:
        break;
    }
    return TOOL_BAD;
}

static enum tool_step begin_object(struct tool_parser *parser, char byte, enum list_state state) {
    if (byte != '{' || !tool_call_sink_has_room(&parser->sink))
        return TOOL_BAD;
    tool_call_object_begin(&parser->object, &parser->sink, false);
    parser->between_tool_calls = false;
    parser->state = (int)state;
    return push_object(parser, byte);
}

static enum tool_step push_close(struct tool_parser *parser, char byte) {
    if (byte != *parser->expected)
        return TOOL_END_BEFORE;
    parser->state = LIST_IN_CLOSE;
    return *++parser->expected == '\0' ? TOOL_END : TOOL_MORE;
}

static enum tool_step push(struct tool_parser *parser, char byte) {
    enum list_state state = (enum list_state)parser->state;
    bool is_between = state != LIST_IN_ITEM && state != LIST_ONE && state != LIST_IN_CLOSE;
    if (is_between && text_is_space(byte))
        return TOOL_MORE;
    switch (state) {
    case LIST_START:
        return byte == '[' ? go(parser, LIST_ITEM) : begin_object(parser, byte, LIST_ONE);
    case LIST_ITEM:
        return begin_object(parser, byte, LIST_IN_ITEM);
    case LIST_AFTER_ITEM:
        if (byte == ',')
            return go(parser, LIST_ITEM);
        return byte == ']' ? close(parser) : TOOL_END_BEFORE;
    case LIST_CLOSE:
        parser->expected = parser->format->end;
        return push_close(parser, byte);
    case LIST_IN_CLOSE:
        return push_close(parser, byte);
    case LIST_IN_ITEM:
    case LIST_ONE:
        break;
    }
    return push_object(parser, byte);
}

const struct tool_format tool_granite_format = {
    .marker = "<|tool_call|>", .begin = begin, .push = push};
const struct tool_format tool_cohere_format = {
    .marker = "<|START_ACTION|>", .end = "<|END_ACTION|>", .begin = begin, .push = push};
const struct tool_format tool_granite_20b_format = {
    .marker = "<function_call>", .begin = begin, .push = push};
