/* Reads one JSON value (RFC 8259) byte by byte, and writes it as strict JSON. Also accepts what
 * models write: raw control characters, \' and unknown escapes (\$, \d: the backslash belongs to
 * the text) in a string, strings in single quotes, True, False and None, and a comma after the last
 * item. Strict JSON is written unchanged, except for numbers that no reader here accepts (struct
 * json_number). A number is written when it has ended. Depth costs no C stack. */
#ifndef QUIRE_SERVER_OUTPUT_JSON_STREAM_H
#define QUIRE_SERVER_OUTPUT_JSON_STREAM_H

#include "config/json/json_read.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Converts a number of any length, character by character, to one that a request's reader accepts
 * (config/json/json_read.h): a longer one, or one beyond the range of doubles, becomes the nearest
 * double. */
/* A zeroed struct is an empty number. */
struct json_number {
    char text[JSON_MAX_NUMBER_CHARS + 1];      /* its first characters */
    size_t length;                             /* of all characters so far */
    long num_dropped;                          /* digits before the point that text lacks */
    long exponent;                             /* as far as it counts */
    bool has_point, has_exponent, is_negative; /* the last one: the exponent */
};

/* Adds the next character of a JSON number. */
void json_number_push(struct json_number *number, char byte);
/* Writes the number, at most JSON_MAX_NUMBER_CHARS characters without a NUL, and returns their
 * count. Then starts the next number. */
size_t json_number_end(struct json_number *number, char out[static JSON_MAX_NUMBER_CHARS + 1]);

/* Maximum nesting of arrays and objects: a call's arguments come back inside a request's
 * messages. */
#define JSON_STREAM_MAX_DEPTH (JSON_MAX_DEPTH - 16)
#define JSON_STREAM_MAX_BYTES 8 /* that json_stream_escape writes */
#define JSON_STREAM_MAX_GAP 64  /* comma and white space; further white space is dropped */

enum json_stream_step {
    JSON_STREAM_MORE,
    JSON_STREAM_DONE,        /* the byte is the value's last */
    JSON_STREAM_DONE_BEFORE, /* the value, a number, ended before the byte */
    JSON_STREAM_BAD,         /* not JSON, or nested too deeply */
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
    char quote;  /* the quote that ends the string */
    int num_hex; /* digits of \uXXXX so far */
    char hex[4];
    struct json_number number;
    const char *rest; /* the rest of the literal */
    const char *literal;
    int depth;
    bool is_object[JSON_STREAM_MAX_DEPTH];
    char gap[JSON_STREAM_MAX_GAP]; /* a comma and what follows it: dropped before an end */
    size_t gap_length;
    char out[JSON_STREAM_MAX_GAP + JSON_MAX_NUMBER_CHARS +
             16]; /* [num_out]: what the last push wrote */
    size_t num_out;
};

/* White space may come before the value. */
void json_stream_init(struct json_stream *json);
/* Writes to json->out what is decided now. Must not be called after DONE, DONE_BEFORE or BAD. */
enum json_stream_step json_stream_push(struct json_stream *json, char byte);
/* Writes a byte of a text in the form of a JSON string, and returns the length. */
size_t json_stream_escape(char byte, char out[static JSON_STREAM_MAX_BYTES]);

#endif
