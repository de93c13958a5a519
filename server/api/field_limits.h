/* Bounds of numeric fields that an option sets, or the model: the same for all endpoints. The field
 * tables (json_field.h) hold the other ones. */
#ifndef QUIRE_SERVER_FIELD_LIMITS_H
#define QUIRE_SERVER_FIELD_LIMITS_H

#include "server/api/api_context.h"
#include "server/api/api_error.h"

#include <cjson/cJSON.h>

/* The largest value of the field of that name; `otherwise` where nothing sets it. */
double field_limits_max(const struct api_context *context, const char *name, double otherwise);

/* -1 and a 400 that names the field, its value, what is allowed and the option when a number in the
 * body is beyond. */
int field_limits_check(const struct api_context *context, const cJSON *json, struct api_error *err);

#endif
