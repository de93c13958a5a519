/* Private to models/: single values of a GGUF file's metadata, range-checked. Every function
 * returns 0, or -1 and one line that names file, key, value and what is allowed. */
#ifndef QUIRE_MODELS_CONFIG_METADATA_FIELD_H
#define QUIRE_MODELS_CONFIG_METADATA_FIELD_H

#include "config/base/error.h"
#include "models/files/tensor_file.h"

#include <stdbool.h>
#include <stdint.h>

#define METADATA_MAX_KEY 96

/* Where keys are looked up, and where errors go. A key is given without the architecture's name in
 * front: ".block_count"; a key that does not begin with a dot is used unchanged. */
struct metadata_source {
    const struct tensor_file *file;
    const char *architecture; /* "llama"; up to 48 bytes */
    struct error *err;
};

/* Returns NULL if absent. */
const struct metadata *metadata_field_find(const struct metadata_source *s, const char *key);
int metadata_field_refuse(const struct metadata_source *s, const char *key, const char *reason);

/* *out keeps its value when the key is absent. */
int metadata_field_int(const struct metadata_source *s, const char *key, int64_t min, int64_t max,
                       int32_t *out);
int metadata_field_float(const struct metadata_source *s, const char *key, double min, double max,
                         float *out);
/* Fails for a missing key. */
int metadata_field_require(const struct metadata_source *s, const char *key);

/* Copies the text, printable and NUL-terminated, cut at a character boundary. */
void metadata_field_copy(struct text text, char *out, size_t capacity);

#endif
