/* [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, ...]
 * [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]Abc123xyz[ARGS]{}
 *
 * The forms of Mistral's instruct tokenizers up to version 7 and from version 11 on
 * (mistral-common, tokens/tokenizers/instruct.py). Also accepted: one object without the list, and
 * a name directly followed by the arguments, which is what is left if [ARGS] is not shown. */
#include "server/output/tool_parser.h"

enum mistral_state {
    MISTRAL_START,
    MISTRAL_OBJECT,     /* without a list */
    MISTRAL_ITEM,       /* in front of an object of the list */
    MISTRAL_IN_ITEM,    /* in the object */
    MISTRAL_AFTER_ITEM, /* after it */
    MISTRAL_NAME,
    MISTRAL_BRACKET,   /* after the name's '[' */
    MISTRAL_ID_MARKER, /* in the rest of [CALL_ID] */
    MISTRAL_ID,
    MISTRAL_ARGS_MARKER, /* in the rest of [ARGS] */
    MISTRAL_ARGUMENTS,
};

static void begin(struct tool_parser *parser) {
    parser->state = MISTRAL_START;
    parser->name_length = 0;
}

static enum tool_step go(struct tool_parser *parser, enum mistral_state state) {
    parser->state = (int)state;
    return TOOL_MORE;
}

static enum tool_step expect(struct tool_parser *parser, enum mistral_state state,
                             const char *rest) {
    parser->expected = rest;
    return go(parser, state);
}

static enum tool_step push_tool_call(struct tool_parser *parser, char byte) {
    switch (tool_call_object_push(&parser->object, byte)) {
    case TOOL_CALL_MORE:
        return TOOL_MORE;
    case TOOL_CALL_DONE:
        if (parser->state != MISTRAL_IN_ITEM)
            return TOOL_END;
        parser->between_tool_calls = true;
        return go(parser, MISTRAL_AFTER_ITEM);
    case TOOL_CALL_BAD:
        break;
    }
    return TOOL_BAD;
}

static enum tool_step begin_object(struct tool_parser *parser, char byte,
                                   enum mistral_state state) {
    if (byte != '{' || !tool_call_sink_has_room(&parser->sink))
        return TOOL_BAD;
    tool_call_object_begin(&parser->object, &parser->sink, false);
    parser->between_tool_calls = false;
    parser->state = (int)state;
    return push_tool_call(parser, byte);
}

static enum tool_step begin_arguments(struct tool_parser *parser) {
    if (!tool_call_sink_takes(&parser->sink, parser->name, parser->name_length))
        return TOOL_BAD;
    tool_call_object_begin_named(&parser->object, &parser->sink, parser->name, parser->name_length);
    return go(parser, MISTRAL_ARGUMENTS);
}

static enum tool_step push_name(struct tool_parser *parser, char byte) {
    if (byte == '[' && parser->name_length > 0)
        return go(parser, MISTRAL_BRACKET);
    if (byte == '{' && parser->name_length > 0)
        return begin_arguments(parser) == TOOL_BAD ? TOOL_BAD : push_tool_call(parser, byte);
    if (!tool_call_name_is_valid(&byte, 1) || parser->name_length == sizeof(parser->name))
        return TOOL_BAD;
    parser->name[parser->name_length++] = byte;
    return go(parser, MISTRAL_NAME);
}

static enum tool_step push(struct tool_parser *parser, char byte) {
    switch ((enum mistral_state)parser->state) {
    case MISTRAL_START:
        if (text_is_space(byte))
            return TOOL_MORE;
        if (byte == '[')
            return go(parser, MISTRAL_ITEM);
        return byte == '{' ? begin_object(parser, byte, MISTRAL_OBJECT) : push_name(parser, byte);
    case MISTRAL_ITEM:
        return text_is_space(byte) ? TOOL_MORE : begin_object(parser, byte, MISTRAL_IN_ITEM);
    case MISTRAL_AFTER_ITEM:
        if (text_is_space(byte))
            return TOOL_MORE;
        if (byte == ',')
            return go(parser, MISTRAL_ITEM);
        return byte == ']' ? TOOL_END : TOOL_END_BEFORE;
    case MISTRAL_NAME:
        return push_name(parser, byte);
    case MISTRAL_BRACKET:
        if (byte == 'A')
            return expect(parser, MISTRAL_ARGS_MARKER, "RGS]");
        return byte == 'C' ? expect(parser, MISTRAL_ID_MARKER, "ALL_ID]") : TOOL_BAD;
    case MISTRAL_ID_MARKER:
        if (byte != *parser->expected)
            return TOOL_BAD;
        return *++parser->expected == '\0' ? go(parser, MISTRAL_ID) : TOOL_MORE;
    case MISTRAL_ID:
        if (byte == '[')
            return expect(parser, MISTRAL_ARGS_MARKER, "ARGS]");
        return tool_call_name_is_valid(&byte, 1) ? TOOL_MORE : TOOL_BAD;
    case MISTRAL_ARGS_MARKER:
        if (byte != *parser->expected)
            return TOOL_BAD;
        return *++parser->expected == '\0' ? begin_arguments(parser) : TOOL_MORE;
    case MISTRAL_OBJECT:
    case MISTRAL_IN_ITEM:
    case MISTRAL_ARGUMENTS:
        break;
    }
    return push_tool_call(parser, byte);
}

const struct tool_format tool_mistral_format = {
    .marker = "[TOOL_CALLS]", .begin = begin, .push = push};
