/* <|tool_calls_begin|><|tool_call_begin|>f<|tool_sep|>{"a":
 * 1}<|tool_call_end|>...<|tool_calls_end|>
 *
 * The forms of DeepSeek V3.1 (its markers have full-width bars and U+2581 for the underscores), and
 * with other markers of Kimi K2, whose name is an id: functions.f:0. DeepSeek V3 and R1 write
 *     function<|tool_sep|>f
 *     ```json
 *     {"a": 1}
 *     ```
 * in a call. The section's end may be missing. */
#include "server/output/tool_sections.h"

#include "server/output/tool_parser.h"

#define FUNCTIONS "functions."

enum sections_state {
    SECTIONS_START, /* in front of the first call */
    SECTIONS_BEGIN, /* in call_begin */
    SECTIONS_WORD,  /* the name; with DeepSeek V3 the call's type */
    SECTIONS_SEPARATOR,
    SECTIONS_AFTER_SEPARATOR,
    SECTIONS_NAME, /* DeepSeek V3's */
    SECTIONS_FENCE,
    SECTIONS_ARGUMENTS,
    SECTIONS_TAIL, /* after the arguments */
    SECTIONS_CALL_END,
    SECTIONS_NEXT, /* in front of a further call, or the section's end */
    SECTIONS_IN_NEXT,
};

static enum tool_step go(struct tool_parser *parser, enum sections_state state) {
    parser->state = (int)state;
    return TOOL_MORE;
}

static enum tool_step expect(struct tool_parser *parser, enum sections_state state,
                             const char *literal) {
    parser->expected = literal;
    return go(parser, state);
}

static void begin(struct tool_parser *parser) {
    expect(parser, SECTIONS_START, parser->format->sections->call_begin);
}

/* Reads the next byte of a literal, after which comes `next`. */
static enum tool_step push_expected(struct tool_parser *parser, char byte, enum sections_state next,
                                    enum tool_step other) {
    if (byte != *parser->expected)
        return other;
    return *++parser->expected == '\0' ? go(parser, next) : TOOL_MORE;
}

/* Takes the name out of functions.NAME:INDEX. */
static void shorten_id(struct tool_parser *parser) {
    const size_t prefix = sizeof(FUNCTIONS) - 1;
    size_t end = parser->name_length;
    while (end > 0 && parser->name[end - 1] >= '0' && parser->name[end - 1] <= '9')
        end--;
    if (end > 0 && end < parser->name_length && parser->name[end - 1] == ':')
        parser->name_length = end - 1;
    if (parser->name_length > prefix && memcmp(parser->name, FUNCTIONS, prefix) == 0) {
        parser->name_length -= prefix;
        memmove(parser->name, parser->name + prefix, parser->name_length);
    }
}

static enum tool_step push_word(struct tool_parser *parser, char byte) {
    const struct tool_sections *sections = parser->format->sections;
    if (byte == sections->separator[0] && parser->name_length > 0)
        return expect(parser, SECTIONS_SEPARATOR, sections->separator + 1);
    if (!tool_call_name_is_valid(&byte, 1) || parser->name_length == sizeof(parser->name))
        return TOOL_BAD;
    parser->name[parser->name_length++] = byte;
    return TOOL_MORE;
}

static enum tool_step begin_arguments(struct tool_parser *parser) {
    if (!tool_call_sink_takes(&parser->sink, parser->name, parser->name_length))
        return TOOL_BAD;
    tool_call_object_begin_named(&parser->object, &parser->sink, parser->name, parser->name_length);
    return go(parser, SECTIONS_ARGUMENTS);
}

static enum tool_step push_arguments(struct tool_parser *parser, char byte) {
    switch (tool_call_object_push(&parser->object, byte)) {
    case TOOL_CALL_MORE:
        return TOOL_MORE;
    case TOOL_CALL_DONE:
        parser->between_tool_calls = true;
        return go(parser, SECTIONS_TAIL);
    case TOOL_CALL_BAD:
        break;
    }
    return TOOL_BAD;
}

static enum tool_step push_after_separator(struct tool_parser *parser, char byte) {
    const struct tool_sections *sections = parser->format->sections;
    if (sections->has_ids)
        shorten_id(parser);
    if (sections->has_ids || !tool_call_name_is_valid(&byte, 1))
        return begin_arguments(parser) == TOOL_BAD ? TOOL_BAD : push_arguments(parser, byte);
    parser->name[0] = byte;
    parser->name_length = 1;
    return go(parser, SECTIONS_NAME);
}

static enum tool_step push_name(struct tool_parser *parser, char byte) {
    if (byte == '\n')
        return expect(parser, SECTIONS_FENCE, "```json\n");
    return push_word(parser, byte);
}

static enum tool_step push_call_end(struct tool_parser *parser, char byte) {
    enum tool_step step = push_expected(parser, byte, SECTIONS_NEXT, TOOL_END_BEFORE);
    parser->drops_held = parser->state == (int)SECTIONS_NEXT;
    return step;
}

static enum tool_step push_tail(struct tool_parser *parser, char byte) {
    const struct tool_sections *sections = parser->format->sections;
    if (text_is_space(byte) || (byte == '`' && !sections->has_ids))
        return TOOL_MORE;
    parser->expected = sections->call_end;
    parser->state = SECTIONS_CALL_END;
    return push_call_end(parser, byte);
}

/* What is read may be call_begin or section_end, whose beginnings are the same. */
static enum tool_step push_in_next(struct tool_parser *parser, char byte) {
    const struct tool_sections *sections = parser->format->sections;
    const char *begin = sections->call_begin, *end = sections->section_end;
    size_t at = parser->expected >= begin && parser->expected < begin + strlen(begin)
                    ? (size_t)(parser->expected - begin)
                    : strlen(begin);
    if (at < strlen(begin) && byte != begin[at] && memcmp(begin, end, at) == 0)
        parser->expected = end + at;
    if (push_expected(parser, byte, SECTIONS_WORD, TOOL_END_BEFORE) == TOOL_END_BEFORE)
        return TOOL_END_BEFORE;
    if (parser->state != (int)SECTIONS_WORD)
        return TOOL_MORE;
    parser->name_length = 0;
    parser->between_tool_calls = false;
    return parser->expected == end + strlen(end) ? TOOL_END : TOOL_MORE;
}

static enum tool_step push(struct tool_parser *parser, char byte) {
    switch ((enum sections_state)parser->state) {
    case SECTIONS_START:
        if (text_is_space(byte))
            return TOOL_MORE;
        parser->name_length = 0;
        parser->state = SECTIONS_BEGIN;
        return push_expected(parser, byte, SECTIONS_WORD, TOOL_BAD);
    case SECTIONS_BEGIN:
        return push_expected(parser, byte, SECTIONS_WORD, TOOL_BAD);
    case SECTIONS_WORD:
        return push_word(parser, byte);
    case SECTIONS_SEPARATOR:
        return push_expected(parser, byte, SECTIONS_AFTER_SEPARATOR, TOOL_BAD);
    case SECTIONS_AFTER_SEPARATOR:
        return push_after_separator(parser, byte);
    case SECTIONS_NAME:
        return push_name(parser, byte);
    case SECTIONS_FENCE:
        if (byte != *parser->expected)
            return TOOL_BAD;
        return *++parser->expected == '\0' ? begin_arguments(parser) : TOOL_MORE;
    case SECTIONS_ARGUMENTS:
        return push_arguments(parser, byte);
    case SECTIONS_TAIL:
        return push_tail(parser, byte);
    case SECTIONS_CALL_END:
        return push_call_end(parser, byte);
    case SECTIONS_NEXT:
        if (text_is_space(byte))
            return TOOL_MORE;
        if (!tool_call_sink_has_room(&parser->sink))
            return TOOL_END_BEFORE;
        parser->expected = parser->format->sections->call_begin;
        parser->state = SECTIONS_IN_NEXT;
        return push_in_next(parser, byte);
    case SECTIONS_IN_NEXT:
        break;
    }
    return push_in_next(parser, byte);
}

#define BAR "\xef\xbd\x9c"   /* U+FF5C */
#define SPACE "\xe2\x96\x81" /* U+2581 */
#define DEEPSEEK(words) "<" BAR words BAR ">"

static const struct tool_sections deepseek = {
    .call_begin = DEEPSEEK("tool" SPACE "call" SPACE "begin"),
    .separator = DEEPSEEK("tool" SPACE "sep"),
    .call_end = DEEPSEEK("tool" SPACE "call" SPACE "end"),
    .section_end = DEEPSEEK("tool" SPACE "calls" SPACE "end"),
};
static const struct tool_sections kimi_k2 = {
    .call_begin = "<|tool_call_begin|>",
    .separator = "<|tool_call_argument_begin|>",
    .call_end = "<|tool_call_end|>",
    .section_end = "<|tool_calls_section_end|>",
    .has_ids = true,
};

const struct tool_format tool_deepseek_format = {.marker =
                                                     DEEPSEEK("tool" SPACE "calls" SPACE "begin"),
                                                 .begin = begin,
                                                 .push = push,
                                                 .sections = &deepseek};
const struct tool_format tool_kimi_k2_format = {
    .marker = "<|tool_calls_section_begin|>", .begin = begin, .push = push, .sections = &kimi_k2};

const struct tool_sections *tool_sections_of(enum tool_call_format format) {
    const struct tool_format *found = tool_format_of(format);
    return found != NULL ? found->sections : NULL;
}
