/* Finds the end of one JSON value (RFC 8259) that comes byte by byte. Takes what models write: a
 * string may hold raw control characters. Depth costs no C stack. */
#ifndef QUIRE_SERVER_OUTPUT_JSON_STREAM_H
#define QUIRE_SERVER_OUTPUT_JSON_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_STREAM_MAX_DEPTH 128 /* of nested arrays and objects */
#define JSON_STREAM_MAX_BYTES 8   /* that one byte becomes */

enum json_stream_step {
    JSON_STREAM_MORE,
    JSON_STREAM_DONE,        /* the byte is the value's last */
    JSON_STREAM_DONE_BEFORE, /* the value, a number, ended before the byte */
    JSON_STREAM_BAD,         /* no JSON, or nested too deeply */
};

enum json_stream_state {
    JSON_STREAM_VALUE,
    JSON_STREAM_ITEM_OR_END,
    JSON_STREAM_KEY_OR_END,
    JSON_STREAM_KEY,
    JSON_STREAM_COLON,
    JSON_STREAM_AFTER_VALUE,
    JSON_STREAM_STRING,
    JSON_STREAM_ESCAPE,
    JSON_STREAM_HEX,
    JSON_STREAM_LITERAL,
    JSON_STREAM_MINUS,
    JSON_STREAM_ZERO,
    JSON_STREAM_INTEGER,
    JSON_STREAM_POINT,
    JSON_STREAM_FRACTION,
    JSON_STREAM_EXPONENT,
    JSON_STREAM_EXPONENT_SIGN,
    JSON_STREAM_EXPONENT_DIGITS,
};

struct json_stream {
    enum json_stream_state state;
    bool is_key;      /* the string is an object's key */
    int num_hex;      /* digits of \uXXXX still to come */
    const char *rest; /* of the literal */
    int depth;
    bool is_object[JSON_STREAM_MAX_DEPTH];
};

/* White space may come before the value. */
void json_stream_init(struct json_stream *json);
/* After DONE, DONE_BEFORE or BAD nothing may be pushed. */
enum json_stream_step json_stream_push(struct json_stream *json, char byte);
/* The next byte belongs to a string, outside of its escapes. */
bool json_stream_in_string(const struct json_stream *json);
/* Writes a byte of a text as it stands in a JSON string, and returns the length. */
size_t json_stream_escape(char byte, char out[static JSON_STREAM_MAX_BYTES]);
/* Writes the byte that is pushed next as JSON has it, and returns the length: a raw control
 * character in a string, which JSON forbids and models write, becomes \u00XX. */
size_t json_stream_byte(const struct json_stream *json, char byte,
                        char out[static JSON_STREAM_MAX_BYTES]);

#endif
