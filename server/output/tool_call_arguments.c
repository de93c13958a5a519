#include "server/output/tool_call_arguments.h"

#include "server/output/text_marker.h"

void tool_call_arguments_init(struct tool_call_arguments *arguments) {
    *arguments = (struct tool_call_arguments){.kind = TOOL_CALL_ARGUMENTS_NONE};
    json_stream_init(&arguments->json);
}

bool tool_call_arguments_has_begun(const struct tool_call_arguments *arguments) {
    return arguments->kind == TOOL_CALL_ARGUMENTS_OBJECT ||
           arguments->kind == TOOL_CALL_ARGUMENTS_STRING;
}

static bool set_kind(struct tool_call_arguments *arguments, char byte) {
    if (byte == '{')
        arguments->kind = TOOL_CALL_ARGUMENTS_OBJECT;
    else if (byte == '"')
        arguments->kind = TOOL_CALL_ARGUMENTS_STRING;
    else if (byte == 'n')
        arguments->kind = TOOL_CALL_ARGUMENTS_NULL;
    return arguments->kind != TOOL_CALL_ARGUMENTS_NONE;
}

/* A raw control character in a string, which JSON forbids and models write, goes out escaped. */
static void append_object_byte(struct byte_buffer *out, char byte, bool in_string) {
    if (in_string && (unsigned char)byte < 0x20)
        byte_buffer_printf(out, "\\u%04x", (unsigned)(unsigned char)byte);
    else
        byte_buffer_append(out, &byte, 1);
}

enum json_stream_step tool_call_arguments_push(struct tool_call_arguments *arguments, char byte,
                                               struct byte_buffer *out) {
    bool is_first = arguments->kind == TOOL_CALL_ARGUMENTS_NONE;
    if (is_first && text_is_space(byte))
        return JSON_STREAM_MORE;
    if (is_first && !set_kind(arguments, byte))
        return JSON_STREAM_BAD;
    bool in_string = json_stream_in_string(&arguments->json);
    enum json_stream_step step = json_stream_push(&arguments->json, byte);
    if (step == JSON_STREAM_BAD || arguments->kind == TOOL_CALL_ARGUMENTS_NULL)
        return step;
    if (arguments->kind == TOOL_CALL_ARGUMENTS_OBJECT) {
        append_object_byte(out, byte, in_string);
    } else if (!is_first) {
        char text[JSON_UNESCAPE_MAX_BYTES];
        size_t length = step == JSON_STREAM_DONE
                            ? json_unescape_end(&arguments->string, text)
                            : json_unescape_push(&arguments->string, byte, text);
        byte_buffer_append(out, text, length);
    }
    return step;
}
