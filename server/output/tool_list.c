/* <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
 * <|tool_call|>[{"name": "f", "arguments": {"a": 1}}, ...]
 * <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}},
 * ...]<|END_ACTION|> <function_call> {"name": "f", "arguments": {"a": 1}}
 *
 * The forms that the chat templates of Hermes 2 Pro, Qwen 2.5 and 3, of Granite 3, of Command R7B
 * and Command A, and of granite-20b-functioncalling request; the first and the last have a marker
 * in front of each call. A list and one object are taken of all. The end marker may be missing:
 * some models leave it out before the next call and at the end; so may the last brace of one object
 * or the bracket of a list in front of it, and there may be braces more. */
#include "server/output/tool_parser.h"

enum list_state {
    LIST_START,
    LIST_ITEM,       /* in front of an object */
    LIST_IN_ITEM,    /* in one */
    LIST_AFTER_ITEM, /* after an item */
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

static enum tool_step push_close(struct tool_parser *parser, char byte) {
    if (byte != *parser->expected)
        return TOOL_END_BEFORE;
    parser->state = LIST_IN_CLOSE;
    return *++parser->expected == '\0' ? TOOL_END : TOOL_MORE;
}

static enum tool_step begin_close(struct tool_parser *parser, char byte) {
    parser->expected = parser->format->end;
    if (byte != '}')
        return push_close(parser, byte);
    parser->drops_held = true;
    return TOOL_MORE;
}

static bool begins_end(const struct tool_parser *parser, char byte) {
    return parser->format->end != NULL && byte == *parser->format->end;
}

/* The list's bracket may be missing. */
static enum tool_step push_after_item(struct tool_parser *parser, char byte) {
    if (byte == ',')
        return go(parser, LIST_ITEM);
    if (byte == ']')
        return close(parser);
    if (!begins_end(parser, byte))
        return TOOL_END_BEFORE;
    close(parser);
    return TOOL_AGAIN;
}

/* One object's last brace may be missing. */
static bool finish(struct tool_parser *parser) {
    return parser->state == (int)LIST_ONE && tool_call_object_end(&parser->object);
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
    if (!begins_end(parser, byte) || !finish(parser))
        return TOOL_BAD;
    close(parser);
    return TOOL_AGAIN;
}

static enum tool_step begin_object(struct tool_parser *parser, char byte, enum list_state state) {
    if (byte != '{' || !tool_call_sink_has_room(&parser->sink))
        return TOOL_BAD;
    tool_call_object_begin(&parser->object, &parser->sink, false);
    parser->between_tool_calls = false;
    parser->state = (int)state;
    return push_object(parser, byte);
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
        return push_after_item(parser, byte);
    case LIST_CLOSE:
        return begin_close(parser, byte);
    case LIST_IN_CLOSE:
        return push_close(parser, byte);
    case LIST_IN_ITEM:
    case LIST_ONE:
        break;
    }
    return push_object(parser, byte);
}

const struct tool_format tool_hermes_format = {.marker = "<tool_call>",
                                               .end = "</tool_call>",
                                               .takes_bare = true,
                                               .arguments_key = "arguments",
                                               .begin = begin,
                                               .push = push,
                                               .finish = finish};
const struct tool_format tool_granite_format = {
    .marker = "<|tool_call|>", .begin = begin, .push = push};
const struct tool_format tool_cohere_format = {
    .marker = "<|START_ACTION|>", .end = "<|END_ACTION|>", .begin = begin, .push = push};
const struct tool_format tool_granite_20b_format = {
    .marker = "<function_call>", .begin = begin, .push = push};
