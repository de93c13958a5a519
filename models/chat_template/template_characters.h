/* Private to chat_template/: characters as Python's str sees them. Strings are UTF-8. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CHARACTERS_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CHARACTERS_H

#include "config/base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define TEMPLATE_MAX_CHARACTER_BYTES 4

/* Decodes the character at *at and advances *at past it. Bytes that are not UTF-8 are returned one
 * by one, as U+DC80 to U+DCFF. */
int32_t template_characters_next(struct text text, size_t *at);
/* Writes it as UTF-8; returns the number of bytes. */
size_t template_characters_encode(int32_t character, char out[TEMPLATE_MAX_CHARACTER_BYTES]);

size_t template_characters_count(struct text text);
/* Returns the byte offset of the character with that index; the text's length beyond the end.
 */
size_t template_characters_offset(struct text text, size_t index);
/* Returns the byte offset of the last character of text[0..end); end > 0. */
size_t template_characters_before(struct text text, size_t end);

bool template_characters_is_space(int32_t character);
bool template_characters_is_lower(int32_t character);
bool template_characters_is_upper(int32_t character);
bool template_characters_is_title(int32_t character);
/* Returns whether repr() writes it as itself. */
bool template_characters_is_printable(int32_t character);

/* Write upper, lower or title case, at most TEMPLATE_MAX_CASE_BYTES bytes of UTF-8, and return
 * their number. */
#define TEMPLATE_MAX_CASE_BYTES 12
enum template_case { TEMPLATE_CASE_UPPER, TEMPLATE_CASE_LOWER, TEMPLATE_CASE_TITLE };
size_t template_characters_map(int32_t character, enum template_case to,
                               char out[TEMPLATE_MAX_CASE_BYTES]);

#endif
