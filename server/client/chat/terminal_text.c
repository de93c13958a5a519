#include "server/client/chat/terminal_text.h"

#include <stdbool.h>

static void write_character(const char *bytes, size_t length, struct byte_buffer *out) {
    int32_t character = utf8_decode(bytes, length);
    if (character == '\r')
        return;
    if (utf8_is_control(character) && character != '\n' && character != '\t')
        byte_buffer_append_text(out, UTF8_REPLACEMENT);
    else
        byte_buffer_append(out, bytes, length);
}

void terminal_text_end(struct terminal_text *text, struct byte_buffer *out) {
    if (text->num_kept > 0)
        byte_buffer_append_text(out, UTF8_REPLACEMENT);
    text->num_kept = 0;
}

/* Returns whether the byte goes on with the character whose begin is kept. */
static bool fits(const struct terminal_text *text, unsigned char byte) {
    return text->num_kept == 1 ? utf8_second_fits((unsigned char)text->kept[0], byte)
                               : utf8_continues((char)byte);
}

static void take_byte(struct terminal_text *text, char byte, struct byte_buffer *out) {
    if (text->num_kept > 0 && !fits(text, (unsigned char)byte))
        terminal_text_end(text, out);
    size_t expected = utf8_lead_bytes((unsigned char)(text->num_kept > 0 ? text->kept[0] : byte));
    text->kept[text->num_kept++] = byte;
    if (expected == 0) {
        terminal_text_end(text, out);
    } else if (text->num_kept == expected) {
        write_character(text->kept, expected, out);
        text->num_kept = 0;
    }
}

void terminal_text_write(struct terminal_text *text, const char *data, size_t length,
                         struct byte_buffer *out) {
    for (size_t i = 0; i < length; i++)
        take_byte(text, data[i], out);
}
