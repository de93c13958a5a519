#include "config/base/utf8.h"

#include <stdint.h>
#include <string.h>

#define HIGH_BITS 0x8080808080808080u

/* Only the second byte's range depends on the first: that is where overlong forms and surrogates
 * show. */
size_t utf8_char_bytes(const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    if (n == 0)
        return 0;
    unsigned char lead = p[0];
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (length > n || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
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
