/* Finds a marker in text, byte by byte, together with the white space before it, which belongs to
 * it. Only text that may still be either is held back. */
#ifndef QUIRE_SERVER_OUTPUT_TEXT_MARKER_H
#define QUIRE_SERVER_OUTPUT_TEXT_MARKER_H

#include "config/base/byte_buffer.h"

#include <stdbool.h>
#include <stddef.h>

/* Maximum bytes held back, anywhere in a parser; more than that is text. */
#define TEXT_MARKER_MAX_HELD_BYTES 65536

struct text_marker {
    const char
        *markers[2]; /* do not begin with white space; outlive the matcher; [1] may be NULL */
    size_t matched;  /* a marker's bytes at the end of held */
    struct byte_buffer held; /* white space and matched bytes; owned */
};

/* Returns whether the byte is JSON's white space. */
bool text_is_space(char byte);

void text_marker_init(struct text_marker *matcher, const char *marker);
/* Finds one of two markers, neither of which contains the other; the second may be NULL. */
void text_marker_init_two(struct text_marker *matcher, const char *marker, const char *other);
void text_marker_finish(struct text_marker *matcher);
/* Adds a byte to held. True: held ends with a whole marker, with only white space before it, and
 * *out_num_text is 0. Otherwise the first *out_num_text bytes of held are not part of a marker; the
 * caller removes them before the next push. */
bool text_marker_push(struct text_marker *matcher, char byte, size_t *out_num_text);
/* Drops what is held. */
void text_marker_reset(struct text_marker *matcher);

#endif
