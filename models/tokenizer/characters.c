#include "models/tokenizer/characters.h"

#include "config/base/utf8.h"

#include <utf8proc.h>

int32_t character_first(const char *text, size_t length, size_t *out_bytes) {
    *out_bytes = utf8_char_bytes(text, length);
    return *out_bytes == 0 ? -1 : utf8_decode(text, *out_bytes);
}

int32_t character_last(const char *text, size_t length, size_t *out_bytes) {
    for (size_t n = 1; n <= UTF8_MAX_BYTES && n <= length; n++) {
        if (utf8_continues(text[length - n]))
            continue;
        *out_bytes = utf8_char_bytes(text + length - n, n) == n ? n : 0;
        return *out_bytes == 0 ? -1 : utf8_decode(text + length - n, n);
    }
    *out_bytes = 0;
    return -1;
}

/* Returns whether it is of Unicode's White_Space. */
static bool is_space(int32_t c) {
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Symbols that count as alphabetic, and the joiners (Unicode's PropList.txt: Other_Alphabetic of
 * category So, Join_Control). */
static bool is_odd_word(int32_t c) {
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c ||
           c == 0x200d;
}

bool character_is_word(int32_t c) {
    if (c < 0)
        return false;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return is_odd_word(c);
    }
}

size_t characters_leading_space(const char *text, size_t length) {
    size_t position = 0, bytes;
    while (is_space(character_first(text + position, length - position, &bytes)))
        position += bytes;
    return position;
}

size_t characters_trailing_space(const char *text, size_t length) {
    size_t rest = length, bytes;
    while (is_space(character_last(text, rest, &bytes)))
        rest -= bytes;
    return length - rest;
}
