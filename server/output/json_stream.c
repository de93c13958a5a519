#include "server/output/json_stream.h"

#include "server/output/text_marker.h"

#include <stdio.h>
#include <string.h>

void json_stream_init(struct json_stream *json) {
    json->state = JSON_STREAM_VALUE;
    json->depth = 0;
}

bool json_stream_in_string(const struct json_stream *json) {
    return json->state == JSON_STREAM_STRING;
}

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

static enum json_stream_step go(struct json_stream *json, enum json_stream_state state) {
    json->state = state;
    return JSON_STREAM_MORE;
}

static enum json_stream_step end_value(struct json_stream *json) {
    return json->depth == 0 ? JSON_STREAM_DONE : go(json, JSON_STREAM_AFTER_VALUE);
}

static enum json_stream_step open_container(struct json_stream *json, bool is_object) {
    if (json->depth == JSON_STREAM_MAX_DEPTH)
        return JSON_STREAM_BAD;
    json->is_object[json->depth++] = is_object;
    return go(json, is_object ? JSON_STREAM_KEY_OR_END : JSON_STREAM_ITEM_OR_END);
}

static enum json_stream_step close_container(struct json_stream *json) {
    json->depth--;
    return end_value(json);
}

static enum json_stream_step open_string(struct json_stream *json, bool is_key) {
    json->is_key = is_key;
    return go(json, JSON_STREAM_STRING);
}

static enum json_stream_step open_literal(struct json_stream *json, const char *rest) {
    json->rest = rest;
    return go(json, JSON_STREAM_LITERAL);
}

static enum json_stream_step open_value(struct json_stream *json, char byte) {
    switch (byte) {
    case '{':
    case '[':
        return open_container(json, byte == '{');
    case '"':
        return open_string(json, false);
    case '-':
        return go(json, JSON_STREAM_MINUS);
    case '0':
        return go(json, JSON_STREAM_ZERO);
    case 't':
        return open_literal(json, "rue");
    case 'f':
        return open_literal(json, "alse");
    case 'n':
        return open_literal(json, "ull");
    default:
        return is_digit(byte) ? go(json, JSON_STREAM_INTEGER) : JSON_STREAM_BAD;
    }
}

static enum json_stream_step after_value(struct json_stream *json, char byte) {
    bool is_object = json->is_object[json->depth - 1];
    if (byte == ',')
        return go(json, is_object ? JSON_STREAM_KEY : JSON_STREAM_VALUE);
    return byte == (is_object ? '}' : ']') ? close_container(json) : JSON_STREAM_BAD;
}

/* Between the values, where white space may stand. */
static enum json_stream_step push_structure(struct json_stream *json, char byte) {
    if (text_is_space(byte))
        return JSON_STREAM_MORE;
    switch (json->state) {
    case JSON_STREAM_VALUE:
        return open_value(json, byte);
    case JSON_STREAM_ITEM_OR_END:
        return byte == ']' ? close_container(json) : open_value(json, byte);
    case JSON_STREAM_KEY_OR_END:
        if (byte == '}')
            return close_container(json);
        return byte == '"' ? open_string(json, true) : JSON_STREAM_BAD;
    case JSON_STREAM_KEY:
        return byte == '"' ? open_string(json, true) : JSON_STREAM_BAD;
    case JSON_STREAM_COLON:
        return byte == ':' ? go(json, JSON_STREAM_VALUE) : JSON_STREAM_BAD;
    default:
        return after_value(json, byte);
    }
}

static enum json_stream_step push_string(struct json_stream *json, char byte) {
    if (byte == '\\')
        return go(json, JSON_STREAM_ESCAPE);
    if (byte != '"')
        return JSON_STREAM_MORE;
    return json->is_key ? go(json, JSON_STREAM_COLON) : end_value(json);
}

static enum json_stream_step push_escape(struct json_stream *json, char byte) {
    if (byte == 'u') {
        json->num_hex = 4;
        return go(json, JSON_STREAM_HEX);
    }
    bool is_known = byte != '\0' && strchr("\"\\/bfnrt", byte) != NULL;
    return is_known ? go(json, JSON_STREAM_STRING) : JSON_STREAM_BAD;
}

static enum json_stream_step push_hex(struct json_stream *json, char byte) {
    if (byte == '\0' || strchr("0123456789abcdefABCDEF", byte) == NULL)
        return JSON_STREAM_BAD;
    return go(json, --json->num_hex == 0 ? JSON_STREAM_STRING : JSON_STREAM_HEX);
}

static enum json_stream_step push_literal(struct json_stream *json, char byte) {
    if (byte != *json->rest)
        return JSON_STREAM_BAD;
    return *++json->rest == '\0' ? end_value(json) : JSON_STREAM_MORE;
}

/* The number's state after the byte; JSON_STREAM_AFTER_VALUE when the byte continues none. */
static enum json_stream_state number_state(enum json_stream_state state, char byte) {
    bool digit = is_digit(byte), exponent = byte == 'e' || byte == 'E';
    switch (state) {
    case JSON_STREAM_MINUS:
        if (digit)
            return byte == '0' ? JSON_STREAM_ZERO : JSON_STREAM_INTEGER;
        break;
    case JSON_STREAM_ZERO:
    case JSON_STREAM_INTEGER:
        if (digit && state == JSON_STREAM_INTEGER)
            return JSON_STREAM_INTEGER;
        if (byte == '.')
            return JSON_STREAM_POINT;
        if (exponent)
            return JSON_STREAM_EXPONENT;
        break;
    case JSON_STREAM_POINT:
    case JSON_STREAM_FRACTION:
        if (digit)
            return JSON_STREAM_FRACTION;
        if (exponent && state == JSON_STREAM_FRACTION)
            return JSON_STREAM_EXPONENT;
        break;
    default: /* of the exponent */
        if (digit)
            return JSON_STREAM_EXPONENT_DIGITS;
        if (state == JSON_STREAM_EXPONENT && (byte == '+' || byte == '-'))
            return JSON_STREAM_EXPONENT_SIGN;
        break;
    }
    return JSON_STREAM_AFTER_VALUE;
}

static bool number_may_end(enum json_stream_state state) {
    return state == JSON_STREAM_ZERO || state == JSON_STREAM_INTEGER ||
           state == JSON_STREAM_FRACTION || state == JSON_STREAM_EXPONENT_DIGITS;
}

static enum json_stream_step push_number(struct json_stream *json, char byte) {
    enum json_stream_state next = number_state(json->state, byte);
    if (next != JSON_STREAM_AFTER_VALUE)
        return go(json, next);
    if (!number_may_end(json->state))
        return JSON_STREAM_BAD;
    if (json->depth == 0)
        return JSON_STREAM_DONE_BEFORE;
    json->state = JSON_STREAM_AFTER_VALUE;
    return push_structure(json, byte);
}

enum json_stream_step json_stream_push(struct json_stream *json, char byte) {
    switch (json->state) {
    case JSON_STREAM_STRING:
        return push_string(json, byte);
    case JSON_STREAM_ESCAPE:
        return push_escape(json, byte);
    case JSON_STREAM_HEX:
        return push_hex(json, byte);
    case JSON_STREAM_LITERAL:
        return push_literal(json, byte);
    default:
        return json->state < JSON_STREAM_STRING ? push_structure(json, byte)
                                                : push_number(json, byte);
    }
}

size_t json_stream_escape(char byte, char out[static JSON_STREAM_MAX_BYTES]) {
    static const char letters[] = "\"\"\\\\\nn\rr\tt"; /* pairs: a byte, what stands for it */
    out[0] = '\\';
    for (size_t i = 0; i + 1 < sizeof(letters); i += 2) {
        if (letters[i] == byte) {
            out[1] = letters[i + 1];
            return 2;
        }
    }
    if ((unsigned char)byte < 0x20)
        return (size_t)snprintf(out, JSON_STREAM_MAX_BYTES, "\\u%04x", (unsigned)byte);
    out[0] = byte;
    return 1;
}

size_t json_stream_byte(const struct json_stream *json, char byte,
                        char out[static JSON_STREAM_MAX_BYTES]) {
    if (json_stream_in_string(json) && (unsigned char)byte < 0x20)
        return (size_t)snprintf(out, JSON_STREAM_MAX_BYTES, "\\u%04x", (unsigned)byte);
    out[0] = byte;
    return 1;
}
