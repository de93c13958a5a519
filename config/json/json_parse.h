/* Reads a request's body strictly (json_read.h) into a cJSON tree. */
#ifndef QUIRE_CONFIG_JSON_JSON_PARSE_H
#define QUIRE_CONFIG_JSON_JSON_PARSE_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stddef.h>

#define JSON_PARSE_MAX_NODES 1000000
#define JSON_PARSE_MAX_FIELDS 1024 /* of the body itself; each is searched for by name */

/* Returns a tree that the caller frees with cJSON_Delete. On failure returns NULL and fills *err:
 * status 400, code "invalid_json" and a message with the byte's offset, or status 503 when memory
 * is short. Use only cJSON_GetObjectItemCaseSensitive, cJSON_ArrayForEach and valuedouble on the
 * result: the others are case-insensitive, quadratic, or saturate. Read integers with
 * json_integer.h, and write the tree with json_write_tree: both keep all digits. */
cJSON *json_parse(const char *data, size_t length, struct api_error *err);

/* Parses an object that a model has written: the last value of a duplicate key counts, in the place
 * of the first. Errors as above. */
cJSON *json_parse_written(const char *data, size_t length, struct api_error *err);

/* Does the same for text that may break more rules: raw control characters and backslashes stand
 * for themselves, and what was cut off is closed; its last value is left out if it is
 * incomplete. */
cJSON *json_parse_cut(const char *data, size_t length, struct api_error *err);

#endif
