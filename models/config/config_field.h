/* Private to models/: single values of a config.json, range-checked. Every function returns 0, or
 * -1 and one line that names file, key, value and what is allowed. An absent or null key leaves
 * *out unchanged. */
#ifndef QUIRE_MODELS_CONFIG_CONFIG_FIELD_H
#define QUIRE_MODELS_CONFIG_CONFIG_FIELD_H

#include "config/base/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* An object of the file; its keys are called PREFIX + key in messages. */
struct config_object {
    const cJSON *json; /* NULL: has no keys */
    const char *file;
    char prefix[64]; /* "", "text_config.", "rope_scaling." */
    struct error *err;
};

/* Returns NULL if absent or null. */
const cJSON *config_field_find(const struct config_object *o, const char *key);
/* Returns whether the key is present and null, which can mean something other than its absence. */
bool config_field_is_null(const struct config_object *o, const char *key);

int config_field_int(const struct config_object *o, const char *key, int64_t min, int64_t max,
                     int32_t *out);
int config_field_float(const struct config_object *o, const char *key, double min, double max,
                       float *out);
int config_field_bool(const struct config_object *o, const char *key, bool *out);
/* The string lives as long as the tree. */
int config_field_string(const struct config_object *o, const char *key, const char **out);
/* *out is an object without keys if the key is absent. */
int config_field_object(const struct config_object *o, const char *key, struct config_object *out);
/* *out is NULL if the key is absent. */
int config_field_array(const struct config_object *o, const char *key, const cJSON **out);

/* Sets the error "FILE: PREFIXkey: FORMAT" and returns -1. */
int config_field_refuse(const struct config_object *o, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int config_field_require(const struct config_object *o, const char *key);

/* Returns whether the item, which may be an array's element, is a whole number in [min, max]. */
bool config_field_is_int(const cJSON *item, int64_t min, int64_t max);

#endif
