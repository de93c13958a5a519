/* <tool_call>                        <tool_call>f
 * <function=f>                       <arg_key>a</arg_key>
 * <parameter=a>                      <arg_value>1</arg_value>
 * 1                                  </tool_call>
 * </parameter>
 * </function>
 * </tool_call>
 *
 * The forms that the chat templates of Qwen3-Coder (and Qwen 3.5) and of GLM 4.5 to 4.7 request:
 * the name and the arguments stand between tags, a string's value without quotes. */
#include "server/output/tool_parser.h"

#define END_MARKER "</tool_call>"

/* Of a form; key_begin and end differ in their second byte. */
struct tool_tags {
    const char *name_begin, *name_end; /* name_end: one byte, or none: what no name has ends it */
    const char *key_begin, *key_end;
    const char *value_begin, *value_end; /* value_begin "": the value follows at once */
    const char *end;
    bool has_lines; /* a line feed around the value is none of it */
    bool ends_call; /* END_MARKER follows `end` */
};

enum tags_state {
    TAGS_START, /* in front of the name */
    TAGS_NAME,
    TAGS_BETWEEN, /* in front of a key or the end */
    TAGS_OPEN,    /* behind the '<' of one of them */
    TAGS_KEY_BEGIN,
    TAGS_KEY,
    TAGS_KEY_END,
    TAGS_VALUE_BEGIN,
    TAGS_VALUE_START, /* in front of the value's first byte */
    TAGS_VALUE,
    TAGS_END,
    TAGS_CLOSE, /* in front of END_MARKER */
    TAGS_IN_CLOSE,
};

static void begin(struct tool_parser *parser) {
    parser->expected = parser->format->tags->name_begin;
    parser->state = *parser->expected == '\0' ? TAGS_NAME : TAGS_START;
    parser->name_length = 0;
}

static enum tool_step go(struct tool_parser *parser, enum tags_state state) {
    parser->state = (int)state;
    return TOOL_MORE;
}

/* Reads a literal in `state`, behind which comes `next`; an empty one is over at once. */
static enum tool_step expect(struct tool_parser *parser, const char *literal, enum tags_state state,
                             enum tags_state next) {
    parser->expected = literal;
    return go(parser, *literal == '\0' ? next : state);
}

/* Reads the literal's next byte. */
static enum tool_step push_expected(struct tool_parser *parser, char byte, enum tags_state next) {
    if (byte != *parser->expected)
        return TOOL_BAD;
    return *++parser->expected == '\0' ? go(parser, next) : TOOL_MORE;
}

static enum tool_step end_name(struct tool_parser *parser, char byte);

static enum tool_step push_name(struct tool_parser *parser, char byte) {
    if (parser->name_length == 0 && text_is_space(byte))
        return TOOL_MORE;
    if (!tool_call_name_is_valid(&byte, 1))
        return end_name(parser, byte);
    if (parser->name_length == sizeof(parser->name))
        return TOOL_BAD;
    parser->name[parser->name_length++] = byte;
    return TOOL_MORE;
}

static enum tool_step end_call(struct tool_parser *parser) {
    if (!parser->sink.is_open)
        tool_call_sink_begin(&parser->sink, parser->name, parser->name_length);
    else
        tool_members_leave(&parser->members);
    tool_call_sink_end(&parser->sink);
    parser->in_markup = false;
    if (!parser->format->tags->ends_call)
        return TOOL_END;
    parser->between_tool_calls = true;
    return go(parser, TAGS_CLOSE);
}

static enum tool_step push_between(struct tool_parser *parser, char byte) {
    parser->in_markup = true;
    if (text_is_space(byte))
        return TOOL_MORE;
    return byte == '<' ? go(parser, TAGS_OPEN) : TOOL_BAD;
}

static enum tool_step push_open(struct tool_parser *parser, char byte) {
    const struct tool_tags *tags = parser->format->tags;
    if (byte == tags->key_begin[1])
        return expect(parser, tags->key_begin + 2, TAGS_KEY_BEGIN, TAGS_KEY);
    if (byte == tags->end[1])
        return expect(parser, tags->end + 2, TAGS_END, TAGS_END);
    return TOOL_BAD;
}

static enum tool_step end_name(struct tool_parser *parser, char byte) {
    const struct tool_tags *tags = parser->format->tags;
    if (!tool_call_sink_takes(&parser->sink, parser->name, parser->name_length))
        return TOOL_BAD;
    tool_members_begin(&parser->members, &parser->sink, parser->parameter_types, parser->name,
                       parser->name_length);
    parser->expected = tags->name_end;
    if (*parser->expected != '\0')
        return push_expected(parser, byte, TAGS_BETWEEN);
    parser->state = TAGS_BETWEEN;
    return push_between(parser, byte);
}

static enum tool_step end_key(struct tool_parser *parser) {
    struct text name = {parser->name, parser->name_length};
    struct text key = {parser->key.data, parser->key.length};
    tool_members_key(&parser->members, name, key);
    text_marker_finish(&parser->value_end);
    text_marker_init(&parser->value_end, parser->format->tags->value_end);
    parser->in_markup = false;
    return go(parser, TAGS_VALUE_START);
}

static enum tool_step push_key(struct tool_parser *parser, char byte) {
    const struct tool_tags *tags = parser->format->tags;
    if (byte != tags->key_end[0]) {
        byte_buffer_append(&parser->key, &byte, 1);
        return byte == '\n' || parser->key.length > TOOL_KEY_MAX_BYTES ? TOOL_BAD : TOOL_MORE;
    }
    if (parser->key.length == 0)
        return TOOL_BAD;
    if (tags->key_end[1] != '\0')
        return expect(parser, tags->key_end + 1, TAGS_KEY_END, TAGS_KEY_END);
    return end_key(parser);
}

static enum tool_step push_value_begin(struct tool_parser *parser, char byte) {
    const char *literal = parser->format->tags->value_begin;
    if (parser->expected == literal && text_is_space(byte))
        return TOOL_MORE;
    enum tool_step step = push_expected(parser, byte, TAGS_VALUE_START);
    return parser->state == (int)TAGS_VALUE_START ? end_key(parser) : step;
}

/* The white space in front of the value's end is the value's, but for the line feed of its line. */
static void end_value(struct tool_parser *parser) {
    const struct text_marker *marker = &parser->value_end;
    size_t length = marker->held.length - marker->length;
    bool has_feed = length > 0 && marker->held.data[length - 1] == '\n';
    if (parser->format->tags->has_lines && has_feed)
        length--;
    tool_members_value(&parser->members, marker->held.data, length);
    tool_members_end_value(&parser->members);
    text_marker_reset(&parser->value_end);
}

static enum tool_step push_value(struct tool_parser *parser, char byte) {
    struct text_marker *marker = &parser->value_end;
    size_t num_text;
    bool is_first = parser->state == (int)TAGS_VALUE_START;
    parser->state = TAGS_VALUE;
    if (is_first && byte == '\n' && parser->format->tags->has_lines)
        return TOOL_MORE;
    if (text_marker_push(marker, byte, &num_text)) {
        end_value(parser);
        return go(parser, TAGS_BETWEEN);
    }
    tool_members_value(&parser->members, marker->held.data, num_text);
    byte_buffer_consume(&marker->held, num_text);
    return TOOL_MORE;
}

static enum tool_step push_close(struct tool_parser *parser, char byte) {
    if (byte != *parser->expected)
        return TOOL_END_BEFORE;
    parser->state = TAGS_IN_CLOSE;
    return *++parser->expected == '\0' ? TOOL_END : TOOL_MORE;
}

static enum tool_step push(struct tool_parser *parser, char byte) {
    const struct tool_tags *tags = parser->format->tags;
    enum tool_step step;
    switch ((enum tags_state)parser->state) {
    case TAGS_START:
        if (parser->expected == tags->name_begin && text_is_space(byte))
            return TOOL_MORE;
        return push_expected(parser, byte, TAGS_NAME);
    case TAGS_NAME:
        return push_name(parser, byte);
    case TAGS_BETWEEN:
        return push_between(parser, byte);
    case TAGS_OPEN:
        byte_buffer_clear(&parser->key);
        return push_open(parser, byte);
    case TAGS_KEY_BEGIN:
        return push_expected(parser, byte, TAGS_KEY);
    case TAGS_KEY:
        return push_key(parser, byte);
    case TAGS_KEY_END:
        step = push_expected(parser, byte, TAGS_VALUE_BEGIN);
        if (parser->state == (int)TAGS_VALUE_BEGIN)
            parser->expected = tags->value_begin;
        return step;
    case TAGS_VALUE_BEGIN:
        return push_value_begin(parser, byte);
    case TAGS_VALUE_START:
    case TAGS_VALUE:
        return push_value(parser, byte);
    case TAGS_END:
        step = push_expected(parser, byte, TAGS_CLOSE);
        return parser->state == (int)TAGS_CLOSE ? end_call(parser) : step;
    case TAGS_CLOSE:
        if (text_is_space(byte))
            return TOOL_MORE;
        parser->expected = END_MARKER;
        return push_close(parser, byte);
    case TAGS_IN_CLOSE:
        break;
    }
    return push_close(parser, byte);
}

/* What a broken value's end may have been is the value's. */
static void leave(struct tool_parser *parser) {
    if (!parser->sink.is_open)
        return;
    if (parser->members.in_value)
        tool_members_value(&parser->members, parser->value_end.held.data,
                           parser->value_end.held.length);
    text_marker_reset(&parser->value_end);
    tool_members_leave(&parser->members);
}

static const struct tool_tags qwen3_coder = {.name_begin = "<function=",
                                             .name_end = ">",
                                             .key_begin = "<parameter=",
                                             .key_end = ">",
                                             .value_begin = "",
                                             .value_end = "</parameter>",
                                             .end = "</function>",
                                             .has_lines = true,
                                             .ends_call = true};
static const struct tool_tags glm = {.name_begin = "",
                                     .name_end = "",
                                     .key_begin = "<arg_key>",
                                     .key_end = "</arg_key>",
                                     .value_begin = "<arg_value>",
                                     .value_end = "</arg_value>",
                                     .end = END_MARKER};

const struct tool_format tool_qwen3_coder_format = {
    .marker = "<tool_call>", .begin = begin, .push = push, .leave = leave, .tags = &qwen3_coder};
const struct tool_format tool_glm_format = {
    .marker = "<tool_call>", .begin = begin, .push = push, .leave = leave, .tags = &glm};
