/* UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef QUIRE_CONFIG_BASE_UTF8_H
#define QUIRE_CONFIG_BASE_UTF8_H

#include "config/base/text.h"

#include <stddef.h>

/* Bytes (1..4) of the valid character at the start of text[0..length); 0 when there is none: length
 * is 0, the bytes are invalid, or the character is cut off. */
size_t utf8_char_bytes(const char *text, size_t length);

/* Bytes at the start of text[0..length) that are whole, valid characters. */
size_t utf8_valid_prefix(const char *text, size_t length);

#define UTF8_PRINTABLE_BYTES 64

/* Copies text for a message: cut to fit, anything but printable ASCII as '?', NUL-terminated. */
void utf8_printable(struct text text, char out[static UTF8_PRINTABLE_BYTES]);

#endif
