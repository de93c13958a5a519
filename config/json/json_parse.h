/* A request's body as a cJSON tree, strictly read (json_read.h). */
#ifndef QUIRE_CONFIG_JSON_JSON_PARSE_H
#define QUIRE_CONFIG_JSON_JSON_PARSE_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stddef.h>

#define JSON_PARSE_MAX_NODES 1000000
#define JSON_PARSE_MAX_FIELDS 1024 /* of the body itself; each is searched for by name */

/* The caller frees with cJSON_Delete. NULL and *err on failure: status 400, code "invalid_json" and
 * a message with the byte's offset, or status 503 when memory is short. Use only
 * cJSON_GetObjectItemCaseSensitive, cJSON_ArrayForEach and valuedouble on the result: the others
 * are case-insensitive, quadratic, or saturate; integers by json_integer.h, and json_write_tree to
 * write it, as both know all digits. */
cJSON *json_parse(const char *data, size_t length, struct api_error *err);

/* Parses an object that a model has written: of a doubled key the last value counts, in the place
 * of the first. Errors as above. */
cJSON *json_parse_written(const char *data, size_t length, struct api_error *err);

/* The same where more rules may be broken: raw control characters and backslashes stand for
 * themselves; what was cut off is closed, and its last value left out where it is no whole one. */
cJSON *json_parse_cut(const char *data, size_t length, struct api_error *err);

#endif
