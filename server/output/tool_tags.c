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

#define MARKER "<tool_call>"
#define END_MARKER "</tool_call>"
#define MAX_END_BYTES 280 /* of a value's end: what follows longer white space is not examined */

/* Of a form; key_begin and end differ in their second byte. */
struct tool_tags {
    const char *name_begin, *name_end; /* name_end: one byte, or none: what no name has ends it */
    const char *key_begin, *key_end;
    const char *value_begin, *value_end; /* value_begin "": the value follows at once */
    const char *end;
    bool has_lines; /* a line feed around the value does not belong to it */
    bool ends_call; /* END_MARKER follows `end` */
};

enum tags_state {
    TAGS_START, /* in front of the name */
    TAGS_NAME,
    TAGS_BETWEEN, /* in front of a key or the end */
    TAGS_OPEN,    /* after the '<' of one of them */
    TAGS_SLASH,   /* after its "</" */
    TAGS_KEY_BEGIN,
    TAGS_KEY,
    TAGS_KEY_END,
    TAGS_VALUE_BEGIN,
    TAGS_VALUE_START, /* in front of the value's first byte */
    TAGS_VALUE,
    TAGS_END,
    TAGS_LAST,  /* in END_MARKER in the place of the end */
    TAGS_CLOSE, /* in front of END_MARKER */
    TAGS_IN_CLOSE,
};

static void begin(struct tool_parser *parser) {
    parser->expected = parser->format->tags->name_begin;
    parser->state = *parser->expected == '\0' || parser->is_short ? TAGS_NAME : TAGS_START;
    parser->name_length = 0;
}

static enum tool_step go(struct tool_parser *parser, enum tags_state state) {
    parser->state = (int)state;
    return TOOL_MORE;
}

/* Reads a literal in `state`, after which comes `next`; an empty one ends at once. */
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
        tool_call_sink_arguments(&parser->sink, "}", 1);
    tool_call_sink_end(&parser->sink);
    if (!parser->format->tags->ends_call)
        return TOOL_END;
    parser->between_tool_calls = true;
    return go(parser, TAGS_CLOSE);
}

static enum tool_step push_between(struct tool_parser *parser, char byte) {
    if (text_is_space(byte))
        return TOOL_MORE;
    return byte == '<' ? go(parser, TAGS_OPEN) : TOOL_BAD;
}

static enum tool_step push_open(struct tool_parser *parser, char byte) {
    const struct tool_tags *tags = parser->format->tags;
    if (byte == tags->key_begin[1])
        return expect(parser, tags->key_begin + 2, TAGS_KEY_BEGIN, TAGS_KEY);
    return byte == '/' ? go(parser, TAGS_SLASH) : TOOL_BAD;
}

static enum tool_step push_slash(struct tool_parser *parser, char byte) {
    const struct tool_tags *tags = parser->format->tags;
    if (byte == tags->end[2])
        return expect(parser, tags->end + 3, TAGS_END, TAGS_END);
    if (byte == END_MARKER[2])
        return expect(parser, END_MARKER + 3, TAGS_LAST, TAGS_LAST);
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
    parser->tail_length = 0;
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

enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE };

/* Returns how the text begins with one of the words, and *out_word which: NULL, none is whole. */
static enum match match_words(const char *text, size_t length, const char *const *words,
                              const char **out_word) {
    enum match found = MATCH_NONE;
    *out_word = NULL;
    for (; *words != NULL; words++) {
        size_t whole = strlen(*words);
        if (memcmp(text, *words, length < whole ? length : whole) != 0)
            continue;
        found = length < whole ? MATCH_PART : MATCH_WHOLE;
        *out_word = length < whole ? NULL : *words;
        break;
    }
    return found;
}

/* Returns whether the text is the end of a value, as its model writes it: *out_tag is its tag, or
 * the tag in front of which that is missing. As a value may contain such tags, another one, or the
 * text's end, has to follow; a grammar that writes the call keeps them out of it. is_end: the text
 * ends there. */
static enum match match_end(const struct tool_parser *parser, const char *text, size_t length,
                            bool is_end, const char **out_tag) {
    const struct tool_tags *tags = parser->format->tags;
    const char *const only[] = {tags->value_end, NULL};
    const char *const first[] = {tags->value_end, tags->key_begin, tags->end, NULL};
    const char *const behind_value[] = {tags->key_begin, tags->end, END_MARKER, NULL};
    const char *const behind_end[] = {END_MARKER, MARKER,
                                      *tags->name_begin != '\0' ? tags->name_begin : NULL, NULL};
    const char *behind;
    size_t at = length > 0 && text[0] == '\n';
    bool is_exact = parser->sink.streams;
    enum match found = match_words(text + at, length - at, is_exact ? only : first, out_tag);
    if (*out_tag == tags->key_begin && tags->has_lines && at == 0)
        return MATCH_NONE;
    if (found != MATCH_WHOLE || *out_tag == tags->key_begin || is_exact)
        return found;
    at += strlen(*out_tag);
    while (at < length && text_is_space(text[at]))
        at++;
    if (at == length && !is_end && length < MAX_END_BYTES)
        return MATCH_PART;
    if (at == length)
        return MATCH_WHOLE;
    return match_words(text + at, length - at, *out_tag == tags->end ? behind_end : behind_value,
                       &behind);
}

static enum tool_step push(struct tool_parser *parser, char byte);

/* Ends the value in front of what `length` bytes of the tail are, and reads those. The white space
 * there is the value's, but for the line feed of its line. */
static enum tool_step end_value(struct tool_parser *parser, const char *tag, size_t start) {
    char text[TOOL_TAIL_BYTES];
    const struct tool_tags *tags = parser->format->tags;
    size_t length = parser->tail_length - start;
    memcpy(text, parser->tail + start, length);
    size_t at = text[0] == '\n';
    if (!tags->has_lines)
        tool_members_value(&parser->members, text, at);
    tool_members_end_value(&parser->members);
    parser->tail_length = 0;
    if (tag == tags->value_end)
        at += strlen(tag);
    enum tool_step step = go(parser, TAGS_BETWEEN);
    for (; at < length && step == TOOL_MORE; at++)
        step = push(parser, text[at]);
    return step;
}

static enum tool_step push_value(struct tool_parser *parser, char byte) {
    const char *tag;
    size_t start = 0;
    bool is_first = parser->state == (int)TAGS_VALUE_START;
    parser->state = TAGS_VALUE;
    if (is_first && byte == '\n' && parser->format->tags->has_lines)
        return TOOL_MORE;
    parser->tail[parser->tail_length++] = byte;
    enum match found = MATCH_NONE;
    for (; start < parser->tail_length && found == MATCH_NONE; start += found == MATCH_NONE)
        found = match_end(parser, parser->tail + start, parser->tail_length - start, false, &tag);
    tool_members_value(&parser->members, parser->tail, start);
    if (found == MATCH_WHOLE)
        return end_value(parser, tag, start);
    parser->tail_length -= start;
    memmove(parser->tail, parser->tail + start, parser->tail_length);
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
    case TAGS_SLASH:
        return push_slash(parser, byte);
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
    case TAGS_LAST:
        step = push_expected(parser, byte, TAGS_CLOSE);
        if (parser->state != (int)TAGS_CLOSE)
            return step;
        end_call(parser);
        return TOOL_END;
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

/* The tags that close the call, and the last value, may be missing. */
static bool finish(struct tool_parser *parser) {
    const char *tag;
    if (parser->state == (int)TAGS_VALUE &&
        match_end(parser, parser->tail, parser->tail_length, true, &tag) == MATCH_WHOLE)
        end_value(parser, tag, 0);
    bool is_whole = parser->state == (int)TAGS_BETWEEN && parser->sink.is_open;
    if (is_whole)
        end_call(parser);
    return is_whole || parser->state == (int)TAGS_CLOSE;
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

const struct tool_format tool_qwen3_coder_format = {.marker = MARKER,
                                                    .short_marker = "<function=",
                                                    .begin = begin,
                                                    .push = push,
                                                    .finish = finish,
                                                    .tags = &qwen3_coder};
const struct tool_format tool_glm_format = {
    .marker = MARKER, .begin = begin, .push = push, .finish = finish, .tags = &glm};
