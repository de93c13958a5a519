#include "server/output/tool_members.h"

#include "server/output/text_marker.h"

void tool_members_begin(struct tool_members *members, struct tool_call_sink *sink,
                        struct text types, const char *name, size_t length) {
    members->sink = sink;
    members->types = parameter_types_find(types, name, length);
    members->in_value = false;
    members->is_string = false;
    byte_buffer_clear(&members->held);
}

static void put(struct tool_members *members, const char *text, size_t length) {
    tool_call_sink_arguments(members->sink, text, length);
}

static void put_string(struct tool_members *members, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        char escaped[JSON_STREAM_MAX_BYTES];
        put(members, escaped, json_stream_escape(text[i], escaped));
    }
}

void tool_members_key(struct tool_members *members, struct text function, struct text key) {
    bool is_first = !members->sink->is_open;
    if (is_first)
        tool_call_sink_begin(members->sink, function.data, function.length);
    put(members, is_first ? "{\"" : ", \"", is_first ? 2 : 3);
    put_string(members, key.data, key.length);
    put(members, "\": ", 3);
    members->in_value = true;
    members->type = parameter_types_of(members->types, key.data, key.length);
    members->is_string = members->type == PARAMETER_STRING;
    if (members->is_string)
        put(members, "\"", 1);
}

static void release_as_string(struct tool_members *members) {
    if (!members->is_string)
        put(members, "\"", 1);
    members->is_string = true;
    put_string(members, members->held.data, members->held.length);
    byte_buffer_clear(&members->held);
}

void tool_members_value(struct tool_members *members, const char *text, size_t length) {
    if (members->is_string) {
        put_string(members, text, length);
        return;
    }
    byte_buffer_append(&members->held, text, length);
    if (members->held.length > TEXT_MARKER_MAX_HELD_BYTES)
        release_as_string(members);
}

static struct text trimmed(const struct byte_buffer *value) {
    struct text text = {value->data, value->length};
    while (text.length > 0 && text_is_space(text.data[0])) {
        text.data++;
        text.length--;
    }
    while (text.length > 0 && text_is_space(text.data[text.length - 1]))
        text.length--;
    return text;
}

/* A number ends with what follows it only. */
static bool is_json(struct text text) {
    struct json_stream json;
    enum json_stream_step step = JSON_STREAM_MORE;
    json_stream_init(&json);
    for (size_t i = 0; i < text.length; i++) {
        if (step != JSON_STREAM_MORE)
            return false;
        step = json_stream_push(&json, text.data[i]);
    }
    if (step == JSON_STREAM_MORE && text.length > 0)
        return json_stream_push(&json, ' ') == JSON_STREAM_DONE_BEFORE;
    return step == JSON_STREAM_DONE;
}

static const char *word_of_python(struct text text) {
    if (text_is(text, "True"))
        return "true";
    if (text_is(text, "False"))
        return "false";
    return text_is(text, "None") ? "null" : NULL;
}

/* The value is JSON. */
static void put_json(struct tool_members *members, struct text value) {
    struct json_stream json;
    json_stream_init(&json);
    for (size_t i = 0; i < value.length; i++) {
        char text[JSON_STREAM_MAX_BYTES];
        put(members, text, json_stream_byte(&json, value.data[i], text));
        json_stream_push(&json, value.data[i]);
    }
}

static void put_held_value(struct tool_members *members) {
    struct text value = trimmed(&members->held);
    const char *word = word_of_python(value);
    bool may_be_any = members->type == PARAMETER_ANY;
    bool is_null = text_is(value, "null") || text_is(value, "None");
    if (word != NULL && (may_be_any || is_null))
        put(members, word, strlen(word));
    else if ((may_be_any || is_null) && is_json(value))
        put_json(members, value);
    else {
        release_as_string(members);
        put(members, "\"", 1);
    }
    byte_buffer_clear(&members->held);
}

void tool_members_end_value(struct tool_members *members) {
    members->in_value = false;
    if (members->is_string)
        put(members, "\"", 1);
    else
        put_held_value(members);
}

void tool_members_leave(struct tool_members *members) {
    if (!members->in_value)
        put(members, "}", 1);
    else if (members->type == PARAMETER_NULLABLE_STRING)
        release_as_string(members);
    else
        put(members, members->held.data, members->held.length);
    members->in_value = false;
    byte_buffer_clear(&members->held);
}

void tool_members_finish(struct tool_members *members) {
    byte_buffer_finish(&members->held);
}
