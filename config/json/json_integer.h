/* The numbers of a body with all their digits. cJSON stores numbers as doubles, which round
 * integers beyond 2^53 and decimals of more than 15 digits, and do not tell 1.0 from 1. Where that
 * matters, the tree's item also keeps the number as it was sent, in valuestring, which cJSON copies
 * and frees with the item. json_read.h bounds its length (JSON_MAX_NUMBER_CHARS). */
#ifndef QUIRE_CONFIG_JSON_JSON_INTEGER_H
#define QUIRE_CONFIG_JSON_JSON_INTEGER_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_NUMBER_BYTES 64 /* JSON_MAX_NUMBER_CHARS and a NUL */

/* Integers up to here are exact in doubles and their neighbours do not round to them. */
#define JSON_MAX_INT 9007199254740991 /* 2^53 - 1 */

/* Returns whether a number keeps its text, which was read as `value`: because the double does not
 * give all its digits, or because it is whole but was not written as an integer, like 1.0. */
bool json_integer_needs_text(const char *text, double value);

/* Returns the number as it was sent; NULL if the item's double says the same. */
const char *json_integer_literal(const cJSON *item);
/* Returns the same for an integer: digits with their sign. NULL also when it was sent as a
 * decimal. */
const char *json_integer_digits(const cJSON *item);
/* Writes the number into JSON_NUMBER_BYTES: the literal, or the shortest text that reads back as
 * the same double, without an exponent if it is an integer up to JSON_MAX_INT. */
void json_integer_print(const cJSON *item, char *out, size_t capacity);

/* Returns whether it was written as an integer, like 1; 1.0 and 1e5 are whole, but were not. */
bool json_integer_is_written(const cJSON *item);

/* Returns whether the item is a whole number of 64 bits, like 3.0, and if so writes it to *out. */
bool json_integer_read(const cJSON *item, int64_t *out);

#endif
