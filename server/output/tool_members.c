#include "server/output/tool_members.h"

#include "server/output/text_marker.h"

/* --- Types of parameters --- */

static void append_word(struct byte_buffer *types, const char *word) {
    byte_buffer_append(types, word, strlen(word) + 1);
}

void parameter_types_begin(struct byte_buffer *types, const char *function) {
    append_word(types, function);
}

void parameter_types_add(struct byte_buffer *types, enum parameter_type type, const char *name) {
    const char letter = (char)type;
    byte_buffer_append(types, &letter, 1);
    append_word(types, name);
}

void parameter_types_end(struct byte_buffer *types) {
    byte_buffer_append(types, "", 1);
}

static bool is_word(const char *word, const char *name, size_t length) {
    return strlen(word) == length && memcmp(word, name, length) == 0;
}

static const char *behind(const char *word) {
    return word + strlen(word) + 1;
}

const char *parameter_types_find(struct text types, const char *function, size_t length) {
    const char *at = types.data, *end = at + types.length;
    while (types.length > 0 && at < end) {
        bool is_found = is_word(at, function, length);
        at = behind(at);
        if (is_found)
            return at;
        while (*at != '\0')
            at = behind(at);
        at++;
    }
    return NULL;
}

enum parameter_type parameter_types_of(const char *parameters, const char *name, size_t length) {
    for (const char *at = parameters; at != NULL && *at != '\0'; at = behind(at))
        if (is_word(at + 1, name, length))
            return (enum parameter_type) * at;
    return PARAMETER_ANY;
}

void tool_members_begin(struct tool_members *members, struct tool_call_sink *sink,
                        struct text types, const char *name, size_t length) {
    members->sink = sink;
    members->types = parameter_types_find(types, name, length);
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

/* Writes the value as JSON; false: it is not JSON, or what was written before must be dropped. A
 * number ends only with what follows it. */
static bool to_json(struct text text, struct byte_buffer *out) {
    struct json_stream json;
    enum json_stream_step step = JSON_STREAM_MORE;
    json_stream_init(&json);
    for (size_t i = 0; i < text.length; i++) {
        if (step != JSON_STREAM_MORE)
            return false;
        step = json_stream_push(&json, text.data[i]);
        byte_buffer_append(out, json.out, json.num_out);
    }
    if (step == JSON_STREAM_MORE && text.length > 0) {
        step = json_stream_push(&json, ' ');
        byte_buffer_append(out, json.out, json.num_out);
        return step == JSON_STREAM_DONE_BEFORE;
    }
    return step == JSON_STREAM_DONE;
}

static void put_held_value(struct tool_members *members) {
    struct text value = trimmed(&members->held);
    struct byte_buffer json = {0};
    bool is_null = text_is(value, "null") || text_is(value, "None");
    if ((members->type == PARAMETER_ANY || is_null) && to_json(value, &json)) {
        put(members, json.data, json.length);
    } else {
        release_as_string(members);
        put(members, "\"", 1);
    }
    byte_buffer_clear(&members->held);
    members->held.failed = members->held.failed || json.failed;
    byte_buffer_finish(&json);
}

void tool_members_end_value(struct tool_members *members) {
    if (members->is_string)
        put(members, "\"", 1);
    else
        put_held_value(members);
}

void tool_members_finish(struct tool_members *members) {
    byte_buffer_finish(&members->held);
}
