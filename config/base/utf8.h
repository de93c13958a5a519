/* UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef QUIRE_CONFIG_BASE_UTF8_H
#define QUIRE_CONFIG_BASE_UTF8_H

#include "config/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_MAX_BYTES 4                /* of a character */
#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD, for bytes that are not valid UTF-8 */

/* Returns the number of bytes (1..4) of the character that starts with this byte; 0 if no character
 * does. */
static inline size_t utf8_lead_bytes(unsigned char lead) {
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Returns whether a byte may be the second one of a character that starts with lead. Only the
 * second byte's range depends on the lead: that is how overlong forms and surrogates are recognised
 * (Unicode standard, table 3-7). */
static inline bool utf8_second_fits(unsigned char lead, unsigned char byte) {
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return byte >= low && byte <= high;
}

/* Returns whether the byte is not the first of a character. */
static inline bool utf8_continues(char byte) {
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Returns the number of bytes (1..4) of the valid character at the start of text[0..length); 0 when
 * there is none: length is 0, the bytes are invalid, or the character is cut off. */
size_t utf8_char_bytes(const char *text, size_t length);

/* Decodes the character text[0..bytes), which is valid: bytes comes from utf8_char_bytes. */
static inline int32_t utf8_decode(const char *text, size_t bytes) {
    static const unsigned char lead_masks[UTF8_MAX_BYTES + 1] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    int32_t character = (unsigned char)text[0] & lead_masks[bytes];
    for (size_t i = 1; i < bytes; i++)
        character = character << 6 | ((unsigned char)text[i] & 0x3f);
    return character;
}

/* Writes a character up to U+10FFFF and returns the number of bytes. A surrogate is encoded as if
 * it were a character: the caller must exclude it. */
size_t utf8_encode(uint32_t character, char out[static UTF8_MAX_BYTES]);

/* Surrogates of UTF-16, by which JSON writes a character above U+FFFF as two escapes. */
static inline bool utf16_is_high(uint32_t code) {
    return code >= 0xD800 && code <= 0xDBFF;
}
static inline bool utf16_is_low(uint32_t code) {
    return code >= 0xDC00 && code <= 0xDFFF;
}
/* Returns the character that the two stand for. */
static inline uint32_t utf16_join(uint32_t high, uint32_t low) {
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* Returns the length of the longest prefix of text[0..length) that consists of whole, valid
 * characters. */
size_t utf8_valid_prefix(const char *text, size_t length);

/* Returns whether a terminal might obey the character: C0, DEL and C1, and what reorders text. */
static inline bool utf8_is_control(int32_t character) {
    return character < 0x20 || (character >= 0x7f && character < 0xa0) ||
           (character >= 0x202a && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069);
}

/* Makes text[0..length) safe for one line on a terminal: each byte of a control character (line
 * ends included) and each byte that is not valid UTF-8 becomes '?'. */
void utf8_hide_controls(char *text, size_t length);

#define UTF8_PRINTABLE_BYTES 64

/* Copies text for a message: cut to fit, with '?' for anything but printable ASCII,
 * NUL-terminated. */
void utf8_printable(struct text text, char out[static UTF8_PRINTABLE_BYTES]);

#endif
