#include "server/output/output_parts.h"

#include <string.h>

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

/* A name is a part of its own even behind another one. */
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
