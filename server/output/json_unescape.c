#include "server/output/json_unescape.h"

#include <string.h>

#define REPLACEMENT 0xFFFD

static size_t write_character(uint32_t code, char *out) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int num_more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char leads[] = {0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(leads[num_more] | code >> (6 * num_more));
    for (int i = 1; i <= num_more; i++)
        out[i] = (char)(0x80 | (code >> (6 * (num_more - i)) & 0x3F));
    return (size_t)num_more + 1;
}

static uint32_t hex_value(char digit) {
    if (digit <= '9')
        return (uint32_t)(digit - '0');
    return (uint32_t)((digit | 0x20) - 'a' + 10);
}

/* The pair will not be completed. */
static size_t drop_high(struct json_unescape *string, char *out) {
    bool was_held = string->high != 0;
    string->high = 0;
    return was_held ? write_character(REPLACEMENT, out) : 0;
}

static size_t end_code(struct json_unescape *string, char *out) {
    uint32_t code = string->code, high = string->high;
    bool is_low = code >= 0xDC00 && code <= 0xDFFF;
    if (is_low && high != 0) {
        string->high = 0;
        return write_character(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00), out);
    }
    size_t length = drop_high(string, out);
    if (code >= 0xD800 && code <= 0xDBFF) {
        string->high = code;
        return length;
    }
    return length + write_character(is_low ? REPLACEMENT : code, out + length);
}

static size_t push_escape(struct json_unescape *string, char byte, char *out) {
    static const char letters[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    string->in_escape = false;
    if (byte == 'u') {
        string->num_hex = 4;
        string->code = 0;
        return 0;
    }
    size_t length = drop_high(string, out);
    const char *found = byte != '\0' ? strchr(letters, byte) : NULL;
    out[length] = found != NULL ? values[found - letters] : byte;
    return length + 1;
}

size_t json_unescape_push(struct json_unescape *string, char byte,
                          char out[static JSON_UNESCAPE_MAX_BYTES]) {
    if (string->num_hex > 0) {
        string->code = string->code << 4 | hex_value(byte);
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
