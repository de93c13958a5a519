#include "server/output/harmony_parser.h"

#define CHANNEL "<|channel|>"
#define MESSAGE "<|message|>"
#define RECIPIENT "to="
#define FUNCTIONS "functions."

/* What a message may begin with, and what its text ends at; those of the first may begin the next.
 */
static const char *const beginnings[] = {"<|start|>", CHANNEL, MESSAGE, " to="};
static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", CHANNEL};
#define NUM_BEGINNINGS (sizeof(beginnings) / sizeof(beginnings[0]))
#define NUM_ENDS (sizeof(ends) / sizeof(ends[0]))

void harmony_parser_init(struct harmony_parser *parser, const struct output_parser_config *config,
                         struct output_parts *parts, struct tool_parser *content) {
    *parser = (struct harmony_parser){
        .state = HARMONY_START,
        .reads_calls = config->tools == TOOL_CALL_FORMAT_HARMONY,
        .reads_reasoning = config->reasoning == REASONING_FORMAT_HARMONY,
        .begins_message = true,
        .parts = parts,
        .content = content,
    };
}

void harmony_parser_finish(struct harmony_parser *parser) {
    byte_buffer_finish(&parser->held);
    tool_call_object_finish(&parser->call);
}

static struct text held_text(const struct harmony_parser *parser) {
    return (struct text){parser->held.data, parser->held.length};
}

/* Returns whether some of the words begins with the text; *out_is_word: it is that word. */
static bool begins_word(struct text text, const char *const *words, size_t count,
                        bool *out_is_word) {
    *out_is_word = false;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(words[i], text.data, text.length) != 0)
            continue;
        *out_is_word = strlen(words[i]) == text.length;
        return true;
    }
    return false;
}

static void put_byte(struct harmony_parser *parser, bool is_reasoning, char byte) {
    if (is_reasoning)
        output_parts_add(parser->parts, OUTPUT_PART_REASONING, 0, &byte, 1);
    else
        tool_parser_push(parser->content, byte);
}

/* Writes text of the message; in front of a further one of its kind a line feed. */
static void put(struct harmony_parser *parser, bool is_reasoning, struct text text) {
    for (size_t i = 0; i < text.length; i++) {
        if (parser->begins_message && parser->has_message[is_reasoning])
            put_byte(parser, is_reasoning, '\n');
        parser->begins_message = false;
        parser->has_message[is_reasoning] = true;
        put_byte(parser, is_reasoning, text.data[i]);
    }
}

static void put_held(struct harmony_parser *parser, bool is_reasoning) {
    put(parser, is_reasoning, held_text(parser));
    byte_buffer_clear(&parser->held);
}

/* Returns the word after the last `mark` of a header; empty: there is none. */
static struct text word_behind(struct text header, const char *mark) {
    struct text word = {header.data, 0};
    size_t length = strlen(mark);
    for (size_t at = header.length; at-- > 0;) {
        if (header.length - at < length || memcmp(header.data + at, mark, length) != 0)
            continue;
        word.data = header.data + at + length;
        header.length -= at + length;
        break;
    }
    while (word.length < header.length && word.data[word.length] != '<' &&
           word.data[word.length] != ' ' && word.data != header.data)
        word.length++;
    return word;
}

/* Begins the message whose header is held. */
static void begin_message(struct harmony_parser *parser) {
    static const size_t prefix = sizeof(FUNCTIONS) - 1;
    struct text channel = word_behind(held_text(parser), CHANNEL);
    struct text name = word_behind(held_text(parser), RECIPIENT);
    struct tool_call_sink *sink = &parser->content->sink;
    bool is_function = name.length > prefix && memcmp(name.data, FUNCTIONS, prefix) == 0;
    parser->begins_message = true;
    if (is_function && parser->reads_calls && tool_call_sink_has_room(sink) &&
        tool_call_sink_takes(sink, name.data + prefix, name.length - prefix)) {
        tool_call_object_begin_named(&parser->call, sink, name.data + prefix, name.length - prefix);
        parser->state = HARMONY_CALL; /* the header stays held until the call is out */
        return;
    }
    bool is_reasoning = text_is(channel, "analysis") && parser->reads_reasoning;
    parser->state = is_reasoning ? HARMONY_REASONING : HARMONY_CONTENT;
    if (name.length > 0 && !is_reasoning)
        put_held(parser, false);
    byte_buffer_clear(&parser->held);
}

static void push_header(struct harmony_parser *parser, char byte) {
    byte_buffer_append(&parser->held, &byte, 1);
    if (text_ends_with(held_text(parser), MESSAGE)) {
        begin_message(parser);
    } else if (parser->held.length > HARMONY_MAX_HEADER_BYTES) {
        parser->state = HARMONY_CONTENT;
        put_held(parser, false);
    }
}

static void push_start(struct harmony_parser *parser, char byte) {
    bool is_word;
    byte_buffer_append(&parser->held, &byte, 1);
    if (parser->held.failed)
        return;
    bool may_begin = begins_word(held_text(parser), beginnings, NUM_BEGINNINGS, &is_word);
    if (may_begin && !is_word)
        return;
    if (is_word) {
        parser->state = HARMONY_HEADER;
        if (text_is(held_text(parser), MESSAGE))
            begin_message(parser);
        return;
    }
    struct byte_buffer text = parser->held;
    parser->held = (struct byte_buffer){0};
    parser->begins_message = true;
    parser->state = HARMONY_CONTENT;
    for (size_t i = 0; i < text.length; i++)
        harmony_parser_push(parser, text.data[i]);
    byte_buffer_finish(&text);
}

/* Ends the message at the marker that is held, which may begin the next one. */
static void end_message(struct harmony_parser *parser) {
    bool is_beginning;
    begins_word(held_text(parser), beginnings, NUM_BEGINNINGS, &is_beginning);
    parser->state = is_beginning ? HARMONY_HEADER : HARMONY_START;
    parser->begins_message = true;
    if (!is_beginning)
        byte_buffer_clear(&parser->held);
}

/* A '<' begins each marker and is in none of them again. */
static void push_text(struct harmony_parser *parser, char byte, bool is_reasoning) {
    bool is_word;
    if (byte == '<')
        put_held(parser, is_reasoning);
    byte_buffer_append(&parser->held, &byte, 1);
    if (parser->held.failed)
        return;
    if (!begins_word(held_text(parser), ends, NUM_ENDS, &is_word))
        put_held(parser, is_reasoning);
    else if (is_word)
        end_message(parser);
}

/* Continues as content after a released call, or with something that is not a call. */
static void leave_call(struct harmony_parser *parser, char byte) {
    struct tool_call_sink *sink = &parser->content->sink;
    parser->state = HARMONY_CONTENT;
    tool_call_sink_drop(sink);
    put_held(parser, false);
    push_text(parser, byte, false);
}

/* As tool_parser.h bounds what is held. */
static void pass_bound(struct harmony_parser *parser, struct tool_call_sink *sink) {
    if (sink->is_open) {
        tool_call_sink_release(sink);
        byte_buffer_clear(&parser->held);
        return;
    }
    parser->state = HARMONY_CONTENT;
    put_held(parser, false);
}

static void push_call(struct harmony_parser *parser, char byte) {
    struct tool_call_sink *sink = &parser->content->sink;
    enum tool_call_step step = tool_call_object_push(&parser->call, byte);
    bool is_out = (sink->is_open && sink->is_out) || step == TOOL_CALL_DONE;
    if (step == TOOL_CALL_BAD) {
        leave_call(parser, byte);
        return;
    }
    if (is_out)
        byte_buffer_clear(&parser->held);
    else
        byte_buffer_append(&parser->held, &byte, 1);
    if (step == TOOL_CALL_DONE)
        parser->state = HARMONY_AFTER_CALL;
    else if (parser->held.length > TEXT_MARKER_MAX_HELD_BYTES)
        pass_bound(parser, sink);
}

void harmony_parser_push(struct harmony_parser *parser, char byte) {
    switch (parser->state) {
    case HARMONY_START:
        push_start(parser, byte);
        break;
    case HARMONY_HEADER:
        push_header(parser, byte);
        break;
    case HARMONY_REASONING:
        push_text(parser, byte, true);
        break;
    case HARMONY_AFTER_CALL:
        if (text_is_space(byte))
            break;
        parser->state = HARMONY_CONTENT;
        push_text(parser, byte, false);
        break;
    case HARMONY_CONTENT:
        push_text(parser, byte, false);
        break;
    case HARMONY_CALL:
        push_call(parser, byte);
        break;
    }
    if (parser->held.failed || parser->call.waiting.failed)
        parser->content->failed = true;
}

void harmony_parser_end(struct harmony_parser *parser, bool is_cut) {
    struct tool_call_sink *sink = &parser->content->sink;
    if (parser->state == HARMONY_CALL) {
        if (is_cut)
            tool_call_sink_cut(sink);
        tool_call_sink_drop(sink);
    }
    if (parser->state == HARMONY_HEADER) /* markers */
        byte_buffer_clear(&parser->held);
    put_held(parser, parser->state == HARMONY_REASONING);
    tool_parser_end(parser->content, is_cut);
}
