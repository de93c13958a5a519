#include "config/base/utf8.h"

#include <string.h>

#define HIGH_BITS 0x8080808080808080u

size_t utf8_char_bytes(const char *text, size_t n) {
    if (n == 0)
        return 0;
    size_t length = utf8_lead_bytes((unsigned char)text[0]);
    if (length <= 1)
        return length;
    if (length > n || !utf8_second_fits((unsigned char)text[0], (unsigned char)text[1]))
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (!utf8_continues(text[i]))
            return 0;
    }
    return length;
}

size_t utf8_encode(uint32_t character, char out[static UTF8_MAX_BYTES]) {
    static const unsigned char lead_marks[] = {0, 0xc0, 0xe0, 0xf0};
    size_t num_more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    for (size_t i = num_more; i > 0; i--, character >>= 6)
        out[i] = (char)(0x80 | (character & 0x3f));
    out[0] = (char)(lead_marks[num_more] | character);
    return num_more + 1;
}

size_t utf8_valid_prefix(const char *text, size_t length) {
    size_t i = 0;
    while (i < length) {
        uint64_t word;
        if (length - i >= sizeof(word)) {
            memcpy(&word, text + i, sizeof(word));
            if ((word & HIGH_BITS) == 0) {
                i += sizeof(word);
                continue;
            }
        }
        size_t n = utf8_char_bytes(text + i, length - i);
        if (n == 0)
            break;
        i += n;
    }
    return i;
}

void utf8_printable(struct text text, char out[static UTF8_PRINTABLE_BYTES]) {
    size_t n = text.length < UTF8_PRINTABLE_BYTES - 1 ? text.length : UTF8_PRINTABLE_BYTES - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = text.data[i] >= 0x20 && text.data[i] < 0x7f ? text.data[i] : '?';
    out[n] = '\0';
}

void utf8_hide_controls(char *text, size_t length) {
    for (size_t i = 0, bytes; i < length; i += bytes) {
        bytes = utf8_char_bytes(text + i, length - i);
        bool is_shown = bytes > 0 && !utf8_is_control(utf8_decode(text + i, bytes));
        bytes = bytes > 0 ? bytes : 1;
        if (!is_shown)
            memset(text + i, '?', bytes);
    }
}
