/* Reads strict JSON into a cJSON tree, in one pass over its bytes.
 *
 * cJSON's own parser (1.7.15) cuts strings at \u0000, accepts raw control bytes, invalid UTF-8,
 * numbers such as 01, 1. and 1e400, bytes after the value and duplicate keys, rounds integers above
 * 2^53, and has no limit on the number of values. Here the bytes are checked against RFC 8259 and
 * the limits while the tree is built, in O(n log n) time; cJSON can write, copy and free the
 * result. */
#ifndef QUIRE_CONFIG_JSON_JSON_READ_H
#define QUIRE_CONFIG_JSON_JSON_READ_H

#include "config/base/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#define JSON_MAX_DEPTH 64
#define JSON_MAX_NUMBER_CHARS 63

struct json_limits {
    int max_depth; /* of nested arrays and objects; 1..JSON_MAX_DEPTH */
    int max_nodes; /* values of any kind, keys not counted */
    /* \u0000 and unpaired surrogates are valid JSON, but C strings and UTF-8 cannot hold them. If
     * true, they become U+FFFD; otherwise they are errors. */
    bool takes_any_escape;
    bool takes_doubled_keys; /* for readers that let the last one count: the tree has all of them */
};

/* Returns the tree if data[0..length) is one JSON object and otherwise only white space: valid
 * UTF-8, every number finite as a double, no key twice in one object (compared after unescaping),
 * within the limits. Otherwise returns NULL and fills *err: ERROR_SYNTAX and what is wrong at which
 * byte, without a subject ("unexpected '}' at byte 4 where ':' is expected"), or ERROR_MEMORY.
 *
 * The caller frees it with cJSON_Delete. A number keeps its text if its double does not say
 * everything (json_integer.h). Use only cJSON_GetObjectItemCaseSensitive, cJSON_ArrayForEach and
 * valuedouble on the result: the others ignore case, are quadratic, or saturate. */
cJSON *json_read(const char *data, size_t length, const struct json_limits *limits,
                 struct error *err);

#endif
