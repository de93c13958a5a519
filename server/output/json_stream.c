#include "server/output/json_stream.h"

#include "server/output/text_marker.h"

#include <stdio.h>
#include <string.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* --- Numbers --- */

#define MAX_EXPONENT 999999 /* larger ones mean the same */
#define MAX_DIGITS 17       /* that tell doubles apart */

void json_number_push(struct json_number *number, char byte) {
    bool is_digit = byte >= '0' && byte <= '9';
    if (byte == 'e' || byte == 'E')
        number->has_exponent = true;
    else if (byte == '.')
        number->has_point = true;
    else if (number->has_exponent && !is_digit)
        number->is_negative = byte == '-';
    else if (number->has_exponent && number->exponent < MAX_EXPONENT / 10)
        number->exponent = number->exponent * 10 + (byte - '0');
    else if (!number->has_exponent && !number->has_point && number->length >= JSON_MAX_NUMBER_CHARS)
        number->num_dropped++;
    if (number->length < JSON_MAX_NUMBER_CHARS)
        number->text[number->length] = byte;
    number->length++;
}

static double nearest(const struct json_number *number) {
    char text[JSON_MAX_NUMBER_CHARS + 32];
    size_t length = strcspn(number->text, "eE");
    long exponent = number->is_negative ? -number->exponent : number->exponent;
    snprintf(text, sizeof(text), "%.*se%ld", (int)length, number->text,
             exponent + number->num_dropped);
    double value = strtod(text, NULL);
    return isfinite(value) ? value : copysign(DBL_MAX, value);
}

static size_t print(double value, char *out) {
    int length = 0;
    for (int digits = 1; digits <= MAX_DIGITS; digits++) {
        length = snprintf(out, JSON_MAX_NUMBER_CHARS + 1, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return (size_t)length;
}

size_t json_number_end(struct json_number *number, char out[static JSON_MAX_NUMBER_CHARS + 1]) {
    size_t length = number->length;
    if (length <= JSON_MAX_NUMBER_CHARS && isfinite(strtod(number->text, NULL)))
        memcpy(out, number->text, length);
    else
        length = print(nearest(number), out);
    *number = (struct json_number){0};
    return length;
}

void json_stream_init(struct json_stream *json) {
    json->state = JSON_STREAM_VALUE;
    json->depth = 0;
    json->gap_length = 0;
    json->num_out = 0;
    json->number = (struct json_number){0};
}

static void put(struct json_stream *json, const char *text, size_t length) {
    memcpy(json->out + json->num_out, text, length);
    json->num_out += length;
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
    put(json, is_object ? "{" : "[", 1);
    return go(json, is_object ? JSON_STREAM_KEY_OR_END : JSON_STREAM_ITEM_OR_END);
}

static enum json_stream_step close_container(struct json_stream *json) {
    json->depth--;
    put(json, json->is_object[json->depth] ? "}" : "]", 1);
    return end_value(json);
}

static bool is_quote(char byte) {
    return byte == '"' || byte == '\'';
}

static enum json_stream_step open_string(struct json_stream *json, char quote, bool is_key) {
    json->quote = quote;
    json->is_key = is_key;
    put(json, "\"", 1);
    return go(json, JSON_STREAM_STRING);
}

static enum json_stream_step go_in_number(struct json_stream *json, char byte,
                                          enum json_stream_state state) {
    json_number_push(&json->number, byte);
    return go(json, state);
}

static enum json_stream_step open_literal(struct json_stream *json, const char *rest,
                                          const char *literal) {
    json->rest = rest;
    json->literal = literal;
    return go(json, JSON_STREAM_LITERAL);
}

static enum json_stream_step open_value(struct json_stream *json, char byte) {
    switch (byte) {
    case '{':
    case '[':
        return open_container(json, byte == '{');
    case '"':
    case '\'':
        return open_string(json, byte, false);
    case '-':
        return go_in_number(json, byte, JSON_STREAM_MINUS);
    case '0':
        return go_in_number(json, byte, JSON_STREAM_ZERO);
    case 't':
    case 'T':
        return open_literal(json, "rue", "true");
    case 'f':
    case 'F':
        return open_literal(json, "alse", "false");
    case 'n':
        return open_literal(json, "ull", "null");
    case 'N':
        return open_literal(json, "one", "null");
    default:
        return is_digit(byte) ? go_in_number(json, byte, JSON_STREAM_INTEGER) : JSON_STREAM_BAD;
    }
}

static enum json_stream_step after_value(struct json_stream *json, char byte) {
    bool is_object = json->is_object[json->depth - 1];
    if (byte != ',')
        return byte == (is_object ? '}' : ']') ? close_container(json) : JSON_STREAM_BAD;
    json->gap[json->gap_length++] = byte;
    return go(json, is_object ? JSON_STREAM_KEY_OR_END : JSON_STREAM_ITEM_OR_END);
}

static enum json_stream_step push_colon(struct json_stream *json, char byte) {
    if (byte != ':')
        return JSON_STREAM_BAD;
    put(json, ":", 1);
    return go(json, JSON_STREAM_VALUE);
}

static void push_space(struct json_stream *json, char byte) {
    if (json->gap_length == 0)
        put(json, &byte, 1);
    else if (json->gap_length < sizeof(json->gap))
        json->gap[json->gap_length++] = byte;
}

/* Between the values, where white space may stand. */
static enum json_stream_step push_structure(struct json_stream *json, char byte) {
    if (text_is_space(byte)) {
        push_space(json, byte);
        return JSON_STREAM_MORE;
    }
    if (byte != '}' && byte != ']')
        put(json, json->gap, json->gap_length);
    json->gap_length = 0;
    switch (json->state) {
    case JSON_STREAM_VALUE:
        return open_value(json, byte);
    case JSON_STREAM_ITEM_OR_END:
        return byte == ']' ? close_container(json) : open_value(json, byte);
    case JSON_STREAM_KEY_OR_END:
        if (byte == '}')
            return close_container(json);
        return is_quote(byte) ? open_string(json, byte, true) : JSON_STREAM_BAD;
    case JSON_STREAM_COLON:
        return push_colon(json, byte);
    default:
        return after_value(json, byte);
    }
}

static enum json_stream_step push_string(struct json_stream *json, char byte) {
    json->state = JSON_STREAM_STRING;
    if (byte == '\\')
        return go(json, JSON_STREAM_ESCAPE);
    if (byte == json->quote) {
        put(json, "\"", 1);
        return json->is_key ? go(json, JSON_STREAM_COLON) : end_value(json);
    }
    if (byte == '"')
        put(json, "\\\"", 2);
    else if ((unsigned char)byte < 0x20)
        json->num_out += (size_t)snprintf(json->out + json->num_out, JSON_STREAM_MAX_BYTES,
                                          "\\u%04x", (unsigned)byte);
    else
        put(json, &byte, 1);
    return JSON_STREAM_MORE;
}

/* A backslash that begins no escape is the text's: in \d and \$ it is meant. */
static enum json_stream_step push_escape(struct json_stream *json, char byte) {
    json->num_hex = 0;
    if (byte == 'u')
        return go(json, JSON_STREAM_HEX);
    if (byte == '\0' || strchr("'\"\\/bfnrt", byte) == NULL) {
        put(json, "\\\\", 2);
        return push_string(json, byte);
    }
    if (byte != '\'')
        put(json, "\\", 1);
    put(json, &byte, 1);
    return go(json, JSON_STREAM_STRING);
}

static enum json_stream_step push_hex(struct json_stream *json, char byte) {
    bool is_hex = byte != '\0' && strchr("0123456789abcdefABCDEF", byte) != NULL;
    if (is_hex) {
        json->hex[json->num_hex++] = byte;
        if (json->num_hex < 4)
            return JSON_STREAM_MORE;
    }
    put(json, is_hex ? "\\u" : "\\\\u", is_hex ? 2 : 3);
    put(json, json->hex, (size_t)json->num_hex);
    return is_hex ? go(json, JSON_STREAM_STRING) : push_string(json, byte);
}

static enum json_stream_step push_literal(struct json_stream *json, char byte) {
    if (byte != *json->rest)
        return JSON_STREAM_BAD;
    if (*++json->rest != '\0')
        return JSON_STREAM_MORE;
    put(json, json->literal, strlen(json->literal));
    return end_value(json);
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
        return go_in_number(json, byte, next);
    if (!number_may_end(json->state))
        return JSON_STREAM_BAD;
    json->num_out = json_number_end(&json->number, json->out);
    if (json->depth == 0)
        return JSON_STREAM_DONE_BEFORE;
    json->state = JSON_STREAM_AFTER_VALUE;
    return push_structure(json, byte);
}

enum json_stream_step json_stream_push(struct json_stream *json, char byte) {
    json->num_out = 0;
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
