/* A number that comes character by character, of any length, as one that a request's reader takes
 * (config/json/json_read.h): what is longer than that, or beyond the doubles, becomes the nearest
 * double. */
#ifndef QUIRE_SERVER_OUTPUT_JSON_NUMBER_H
#define QUIRE_SERVER_OUTPUT_JSON_NUMBER_H

#include "config/json/json_read.h"

#include <stdbool.h>
#include <stddef.h>

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

#endif
