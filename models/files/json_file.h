/* The JSON files of a model folder as cJSON trees: read whole, bounded, checked strictly
 * (config/json/json_read.h: no key twice, valid UTF-8, no \u0000).
 *
 * A tree takes 5 to 40 times the bytes of its file: delete it before the weights are loaded. cJSON
 * keeps numbers as doubles; use valuedouble (exact up to 2^53), cJSON_ArrayForEach and
 * cJSON_GetObjectItemCaseSensitive: the others saturate, are quadratic, or ignore case. A look-up
 * is linear: walk a large object (a vocabulary) once, with cJSON_ArrayForEach. */
#ifndef QUIRE_MODELS_FILES_JSON_FILE_H
#define QUIRE_MODELS_FILES_JSON_FILE_H

#include "config/base/error.h"

#include <cjson/cJSON.h>
#include <stddef.h>

/* Maximum number of values in one document. The largest known, tokenizer.json of Gemma 3, has about
 * 2 million. */
#define JSON_FILE_MAX_NODES (8 << 20)

/* Reads the object that a file holds; the caller frees with cJSON_Delete. NULL on failure:
 * ERROR_MODEL with the file, the byte and what is wrong there, also for more than max_bytes;
 * ERROR_IO when it cannot be opened or read, ERROR_MEMORY. */
cJSON *json_file_read(const char *path, size_t max_bytes, struct error *err);

/* Reads one from memory, which may be freed afterwards; messages use `name` as the file. */
cJSON *json_memory_read(const char *data, size_t length, const char *name, struct error *err);

#endif
