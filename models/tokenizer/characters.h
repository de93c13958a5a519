/* Private to models/: character classes of tokenizers, and iteration over texts. */
#ifndef QUIRE_MODELS_TOKENIZER_CHARACTERS_H
#define QUIRE_MODELS_TOKENIZER_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the character at the start, or the end, of text[0..length); -1 if there is none, or the
 * bytes are not UTF-8. *out_bytes is its length, 0 for -1. */
int32_t character_first(const char *text, size_t length, size_t *out_bytes);
int32_t character_last(const char *text, size_t length, size_t *out_bytes);

/* Returns whether \w of Rust's regexes matches it: letters, marks, decimal digits, connectors. */
bool character_is_word(int32_t c);

/* Return the number of bytes of white space at the start, or the end, of text[0..length). */
size_t characters_leading_space(const char *text, size_t length);
size_t characters_trailing_space(const char *text, size_t length);

#endif
