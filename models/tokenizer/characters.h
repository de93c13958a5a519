/* Private to models/: classes of characters, as tokenizers use them, and how texts are walked. */
#ifndef QUIRE_MODELS_TOKENIZER_CHARACTERS_H
#define QUIRE_MODELS_TOKENIZER_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the character at the start, or the end, of text[0..length); -1 if there is none, or the
 * bytes are not UTF-8. *out_bytes is its length, 0 for -1. */
int32_t character_first(const char *text, size_t length, size_t *out_bytes);
int32_t character_last(const char *text, size_t length, size_t *out_bytes);

/* Returns whether it is what \w means in Rust's regexes: letters, marks, decimal digits,
 * connectors. */
bool character_is_word(int32_t c);

/* Returns the bytes of white space at the start, or the end, of text[0..length). */
size_t characters_leading_space(const char *text, size_t length);
size_t characters_trailing_space(const char *text, size_t length);

#endif
