/* Numbers of a body in all their digits. cJSON has numbers as doubles, which round integers beyond
 * 2^53 and decimals of more than 15 digits, and know no 1.0; where that may be so, the tree's item
 * keeps the number as it was sent as well, in valuestring, which cJSON copies and frees with the
 * item. json_read.h bounds its length (JSON_MAX_NUMBER_CHARS). */
#ifndef QUIRE_CONFIG_JSON_JSON_INTEGER_H
#define QUIRE_CONFIG_JSON_JSON_INTEGER_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_NUMBER_BYTES 64 /* JSON_MAX_NUMBER_CHARS and a NUL */

/* Integers up to here are exact in doubles and their neighbours do not round to them. */
#define JSON_MAX_INT 9007199254740991 /* 2^53 - 1 */

/* Returns whether a number keeps its text, which was read as `value`: the double does not say all
 * its digits, or it is a whole one that was not written as an integer, as 1.0. */
bool json_integer_needs_text(const char *text, double value);

/* The number as it was sent; NULL: the item's double says the same. */
const char *json_integer_literal(const cJSON *item);
/* The same of an integer: digits with their sign. NULL also when it was sent as a decimal. */
const char *json_integer_digits(const cJSON *item);
/* Writes the number into JSON_NUMBER_BYTES: the literal, or the shortest text that reads back as
 * the same double, without an exponent where it is an integer up to JSON_MAX_INT. */
void json_integer_print(const cJSON *item, char *out, size_t capacity);

/* Returns whether it was written as an integer, as 1 is; 1.0 and 1e5 are whole, and are not. */
bool json_integer_is_written(const cJSON *item);

/* Returns whether the item is a whole number of 64 bits, as 3.0 is; then *out is it. */
bool json_integer_read(const cJSON *item, int64_t *out);

#endif
