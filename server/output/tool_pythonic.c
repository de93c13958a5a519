/* [f(a=1, s="x"), g()]
 *
 * The form that the chat templates for Python calls request (Llama 3.2 and 4 in vLLM's examples,
 * ToolACE): a list of calls with named arguments that are literals, as the whole of the message.
 * Llama 4 puts <|python_start|> and <|python_end|> around it at times. A list of anything else is
 * an answer that begins with a list. */
#include "server/output/tool_parser.h"

enum pythonic_state {
    PYTHONIC_START, /* in front of the list */
    PYTHONIC_CALL,  /* in front of a call */
    PYTHONIC_NAME,
    PYTHONIC_AFTER_NAME,
    PYTHONIC_ARGUMENT, /* in front of an argument or the call's end */
    PYTHONIC_KEY,
    PYTHONIC_AFTER_KEY,
    PYTHONIC_VALUE,
    PYTHONIC_AFTER_VALUE,
    PYTHONIC_AFTER_CALL,
    PYTHONIC_CLOSE, /* in front of the end marker */
    PYTHONIC_IN_CLOSE,
};

static void begin(struct tool_parser *parser) {
    parser->state = PYTHONIC_START;
}

static enum tool_step go(struct tool_parser *parser, enum pythonic_state state) {
    parser->state = (int)state;
    return TOOL_MORE;
}

static enum tool_step after_name(struct tool_parser *parser, char byte) {
    if (byte != '(' || !tool_call_sink_takes(&parser->sink, parser->name, parser->name_length))
        return TOOL_BAD;
    return go(parser, PYTHONIC_ARGUMENT);
}

static enum tool_step push_name(struct tool_parser *parser, char byte) {
    if (!tool_call_name_is_valid(&byte, 1)) {
        parser->state = PYTHONIC_AFTER_NAME;
        return text_is_space(byte) ? TOOL_MORE : after_name(parser, byte);
    }
    if (parser->name_length == sizeof(parser->name))
        return TOOL_BAD;
    parser->name[parser->name_length++] = byte;
    return go(parser, PYTHONIC_NAME);
}

static enum tool_step close(struct tool_parser *parser) {
    parser->drops_held = true;
    return go(parser, PYTHONIC_CLOSE);
}

/* A comma may follow the last call. */
static enum tool_step push_call(struct tool_parser *parser, char byte) {
    if (byte == ']' && parser->between_tool_calls)
        return close(parser);
    if (!tool_call_sink_has_room(&parser->sink))
        return TOOL_BAD;
    parser->between_tool_calls = false;
    parser->name_length = 0;
    return push_name(parser, byte);
}

/* A call without arguments is released only here: [f() for x in y] is not a call. */
static enum tool_step after_call(struct tool_parser *parser, char byte) {
    if (byte != ',' && byte != ']')
        return TOOL_BAD;
    if (!parser->sink.is_open)
        tool_call_sink_begin(&parser->sink, parser->name, parser->name_length);
    tool_call_sink_end(&parser->sink);
    parser->between_tool_calls = true;
    return byte == ',' ? go(parser, PYTHONIC_CALL) : close(parser);
}

static void put(struct tool_parser *parser, const char *text) {
    tool_call_sink_arguments(&parser->sink, text, strlen(text));
}

static enum tool_step end_call(struct tool_parser *parser) {
    if (parser->sink.is_open)
        put(parser, "}");
    return go(parser, PYTHONIC_AFTER_CALL);
}

/* Python's names, and what else those in JSON schemas have. */
static bool is_key_byte(char byte) {
    return (byte & 0x80) != 0 || byte == '$' || tool_call_name_is_valid(&byte, 1);
}

static enum tool_step after_key(struct tool_parser *parser, char byte) {
    if (byte != '=')
        return TOOL_BAD;
    python_literal_begin(&parser->literal);
    return go(parser, PYTHONIC_VALUE);
}

static enum tool_step push_key(struct tool_parser *parser, char byte) {
    if (!is_key_byte(byte)) {
        parser->state = PYTHONIC_AFTER_KEY;
        return text_is_space(byte) ? TOOL_MORE : after_key(parser, byte);
    }
    byte_buffer_append(&parser->key, &byte, 1);
    return parser->key.length > TOOL_KEY_MAX_BYTES ? TOOL_BAD : go(parser, PYTHONIC_KEY);
}

/* A comma may follow the last one. */
static enum tool_step push_argument(struct tool_parser *parser, char byte) {
    byte_buffer_clear(&parser->key);
    if (byte == ')')
        return end_call(parser);
    return is_key_byte(byte) ? push_key(parser, byte) : TOOL_BAD;
}

static enum tool_step after_value(struct tool_parser *parser, char byte) {
    if (byte == ')')
        return end_call(parser);
    return byte == ',' ? go(parser, PYTHONIC_ARGUMENT) : TOOL_BAD;
}

/* The call itself is out with the beginning of its first value. */
static void release(struct tool_parser *parser) {
    struct byte_buffer *value = &parser->literal.out;
    if (value->length == 0)
        return;
    bool is_first = !parser->sink.is_open;
    if (is_first)
        tool_call_sink_begin(&parser->sink, parser->name, parser->name_length);
    if (parser->key.length > 0) {
        put(parser, is_first ? "{\"" : ", \"");
        tool_call_sink_arguments(&parser->sink, parser->key.data, parser->key.length);
        put(parser, "\": ");
        parser->failed = parser->failed || parser->key.failed;
        byte_buffer_clear(&parser->key);
    }
    tool_call_sink_arguments(&parser->sink, value->data, value->length);
    parser->failed = parser->failed || value->failed;
    byte_buffer_clear(value);
}

static enum tool_step push_value(struct tool_parser *parser, char byte) {
    enum python_literal_step step = python_literal_push(&parser->literal, byte);
    if (step == PYTHON_LITERAL_BAD)
        return TOOL_BAD;
    release(parser);
    if (step == PYTHON_LITERAL_MORE)
        return TOOL_MORE;
    parser->state = PYTHONIC_AFTER_VALUE;
    if (step == PYTHON_LITERAL_DONE || text_is_space(byte))
        return TOOL_MORE;
    return after_value(parser, byte);
}

static enum tool_step push_close(struct tool_parser *parser, char byte) {
    if (byte != *parser->expected)
        return TOOL_END_BEFORE;
    parser->state = PYTHONIC_IN_CLOSE;
    return *++parser->expected == '\0' ? TOOL_END : TOOL_MORE;
}

static enum tool_step push_between(struct tool_parser *parser, char byte) {
    switch ((enum pythonic_state)parser->state) {
    case PYTHONIC_START:
        return byte == '[' ? go(parser, PYTHONIC_CALL) : TOOL_BAD;
    case PYTHONIC_CALL:
        return push_call(parser, byte);
    case PYTHONIC_AFTER_NAME:
        return after_name(parser, byte);
    case PYTHONIC_ARGUMENT:
        return push_argument(parser, byte);
    case PYTHONIC_AFTER_KEY:
        return after_key(parser, byte);
    case PYTHONIC_AFTER_VALUE:
        return after_value(parser, byte);
    case PYTHONIC_AFTER_CALL:
        return after_call(parser, byte);
    default:
        parser->expected = parser->format->end;
        return push_close(parser, byte);
    }
}

static enum tool_step push(struct tool_parser *parser, char byte) {
    switch ((enum pythonic_state)parser->state) {
    case PYTHONIC_NAME:
        return push_name(parser, byte);
    case PYTHONIC_KEY:
        return push_key(parser, byte);
    case PYTHONIC_VALUE:
        return push_value(parser, byte);
    case PYTHONIC_IN_CLOSE:
        return push_close(parser, byte);
    default:
        return text_is_space(byte) ? TOOL_MORE : push_between(parser, byte);
    }
}

/* The list's end may be missing. */
static bool finish(struct tool_parser *parser) {
    bool is_whole = parser->state == (int)PYTHONIC_AFTER_CALL && parser->sink.is_open;
    if (is_whole)
        tool_call_sink_end(&parser->sink);
    return is_whole;
}

const struct tool_format tool_pythonic_format = {.marker = "<|python_start|>",
                                                 .opens_bare = '[',
                                                 .end = "<|python_end|>",
                                                 .begin = begin,
                                                 .push = push,
                                                 .finish = finish};
