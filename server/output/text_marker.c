#include "server/output/text_marker.h"

#include <string.h>

bool text_is_space(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

void text_marker_init(struct text_marker *matcher, const char *marker) {
    text_marker_init_two(matcher, marker, NULL);
}

void text_marker_init_two(struct text_marker *matcher, const char *marker, const char *other) {
    *matcher = (struct text_marker){.markers = {marker, other}};
}

void text_marker_finish(struct text_marker *matcher) {
    byte_buffer_finish(&matcher->held);
}

void text_marker_reset(struct text_marker *matcher) {
    byte_buffer_clear(&matcher->held);
    matcher->matched = 0;
}

/* Returns the length of the longest beginning of a marker that held ends with. Markers are short,
 * so all lengths are tried. */
static size_t find_matched(const struct text_marker *matcher, bool *out_is_whole) {
    const char *end = matcher->held.data + matcher->held.length;
    for (size_t length = matcher->matched + 1; length > 0; length--) {
        for (int i = 0; i < 2 && matcher->markers[i] != NULL; i++) {
            if (strncmp(matcher->markers[i], end - length, length) != 0)
                continue;
            *out_is_whole = matcher->markers[i][length] == '\0';
            return length;
        }
    }
    return 0;
}

bool text_marker_push(struct text_marker *matcher, char byte, size_t *out_num_text) {
    size_t before = matcher->matched;
    bool is_whole = false;
    byte_buffer_append(&matcher->held, &byte, 1);
    *out_num_text = 0;
    matcher->matched = matcher->held.failed ? 0 : find_matched(matcher, &is_whole);
    if (is_whole)
        return true;
    size_t kept = matcher->held.length;
    if (matcher->matched != before + 1) /* what was matched is text, and so is the space before */
        kept = matcher->matched;
    if (matcher->matched == 0 && text_is_space(byte))
        kept = before == 0 ? matcher->held.length : 1;
    if (kept > TEXT_MARKER_MAX_HELD_BYTES)
        kept = matcher->matched;
    if (!matcher->held.failed)
        *out_num_text = matcher->held.length - kept;
    return false;
}
