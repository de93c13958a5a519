#include "server/output/tool_call_sink.h"

#include <string.h>

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

bool tool_call_sink_takes(const struct tool_call_sink *sink, const char *name, size_t length) {
    const char *allowed = sink->allowed_names;
    if (!tool_call_name_is_valid(name, length))
        return false;
    for (int i = 0; i < sink->num_allowed_names; i++, allowed += strlen(allowed) + 1)
        if (strlen(allowed) == length && memcmp(allowed, name, length) == 0)
            return true;
    return sink->num_allowed_names == 0;
}

bool tool_call_sink_has_room(const struct tool_call_sink *sink) {
    return sink->num_calls < OUTPUT_MAX_TOOL_CALLS;
}

void tool_call_sink_begin(struct tool_call_sink *sink, const char *name, size_t length) {
    output_parts_add(sink->parts, OUTPUT_PART_TOOL_CALL, sink->num_calls++, name, length);
    sink->is_open = true;
    sink->has_arguments = false;
}

void tool_call_sink_arguments(struct tool_call_sink *sink, const char *text, size_t length) {
    output_parts_add(sink->parts, OUTPUT_PART_TOOL_ARGUMENTS, sink->num_calls - 1, text, length);
    sink->has_arguments = sink->has_arguments || length > 0;
}

void tool_call_sink_end(struct tool_call_sink *sink) {
    if (!sink->has_arguments)
        tool_call_sink_arguments(sink, "{}", 2);
    sink->is_open = false;
}
