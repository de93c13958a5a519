/* UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef QUIRE_SERVER_UTF8_H
#define QUIRE_SERVER_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that data[0..length) begins with (1..4); 0 when it begins with none:
 * length is 0, the bytes are invalid, or the character is cut off. */
size_t utf8_char_bytes(const char *data, size_t length);
bool utf8_is_valid(const char *data, size_t length);
/* Characters that begin in the bytes: every byte but the continuation bytes. Adds up over pieces
 * that cut a character. */
size_t utf8_count_starts(const char *data, size_t length);

#endif
