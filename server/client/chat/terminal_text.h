/* Text of a model or a server as a terminal may show it: no byte of it can act as a control. */
#ifndef QUIRE_SERVER_CHAT_TERMINAL_TEXT_H
#define QUIRE_SERVER_CHAT_TERMINAL_TEXT_H

#include "config/base/byte_buffer.h"
#include "config/base/utf8.h"

/* A zeroed struct begins a text, whose pieces may end anywhere. */
struct terminal_text {
    char kept[UTF8_MAX_BYTES]; /* the begin of a character */
    size_t num_kept;
};

/* Appends the piece to out. Lines and tabs stay, a carriage return is left out; any other control
 * (C0, DEL, C1), bytes that are no UTF-8, and the controls that reorder text (U+202A to U+202E,
 * U+2066 to U+2069) are U+FFFD. */
void terminal_text_write(struct terminal_text *text, const char *data, size_t length,
                         struct byte_buffer *out);
/* Ends the text: what is kept was cut off. */
void terminal_text_end(struct terminal_text *text, struct byte_buffer *out);

#endif
