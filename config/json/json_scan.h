/* Strict JSON, checked without building anything: what stands in front of cJSON.
 *
 * cJSON 1.7.15 cuts strings at \u0000, takes raw control bytes, invalid UTF-8, numbers such as 01,
 * 1. and 1e400, bytes after the value, and duplicate keys, and needs some 40 bytes of heap per byte
 * of [1,1,...]. json_scan checks the bytes against RFC 8259 and the limits first, in O(n log n)
 * time and without a tree; only what passes is given to cJSON. */
#ifndef QUIRE_CONFIG_BASE_JSON_SCAN_H
#define QUIRE_CONFIG_BASE_JSON_SCAN_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define JSON_MAX_DEPTH 64
/* cJSON reads at most this many characters of a number. */
#define JSON_MAX_NUMBER_CHARS 63

struct json_limits {
    int max_depth;           /* of nested arrays and objects; 1..JSON_MAX_DEPTH */
    int max_nodes;           /* values of any kind, keys not counted */
    bool takes_any_escape;   /* \u0000 and unpaired surrogates, which are JSON and cannot be kept */
    bool takes_doubled_keys; /* as readers do that let the last one count */
};

/* 0 when data[0..length) is one JSON object and nothing else but white space: valid UTF-8, no
 * \u0000, surrogates paired, every number finite as a double, no key twice in one object (compared
 * after unescaping), within the limits, but for what these let pass. Otherwise -1 and *err:
 * ERROR_SYNTAX and what is wrong at which byte, without a subject ("unexpected '}' at byte 4 where
 * ':' is expected"), or ERROR_MEMORY. */
int json_scan(const char *data, size_t length, const struct json_limits *limits, struct error *err);

#endif
