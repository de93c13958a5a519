#include "models/config/config_field.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

const cJSON *config_field_find(const struct config_object *o, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(o->json, key);
    return cJSON_IsNull(item) ? NULL : item;
}

bool config_field_is_null(const struct config_object *o, const char *key) {
    return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(o->json, key));
}

int config_field_refuse(const struct config_object *o, const char *key, const char *format, ...) {
    char reason[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return error_set(o->err, ERROR_MODEL, "%s: %s%.64s: %s", o->file, o->prefix, key, reason);
}

int config_field_require(const struct config_object *o, const char *key) {
    return config_field_find(o, key) != NULL ? 0 : config_field_refuse(o, key, "is missing");
}

bool config_field_is_int(const cJSON *item, int64_t min, int64_t max) {
    return cJSON_IsNumber(item) && item->valuedouble >= (double)min &&
           item->valuedouble <= (double)max && floor(item->valuedouble) == item->valuedouble;
}

int config_field_int(const struct config_object *o, const char *key, int64_t min, int64_t max,
                     int32_t *out) {
    const cJSON *item = config_field_find(o, key);
    if (item == NULL)
        return 0;
    if (!cJSON_IsNumber(item) || floor(item->valuedouble) != item->valuedouble)
        return config_field_refuse(o, key, "is not an integer");
    if (!config_field_is_int(item, min, max))
        return config_field_refuse(o, key, "%.16g (allowed: %" PRId64 " to %" PRId64 ")",
                                   item->valuedouble, min, max);
    *out = (int32_t)item->valuedouble;
    return 0;
}

int config_field_float(const struct config_object *o, const char *key, double min, double max,
                       float *out) {
    const cJSON *item = config_field_find(o, key);
    if (item == NULL)
        return 0;
    if (!cJSON_IsNumber(item))
        return config_field_refuse(o, key, "is not a number");
    if (!(item->valuedouble >= min && item->valuedouble <= max))
        return config_field_refuse(o, key, "%g (allowed: %g to %g)", item->valuedouble, min, max);
    *out = (float)item->valuedouble;
    return 0;
}

int config_field_bool(const struct config_object *o, const char *key, bool *out) {
    const cJSON *item = config_field_find(o, key);
    if (item == NULL)
        return 0;
    if (!cJSON_IsBool(item))
        return config_field_refuse(o, key, "is neither true nor false");
    *out = cJSON_IsTrue(item);
    return 0;
}

int config_field_string(const struct config_object *o, const char *key, const char **out) {
    const cJSON *item = config_field_find(o, key);
    if (item == NULL)
        return 0;
    if (!cJSON_IsString(item))
        return config_field_refuse(o, key, "is not a string");
    *out = item->valuestring;
    return 0;
}

int config_field_object(const struct config_object *o, const char *key, struct config_object *out) {
    const cJSON *item = config_field_find(o, key);
    if (item != NULL && !cJSON_IsObject(item))
        return config_field_refuse(o, key, "is not an object");
    struct config_object found = {.json = item, .file = o->file, .err = o->err};
    snprintf(found.prefix, sizeof(found.prefix), "%.30s%.30s.", o->prefix, key);
    *out = found;
    return 0;
}

int config_field_array(const struct config_object *o, const char *key, const cJSON **out) {
    const cJSON *item = config_field_find(o, key);
    if (item != NULL && !cJSON_IsArray(item))
        return config_field_refuse(o, key, "is not an array");
    *out = item;
    return 0;
}
