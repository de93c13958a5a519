/* Integers of a body in all their digits. cJSON has numbers as doubles, which round integers beyond
 * 2^53; where that is so, the tree's item keeps the digits as well, in valuestring, which cJSON
 * copies and frees with the item. */
#ifndef QUIRE_SERVER_JSON_INTEGER_H
#define QUIRE_SERVER_JSON_INTEGER_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Integers up to here are exact in doubles and their neighbours do not round to them. */
#define JSON_MAX_INT 9007199254740991 /* 2^53 - 1 */

/* Gives the items of a tree the digits; text is valid JSON (config/base/json_scan.h), and the tree
 * what cJSON made of it. -1 when memory is short. */
int json_integer_keep(cJSON *tree, const char *text, size_t length);

/* The digits as they were sent, with their sign; NULL: the item's double is exact, or it is no
 * integer. */
const char *json_integer_digits(const cJSON *item);

/* Returns whether the item is a whole number of 64 bits, as 3.0 is; then *out is it. */
bool json_integer_read(const cJSON *item, int64_t *out);

#endif
