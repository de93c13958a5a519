#include "models/chat_template/template_characters.h"

#include "config/base/utf8.h"

#include <utf8proc.h>

#define UNDECODED 0xdc00

int32_t template_characters_next(struct text text, size_t *at) {
    const char *data = text.data + *at;
    if ((unsigned char)data[0] < 0x80) {
        *at += 1;
        return data[0];
    }
    size_t bytes = utf8_char_bytes(data, text.length - *at);
    *at += bytes == 0 ? 1 : bytes;
    return bytes == 0 ? UNDECODED + (unsigned char)data[0] : utf8_decode(data, bytes);
}

size_t template_characters_encode(int32_t character, char out[TEMPLATE_MAX_CHARACTER_BYTES]) {
    if (character >= UNDECODED && character < UNDECODED + 0x100) {
        out[0] = (char)(character - UNDECODED);
        return 1;
    }
    return utf8_encode((uint32_t)character, out);
}

/* A byte continues a character if its highest bit is set and the next is not. */
size_t template_characters_count(struct text text) {
    size_t num_continuing = 0, i = 0;
    for (uint64_t word; text.length - i >= sizeof(word); i += sizeof(word)) {
        memcpy(&word, text.data + i, sizeof(word));
        num_continuing +=
            (size_t)__builtin_popcountll(word >> 7 & ~word >> 6 & 0x0101010101010101u);
    }
    for (; i < text.length; i++)
        num_continuing += utf8_continues(text.data[i]);
    return text.length - num_continuing;
}

size_t template_characters_offset(struct text text, size_t index) {
    size_t at = 0;
    if (index >= text.length)
        return text.length;
    while (at < text.length) {
        if (!utf8_continues(text.data[at]) && index-- == 0)
            break;
        at++;
    }
    return at;
}

size_t template_characters_before(struct text text, size_t end) {
    do
        end--;
    while (end > 0 && utf8_continues(text.data[end]));
    return end;
}

/* As str.isspace: Unicode's White_Space and the separators U+001C to U+001F. */
bool template_characters_is_space(int32_t c) {
    if (c < 0x80)
        return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
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
    const char *texts[3]; /* by enum template_case; NULL: the same as utf8proc's */
} several[] = {
    {0xdf, {"SS", NULL, "Ss"}},
    {0x130, {NULL, "i\xcc\x87", NULL}},
    {0x149, {"\xca\xbcN", NULL, "\xca\xbcN"}},
    {0xfb00, {"FF", NULL, "Ff"}},
    {0xfb01, {"FI", NULL, "Fi"}},
    {0xfb02, {"FL", NULL, "Fl"}},
    {0xfb03, {"FFI", NULL, "Ffi"}},
    {0xfb04, {"FFL", NULL, "Ffl"}},
    {0xfb05, {"ST", NULL, "St"}},
    {0xfb06, {"ST", NULL, "St"}},
};

size_t template_characters_map(int32_t c, enum template_case to,
                               char out[TEMPLATE_MAX_CASE_BYTES]) {
    if (c < 0x80) {
        bool changes = to == TEMPLATE_CASE_UPPER || to == TEMPLATE_CASE_TITLE
                           ? c >= 'a' && c <= 'z'
                           : c >= 'A' && c <= 'Z';
        out[0] = (char)(changes ? c ^ 0x20 : c);
        return 1;
    }
    for (size_t i = 0; i < sizeof(several) / sizeof(several[0]); i++) {
        const char *text = several[i].texts[to];
        if (several[i].character == c && text != NULL) {
            memcpy(out, text, strlen(text));
            return strlen(text);
        }
    }
    if (c >= UNDECODED && c < UNDECODED + 0x100)
        return template_characters_encode(c, out);
    switch (to) {
    case TEMPLATE_CASE_UPPER:
        return template_characters_encode(utf8proc_toupper(c), out);
    case TEMPLATE_CASE_TITLE:
        return template_characters_encode(utf8proc_totitle(c), out);
    default:
        return template_characters_encode(utf8proc_tolower(c), out);
    }
}
