#include "models/chat_template/template_characters.h"

#include "config/utf8.h"

#include <utf8proc.h>

#define UNDECODED 0xdc00

int32_t template_characters_next(struct text text, size_t *at) {
    static const unsigned char lead_mask[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    const char *data = text.data + *at;
    size_t bytes = utf8_char_bytes(data, text.length - *at);
    if (bytes == 0) {
        *at += 1;
        return UNDECODED + (unsigned char)data[0];
    }
    int32_t character = (unsigned char)data[0] & lead_mask[bytes];
    for (size_t i = 1; i < bytes; i++)
        character = character << 6 | ((unsigned char)data[i] & 0x3f);
    *at += bytes;
    return character;
}

size_t template_characters_encode(int32_t character, char out[TEMPLATE_MAX_CHARACTER_BYTES]) {
    if (character >= UNDECODED && character < UNDECODED + 0x100) {
        out[0] = (char)(character - UNDECODED);
        return 1;
    }
    return (size_t)utf8proc_encode_char(character, (utf8proc_uint8_t *)out);
}

static bool continues(char byte) {
    return ((unsigned char)byte & 0xc0) == 0x80;
}

size_t template_characters_count(struct text text) {
    size_t count = 0;
    for (size_t i = 0; i < text.length; i++)
        count += !continues(text.data[i]);
    return count;
}

size_t template_characters_offset(struct text text, size_t index) {
    size_t at = 0;
    while (at < text.length) {
        if (!continues(text.data[at]) && index-- == 0)
            break;
        at++;
    }
    return at;
}

size_t template_characters_before(struct text text, size_t end) {
    do
        end--;
    while (end > 0 && continues(text.data[end]));
    return end;
}

/* What str.isspace says: Unicode's White_Space and the separators U+001C to U+001F. */
bool template_characters_is_space(int32_t c) {
    if (c < 0x80)
        return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool template_characters_is_alpha(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool template_characters_is_decimal(int32_t c) {
    return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

bool template_characters_is_numeric(int32_t c) {
    utf8proc_category_t category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool template_characters_is_lower(int32_t c) {
    return utf8proc_islower(c);
}

bool template_characters_is_upper(int32_t c) {
    return utf8proc_isupper(c);
}

bool template_characters_is_title(int32_t c) {
    return utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

bool template_characters_is_printable(int32_t c) {
    if (c < 0x80)
        return c >= 0x20 && c != 0x7f;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

/* Letters that become several, of those that are in use (Unicode's SpecialCasing.txt). */
static const struct {
    int32_t character;
    const char *upper, *lower, *title; /* NULL: as utf8proc has it */
} several[] = {
    {0xdf, "SS", NULL, "Ss"},
    {0x130, NULL, "i\xcc\x87", NULL},
    {0x149, "\xca\xbcN", NULL, "\xca\xbcN"},
    {0xfb00, "FF", NULL, "Ff"},
    {0xfb01, "FI", NULL, "Fi"},
    {0xfb02, "FL", NULL, "Fl"},
    {0xfb03, "FFI", NULL, "Ffi"},
    {0xfb04, "FFL", NULL, "Ffl"},
    {0xfb05, "ST", NULL, "St"},
    {0xfb06, "ST", NULL, "St"},
};

size_t template_characters_map(int32_t c, enum template_case to,
                               char out[TEMPLATE_MAX_CASE_BYTES]) {
    for (size_t i = 0; c >= 0x80 && i < sizeof(several) / sizeof(several[0]); i++) {
        const char *text = to == TEMPLATE_CASE_UPPER   ? several[i].upper
                           : to == TEMPLATE_CASE_LOWER ? several[i].lower
                                                       : several[i].title;
        if (several[i].character == c && text != NULL) {
            memcpy(out, text, strlen(text));
            return strlen(text);
        }
    }
    if (c >= UNDECODED && c < UNDECODED + 0x100)
        return template_characters_encode(c, out);
    int32_t mapped = to == TEMPLATE_CASE_UPPER   ? utf8proc_toupper(c)
                     : to == TEMPLATE_CASE_LOWER ? utf8proc_tolower(c)
                                                 : utf8proc_totitle(c);
    return template_characters_encode(mapped, out);
}
