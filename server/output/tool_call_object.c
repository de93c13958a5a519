#include "server/output/tool_call_object.h"

#include "server/output/text_marker.h"

#include <string.h>

void tool_call_object_begin(struct tool_call_object *object, struct tool_call_sink *sink,
                            bool needs_arguments) {
    object->sink = sink;
    object->needs_arguments = needs_arguments;
    object->is_bare = false;
    object->state = TOOL_CALL_OBJECT_OPEN;
    object->name_length = 0;
    object->has_arguments = false;
    byte_buffer_clear(&object->waiting);
}

void tool_call_object_begin_named(struct tool_call_object *object, struct tool_call_sink *sink,
                                  const char *name, size_t length) {
    tool_call_object_begin(object, sink, true);
    object->is_bare = true;
    object->state = TOOL_CALL_OBJECT_IN_ARGUMENTS;
    memcpy(object->name, name, length);
    object->name_length = length;
    tool_call_arguments_init(&object->arguments);
}

void tool_call_object_finish(struct tool_call_object *object) {
    byte_buffer_finish(&object->waiting);
}

static enum tool_call_step go(struct tool_call_object *object, enum tool_call_object_state state) {
    object->state = state;
    return TOOL_CALL_MORE;
}

/* Gives out what can be: the call itself once both sides of it are there. */
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

static enum tool_call_step begin_word(struct tool_call_object *object,
                                      enum tool_call_object_state state) {
    json_stream_init(&object->json);
    json_stream_push(&object->json, '"');
    object->word_length = 0;
    object->unescape = (struct json_unescape){0};
    return go(object, state);
}

/* A word too long to be of interest is cut, at more than a name may have. */
static enum json_stream_step push_word(struct tool_call_object *object, char byte) {
    enum json_stream_step step = json_stream_push(&object->json, byte);
    char text[JSON_UNESCAPE_MAX_BYTES];
    size_t length = 0;
    if (step == JSON_STREAM_MORE)
        length = json_unescape_push(&object->unescape, byte, text);
    else if (step == JSON_STREAM_DONE)
        length = json_unescape_end(&object->unescape, text);
    for (size_t i = 0; i < length && object->word_length < sizeof(object->word); i++)
        object->word[object->word_length++] = text[i];
    return step;
}

static bool word_is(const struct tool_call_object *object, const char *word) {
    return object->word_length == strlen(word) &&
           memcmp(object->word, word, object->word_length) == 0;
}

static enum tool_call_step push_key(struct tool_call_object *object, char byte) {
    enum json_stream_step step = push_word(object, byte);
    if (step == JSON_STREAM_MORE)
        return TOOL_CALL_MORE;
    return step == JSON_STREAM_DONE ? go(object, TOOL_CALL_OBJECT_COLON) : TOOL_CALL_BAD;
}

/* Of a key that comes twice the first counts. */
static enum tool_call_step begin_value(struct tool_call_object *object) {
    json_stream_init(&object->json);
    if (word_is(object, "name") && object->name_length == 0)
        return go(object, TOOL_CALL_OBJECT_NAME);
    bool is_arguments = word_is(object, "arguments") || word_is(object, "parameters");
    if (!is_arguments || object->has_arguments)
        return go(object, TOOL_CALL_OBJECT_IN_OTHER);
    tool_call_arguments_init(&object->arguments);
    return go(object, TOOL_CALL_OBJECT_IN_ARGUMENTS);
}

static enum tool_call_step end_name(struct tool_call_object *object) {
    if (!tool_call_sink_takes(object->sink, object->word, object->word_length))
        return TOOL_CALL_BAD;
    memcpy(object->name, object->word, object->word_length);
    object->name_length = object->word_length;
    object->state = TOOL_CALL_OBJECT_AFTER_VALUE;
    return release(object);
}

static enum tool_call_step push_name(struct tool_call_object *object, char byte) {
    enum json_stream_step step = push_word(object, byte);
    if (step == JSON_STREAM_MORE)
        return TOOL_CALL_MORE;
    return step == JSON_STREAM_DONE ? end_name(object) : TOOL_CALL_BAD;
}

static enum tool_call_step push_arguments(struct tool_call_object *object, char byte) {
    enum json_stream_step step =
        tool_call_arguments_push(&object->arguments, byte, &object->waiting);
    if (step == JSON_STREAM_BAD)
        return TOOL_CALL_BAD;
    bool is_done = step == JSON_STREAM_DONE;
    object->has_arguments = is_done || tool_call_arguments_has_begun(&object->arguments);
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

/* Between the words and values, where white space may stand. */
static enum tool_call_step push_structure(struct tool_call_object *object, char byte) {
    if (text_is_space(byte))
        return TOOL_CALL_MORE;
    switch (object->state) {
    case TOOL_CALL_OBJECT_OPEN:
        return byte == '{' ? go(object, TOOL_CALL_OBJECT_KEY) : TOOL_CALL_BAD;
    case TOOL_CALL_OBJECT_KEY: /* also of the first: an empty object is no call */
        return byte == '"' ? begin_word(object, TOOL_CALL_OBJECT_IN_KEY) : TOOL_CALL_BAD;
    case TOOL_CALL_OBJECT_COLON:
        return byte == ':' ? begin_value(object) : TOOL_CALL_BAD;
    case TOOL_CALL_OBJECT_NAME:
        return byte == '"' ? begin_word(object, TOOL_CALL_OBJECT_IN_NAME) : TOOL_CALL_BAD;
    default: /* behind a value */
        if (byte == '}')
            return end_object(object);
        return byte == ',' ? go(object, TOOL_CALL_OBJECT_KEY) : TOOL_CALL_BAD;
    }
}

enum tool_call_step tool_call_object_push(struct tool_call_object *object, char byte) {
    switch (object->state) {
    case TOOL_CALL_OBJECT_IN_KEY:
        return push_key(object, byte);
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
