/* Reads one JSON value (RFC 8259) that comes byte by byte, and writes it as strict JSON. Takes what
 * models write besides: raw control characters, \' and unknown escapes (\$, \d: the backslash is
 * the text's) in a string, strings in single quotes, True, False and None, and a comma behind the
 * last item. Strict JSON is written as it stands, but for numbers that no reader here takes
 * (struct json_number). A number is written when it has ended. Depth costs no C stack. */
#ifndef QUIRE_SERVER_OUTPUT_JSON_STREAM_H
#define QUIRE_SERVER_OUTPUT_JSON_STREAM_H

#include "config/json/json_read.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number that comes character by character, of any length, as one that a request's reader takes
 * (config/json/json_read.h): what is longer than that, or beyond the doubles, becomes the nearest
 * double. */
/* A zeroed struct is no number yet. */
struct json_number {
    char text[JSON_MAX_NUMBER_CHARS + 1];      /* its first characters */
    size_t length;                             /* of all that came */
    long num_dropped;                          /* digits in front of the point that text lacks */
    long exponent;                             /* as far as it counts */
    bool has_point, has_exponent, is_negative; /* the last one: the exponent */
};

/* Adds the next character of a JSON number. */
void json_number_push(struct json_number *number, char byte);
/* Writes the number, at most JSON_MAX_NUMBER_CHARS characters without a NUL, and returns their
 * count. The next one begins. */
size_t json_number_end(struct json_number *number, char out[static JSON_MAX_NUMBER_CHARS + 1]);

/* Of nested arrays and objects: a call's arguments come back inside a request's messages. */
#define JSON_STREAM_MAX_DEPTH (JSON_MAX_DEPTH - 16)
#define JSON_STREAM_MAX_BYTES 8 /* that json_stream_escape writes */
#define JSON_STREAM_MAX_GAP 64  /* of a comma and white space; further white space is left out */

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
    bool is_key; /* the string is an object's key */
    char quote;  /* that ends the string */
    int num_hex; /* digits of \uXXXX that came */
    char hex[4];
    struct json_number number;
    const char *rest; /* of the literal */
    const char *literal;
    int depth;
    bool is_object[JSON_STREAM_MAX_DEPTH];
    char gap[JSON_STREAM_MAX_GAP]; /* a comma and what came since: an end leaves it out */
    size_t gap_length;
    char out[JSON_STREAM_MAX_GAP + JSON_MAX_NUMBER_CHARS +
             16]; /* [num_out]: what the last push wrote */
    size_t num_out;
};

/* White space may come before the value. */
void json_stream_init(struct json_stream *json);
/* Writes to json->out what is decided now. After DONE, DONE_BEFORE or BAD nothing may be pushed. */
enum json_stream_step json_stream_push(struct json_stream *json, char byte);
/* Writes a byte of a text as it stands in a JSON string, and returns the length. */
size_t json_stream_escape(char byte, char out[static JSON_STREAM_MAX_BYTES]);

#endif
