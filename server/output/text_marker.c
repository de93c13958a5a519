#include "server/output/text_marker.h"

#include <string.h>

bool text_is_space(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

void text_marker_init(struct text_marker *matcher, const char *marker) {
    *matcher = (struct text_marker){.marker = marker, .length = strlen(marker)};
}

void text_marker_finish(struct text_marker *matcher) {
    byte_buffer_finish(&matcher->held);
}

void text_marker_reset(struct text_marker *matcher) {
    byte_buffer_clear(&matcher->held);
    matcher->matched = 0;
}

/* Returns the length of the longest beginning of the marker that the matched bytes and this one end
 * with. Markers are short, so all lengths are tried. */
static size_t next_matched(const struct text_marker *matcher, char byte) {
    for (size_t length = matcher->matched + 1; length > 0; length--) {
        size_t skipped = matcher->matched + 1 - length;
        if (matcher->marker[length - 1] == byte &&
            memcmp(matcher->marker + skipped, matcher->marker, length - 1) == 0)
            return length;
    }
    return 0;
}

bool text_marker_push(struct text_marker *matcher, char byte, size_t *out_num_text) {
    size_t before = matcher->matched;
    byte_buffer_append(&matcher->held, &byte, 1);
    *out_num_text = 0;
    matcher->matched = next_matched(matcher, byte);
    if (matcher->matched == matcher->length)
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
