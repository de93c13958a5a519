#include "config/json/json_unescape.h"

#include "config/base/utf8.h"

#include <string.h>

#define REPLACEMENT 0xFFFD

int json_unescape_digit(int byte) {
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

int json_unescape_letter(int byte) {
    static const char letters[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    const char *found = byte > 0 ? strchr(letters, byte) : NULL;
    return found != NULL ? values[found - letters] : -1;
}

/* Replaces the first half of a pair, if one is held: it will not be completed. */
static size_t drop_high(struct json_unescape *string, char *out) {
    bool was_held = string->high != 0;
    string->high = 0;
    return was_held ? utf8_encode(REPLACEMENT, out) : 0;
}

static size_t end_code(struct json_unescape *string, char *out) {
    uint32_t code = string->code, high = string->high;
    bool is_low = utf16_is_low(code);
    if (is_low && high != 0) {
        string->high = 0;
        return utf8_encode(utf16_join(high, code), out);
    }
    size_t length = drop_high(string, out);
    if (utf16_is_high(code)) {
        string->high = code;
        return length;
    }
    return length + utf8_encode(is_low ? REPLACEMENT : code, out + length);
}

static size_t push_escape(struct json_unescape *string, char byte, char *out) {
    string->in_escape = false;
    if (byte == 'u') {
        string->num_hex = 4;
        string->code = 0;
        return 0;
    }
    size_t length = drop_high(string, out);
    int value = json_unescape_letter((unsigned char)byte);
    out[length] = value >= 0 ? (char)value : byte;
    return length + 1;
}

size_t json_unescape_push(struct json_unescape *string, char byte,
                          char out[static JSON_UNESCAPE_MAX_BYTES]) {
    if (string->num_hex > 0) {
        string->code = string->code << 4 | (uint32_t)json_unescape_digit(byte);
        return --string->num_hex == 0 ? end_code(string, out) : 0;
    }
    if (string->in_escape)
        return push_escape(string, byte, out);
    if (byte == '\\') {
        string->in_escape = true;
        return 0;
    }
    size_t length = drop_high(string, out);
    out[length] = byte;
    return length + 1;
}

size_t json_unescape_end(struct json_unescape *string, char out[static JSON_UNESCAPE_MAX_BYTES]) {
    return drop_high(string, out);
}
