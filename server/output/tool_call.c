#include "server/output/tool_call.h"

#include "server/output/text_marker.h"

#include <string.h>

/* --- The queue of parts --- */

static size_t num_entries(const struct output_parts *parts) {
    return parts->entries.length / sizeof(struct output_part_entry);
}

/* The entries lie in bytes of malloc's alignment. */
static struct output_part_entry *entry_at(const struct output_parts *parts, size_t index) {
    return (struct output_part_entry *)(void *)parts->entries.data + index;
}

void output_parts_clear(struct output_parts *parts) {
    byte_buffer_clear(&parts->text);
    byte_buffer_clear(&parts->entries);
    parts->num_taken = 0;
}

/* A name is a separate part even after another one. */
static bool continues_last(const struct output_parts *parts, enum output_part_kind kind,
                           int32_t tool_index) {
    size_t count = num_entries(parts);
    if (count == parts->num_taken || kind == OUTPUT_PART_TOOL_CALL)
        return false;
    const struct output_part_entry *last = entry_at(parts, count - 1);
    return last->kind == kind && last->tool_index == tool_index;
}

void output_parts_add(struct output_parts *parts, enum output_part_kind kind, int32_t tool_index,
                      const char *text, size_t length) {
    if (length == 0 || output_parts_failed(parts))
        return;
    if (parts->num_taken > 0 && parts->num_taken == num_entries(parts))
        output_parts_clear(parts);
    struct output_part_entry entry = {kind, tool_index, parts->text.length, length};
    byte_buffer_append(&parts->text, text, length);
    if (parts->text.failed)
        return;
    if (continues_last(parts, kind, tool_index))
        entry_at(parts, num_entries(parts) - 1)->length += length;
    else
        byte_buffer_append(&parts->entries, &entry, sizeof(entry));
}

bool output_parts_failed(const struct output_parts *parts) {
    return parts->text.failed || parts->entries.failed;
}

bool output_parts_take(struct output_parts *parts, struct output_part *out) {
    if (parts->num_taken == num_entries(parts))
        return false;
    const struct output_part_entry *entry = entry_at(parts, parts->num_taken++);
    *out = (struct output_part){.kind = entry->kind,
                                .tool_index = entry->tool_index,
                                .text = parts->text.data + entry->start,
                                .length = entry->length};
    return true;
}

void output_parts_finish(struct output_parts *parts) {
    byte_buffer_finish(&parts->text);
    byte_buffer_finish(&parts->entries);
}

bool tool_call_name_is_valid(const char *name, size_t length) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/";
    if (length == 0 || length > OUTPUT_MAX_TOOL_NAME_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] == '\0' || strchr(allowed, name[i]) == NULL)
            return false;
    return true;
}

bool tool_call_name_is_listed(const char *names, int count, const char *name, size_t length) {
    for (int i = 0; i < count; i++, names += strlen(names) + 1)
        if (strlen(names) == length && memcmp(names, name, length) == 0)
            return true;
    return false;
}

/* An empty list allows all. */
static bool is_among(const char *names, int count, const char *name, size_t length) {
    return count == 0 || tool_call_name_is_listed(names, count, name, length);
}

bool tool_call_sink_takes(const struct tool_call_sink *sink, const char *name, size_t length) {
    return tool_call_name_is_valid(name, length) &&
           is_among(sink->allowed_names, sink->num_allowed_names, name, length);
}

bool tool_call_sink_has_room(const struct tool_call_sink *sink) {
    return sink->num_calls < sink->max_calls;
}

static void add(struct tool_call_sink *sink, enum output_part_kind kind, const char *text,
                size_t length) {
    struct output_parts *parts = sink->is_out ? sink->parts : &sink->pending;
    output_parts_add(parts, kind, sink->num_calls - 1, text, length);
}

void tool_call_sink_begin(struct tool_call_sink *sink, const char *name, size_t length) {
    sink->num_calls++;
    sink->is_open = true;
    sink->has_arguments = false;
    sink->is_out = sink->streams;
    if (sink->streams)
        sink->num_out = sink->num_calls;
    add(sink, OUTPUT_PART_TOOL_CALL, name, length);
}

void tool_call_sink_arguments(struct tool_call_sink *sink, const char *text, size_t length) {
    add(sink, OUTPUT_PART_TOOL_ARGUMENTS, text, length);
    sink->has_arguments = sink->has_arguments || length > 0;
}

void tool_call_sink_end(struct tool_call_sink *sink) {
    if (!sink->has_arguments)
        tool_call_sink_arguments(sink, "{}", 2);
    sink->is_open = false;
    if (!sink->defers)
        tool_call_sink_release(sink);
}

void tool_call_sink_release(struct tool_call_sink *sink) {
    struct output_part part;
    bool failed = output_parts_failed(&sink->pending);
    while (!failed && output_parts_take(&sink->pending, &part))
        output_parts_add(sink->parts, part.kind, part.tool_index, part.text, part.length);
    sink->parts->text.failed = sink->parts->text.failed || failed;
    sink->num_out = sink->num_calls;
    sink->is_out = sink->is_open;
}

void tool_call_sink_cut(struct tool_call_sink *sink) {
    sink->is_broken = sink->is_broken || sink->num_out > 0;
}

void tool_call_sink_drop(struct tool_call_sink *sink) {
    sink->is_broken = sink->is_broken || (sink->is_open && sink->is_out);
    output_parts_clear(&sink->pending);
    sink->num_calls = sink->num_out;
    sink->is_open = false;
}

void tool_call_sink_finish(struct tool_call_sink *sink) {
    output_parts_finish(&sink->pending);
}

static void init_arguments(struct tool_call_arguments *arguments) {
    *arguments = (struct tool_call_arguments){.kind = TOOL_CALL_ARGUMENTS_NONE};
    json_stream_init(&arguments->json);
    json_stream_init(&arguments->inner);
}

/* Reads text of the string that holds the object; false: it holds something else. */
static bool read_inner(struct tool_call_arguments *arguments, const char *text, size_t length,
                       struct byte_buffer *out) {
    for (size_t i = 0; i < length; i++) {
        bool is_around = !arguments->has_inner || arguments->inner_done;
        if (is_around && text_is_space(text[i]))
            continue;
        if (arguments->inner_done || (!arguments->has_inner && text[i] != '{'))
            return false;
        arguments->has_inner = true;
        enum json_stream_step step = json_stream_push(&arguments->inner, text[i]);
        byte_buffer_append(out, arguments->inner.out, arguments->inner.num_out);
        if (step == JSON_STREAM_BAD)
            return false;
        arguments->inner_done = step == JSON_STREAM_DONE;
    }
    return true;
}

static enum json_stream_step push_string_of_arguments(struct tool_call_arguments *arguments,
                                                      char byte, struct byte_buffer *out) {
    enum json_stream_step step = json_stream_push(&arguments->json, byte);
    char text[JSON_UNESCAPE_MAX_BYTES];
    bool is_object = step != JSON_STREAM_BAD;
    if (step == JSON_STREAM_DONE) {
        size_t length = json_unescape_end(&arguments->string, text);
        is_object = read_inner(arguments, text, length, out) &&
                    arguments->has_inner == arguments->inner_done;
    }
    for (size_t i = 0; step == JSON_STREAM_MORE && i < arguments->json.num_out && is_object; i++) {
        size_t length = json_unescape_push(&arguments->string, arguments->json.out[i], text);
        is_object = read_inner(arguments, text, length, out);
    }
    return is_object ? step : JSON_STREAM_BAD;
}

static bool begin_arguments(struct tool_call_arguments *arguments, char byte) {
    if (byte == '{')
        arguments->kind = TOOL_CALL_ARGUMENTS_OBJECT;
    else if (byte == '"' || byte == '\'')
        arguments->kind = TOOL_CALL_ARGUMENTS_STRING;
    else if (byte == 'n' || byte == 'N')
        arguments->kind = TOOL_CALL_ARGUMENTS_NULL;
    return arguments->kind != TOOL_CALL_ARGUMENTS_NONE;
}

/* Appends what the byte releases to out. White space may come first. BAD also for other kinds of
 * value. */
static enum json_stream_step read_arguments(struct tool_call_arguments *arguments, char byte,
                                            struct byte_buffer *out) {
    bool is_first = arguments->kind == TOOL_CALL_ARGUMENTS_NONE;
    if (is_first && text_is_space(byte))
        return JSON_STREAM_MORE;
    if (is_first && !begin_arguments(arguments, byte))
        return JSON_STREAM_BAD;
    if (arguments->kind == TOOL_CALL_ARGUMENTS_STRING && !is_first)
        return push_string_of_arguments(arguments, byte, out);
    enum json_stream_step step = json_stream_push(&arguments->json, byte);
    if (arguments->kind == TOOL_CALL_ARGUMENTS_OBJECT)
        byte_buffer_append(out, arguments->json.out, arguments->json.num_out);
    return step;
}

void tool_call_object_begin(struct tool_call_object *object, struct tool_call_sink *sink,
                            bool needs_arguments) {
    object->sink = sink;
    object->needs_arguments = needs_arguments;
    object->is_bare = false;
    object->state = TOOL_CALL_OBJECT_OPEN;
    object->name_length = 0;
    object->has_arguments = false;
    object->num_names = 0;
    object->arguments_key = NULL;
    byte_buffer_clear(&object->waiting);
}

void tool_call_object_begin_named(struct tool_call_object *object, struct tool_call_sink *sink,
                                  const char *name, size_t length) {
    tool_call_object_begin(object, sink, true);
    object->is_bare = true;
    object->state = TOOL_CALL_OBJECT_IN_ARGUMENTS;
    memcpy(object->name, name, length);
    object->name_length = length;
    init_arguments(&object->arguments);
}

void tool_call_object_finish(struct tool_call_object *object) {
    byte_buffer_finish(&object->waiting);
}

static enum tool_call_step go(struct tool_call_object *object, enum tool_call_object_state state) {
    object->state = state;
    return TOOL_CALL_MORE;
}

/* Writes what can be written: the call itself once its name and its arguments have begun. */
static enum tool_call_step release(struct tool_call_object *object) {
    if (object->name_length == 0 || !object->has_arguments)
        return TOOL_CALL_MORE;
    if (!object->sink->is_open)
        tool_call_sink_begin(object->sink, object->name, object->name_length);
    if (object->waiting.failed)
        return TOOL_CALL_BAD;
    tool_call_sink_arguments(object->sink, object->waiting.data, object->waiting.length);
    byte_buffer_clear(&object->waiting);
    return TOOL_CALL_MORE;
}

static enum tool_call_step end_object(struct tool_call_object *object) {
    if (object->name_length == 0 || (object->needs_arguments && !object->has_arguments))
        return TOOL_CALL_BAD;
    if (!object->sink->is_open)
        tool_call_sink_begin(object->sink, object->name, object->name_length);
    tool_call_sink_end(object->sink);
    return TOOL_CALL_DONE;
}

static enum tool_call_step begin_word(struct tool_call_object *object, char byte,
                                      enum tool_call_object_state state) {
    json_stream_init(&object->json);
    if (byte != '"' && byte != '\'')
        return TOOL_CALL_BAD;
    json_stream_push(&object->json, byte);
    object->word_length = 0;
    object->unescape = (struct json_unescape){0};
    return go(object, state);
}

/* A word too long to be of interest is cut, at more than a name may have. */
static void add_to_word(struct tool_call_object *object, const char *text, size_t length) {
    for (size_t i = 0; i < length && object->word_length < sizeof(object->word); i++)
        object->word[object->word_length++] = text[i];
}

static enum json_stream_step push_word(struct tool_call_object *object, char byte) {
    enum json_stream_step step = json_stream_push(&object->json, byte);
    char text[JSON_UNESCAPE_MAX_BYTES];
    if (step == JSON_STREAM_DONE)
        add_to_word(object, text, json_unescape_end(&object->unescape, text));
    for (size_t i = 0; step == JSON_STREAM_MORE && i < object->json.num_out; i++)
        add_to_word(object, text, json_unescape_push(&object->unescape, object->json.out[i], text));
    return step;
}

static bool word_is(const struct tool_call_object *object, const char *word) {
    return object->word_length == strlen(word) &&
           memcmp(object->word, word, object->word_length) == 0;
}

/* A key that comes twice counts the first time. */
static enum tool_call_step begin_value(struct tool_call_object *object) {
    bool is_name = word_is(object, "name") || word_is(object, "tool_name");
    bool is_arguments = object->arguments_key != NULL
                            ? word_is(object, object->arguments_key)
                            : word_is(object, "arguments") || word_is(object, "parameters");
    bool is_other = !is_name && !is_arguments;
    if (is_other && object->num_names > 0 && !word_is(object, "id") && !word_is(object, "type"))
        return TOOL_CALL_BAD;
    json_stream_init(&object->json);
    if (is_name && object->name_length == 0)
        return go(object, TOOL_CALL_OBJECT_NAME);
    if (!is_arguments || object->has_arguments)
        return go(object, TOOL_CALL_OBJECT_IN_OTHER);
    init_arguments(&object->arguments);
    return go(object, TOOL_CALL_OBJECT_IN_ARGUMENTS);
}

static enum tool_call_step push_name(struct tool_call_object *object, char byte) {
    enum json_stream_step step = push_word(object, byte);
    if (step == JSON_STREAM_MORE)
        return TOOL_CALL_MORE;
    if (step != JSON_STREAM_DONE ||
        !tool_call_sink_takes(object->sink, object->word, object->word_length) ||
        !is_among(object->names, object->num_names, object->word, object->word_length))
        return TOOL_CALL_BAD;
    memcpy(object->name, object->word, object->word_length);
    object->name_length = object->word_length;
    object->state = TOOL_CALL_OBJECT_AFTER_VALUE;
    return release(object);
}

static enum tool_call_step push_arguments(struct tool_call_object *object, char byte) {
    enum json_stream_step step = read_arguments(&object->arguments, byte, &object->waiting);
    if (step == JSON_STREAM_BAD)
        return TOOL_CALL_BAD;
    bool is_done = step == JSON_STREAM_DONE;
    object->has_arguments = is_done || object->arguments.kind == TOOL_CALL_ARGUMENTS_OBJECT ||
                            object->arguments.kind == TOOL_CALL_ARGUMENTS_STRING;
    if (is_done)
        object->state = TOOL_CALL_OBJECT_AFTER_VALUE;
    enum tool_call_step released = release(object);
    return released == TOOL_CALL_MORE && is_done && object->is_bare ? end_object(object) : released;
}

static enum tool_call_step push_structure(struct tool_call_object *object, char byte);

static enum tool_call_step push_other(struct tool_call_object *object, char byte) {
    switch (json_stream_push(&object->json, byte)) {
    case JSON_STREAM_MORE:
        return TOOL_CALL_MORE;
    case JSON_STREAM_DONE:
        return go(object, TOOL_CALL_OBJECT_AFTER_VALUE);
    case JSON_STREAM_DONE_BEFORE:
        object->state = TOOL_CALL_OBJECT_AFTER_VALUE;
        return push_structure(object, byte);
    case JSON_STREAM_BAD:
        break;
    }
    return TOOL_CALL_BAD;
}

/* Reads what stands between the words and values, where white space may be. */
static enum tool_call_step push_structure(struct tool_call_object *object, char byte) {
    if (text_is_space(byte))
        return TOOL_CALL_MORE;
    switch (object->state) {
    case TOOL_CALL_OBJECT_OPEN:
        return byte == '{' ? go(object, TOOL_CALL_OBJECT_KEY) : TOOL_CALL_BAD;
    case TOOL_CALL_OBJECT_KEY:
        if (byte == '}') /* after a comma; an empty object is not a call */
            return end_object(object);
        return begin_word(object, byte, TOOL_CALL_OBJECT_IN_KEY);
    case TOOL_CALL_OBJECT_COLON:
        return byte == ':' ? begin_value(object) : TOOL_CALL_BAD;
    case TOOL_CALL_OBJECT_NAME:
        return begin_word(object, byte, TOOL_CALL_OBJECT_IN_NAME);
    default: /* after a value */
        if (byte == '}')
            return end_object(object);
        return byte == ',' ? go(object, TOOL_CALL_OBJECT_KEY) : TOOL_CALL_BAD;
    }
}

bool tool_call_object_end(struct tool_call_object *object) {
    bool is_whole = object->state == TOOL_CALL_OBJECT_AFTER_VALUE && object->has_arguments;
    return is_whole && end_object(object) == TOOL_CALL_DONE;
}

enum tool_call_step tool_call_object_push(struct tool_call_object *object, char byte) {
    switch (object->state) {
    case TOOL_CALL_OBJECT_IN_KEY:
        switch (push_word(object, byte)) {
        case JSON_STREAM_MORE:
            return TOOL_CALL_MORE;
        case JSON_STREAM_DONE:
            return go(object, TOOL_CALL_OBJECT_COLON);
        default:
            return TOOL_CALL_BAD;
        }
    case TOOL_CALL_OBJECT_IN_NAME:
        return push_name(object, byte);
    case TOOL_CALL_OBJECT_IN_ARGUMENTS:
        return push_arguments(object, byte);
    case TOOL_CALL_OBJECT_IN_OTHER:
        return push_other(object, byte);
    default:
        return push_structure(object, byte);
    }
}
