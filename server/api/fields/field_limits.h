/* Bounds of numeric fields that an option sets, or the vocabulary: the same for all endpoints. The
 * field tables (json_field.h) hold the other ones. */
#ifndef QUIRE_SERVER_API_FIELDS_FIELD_LIMITS_H
#define QUIRE_SERVER_API_FIELDS_FIELD_LIMITS_H

#include "server/api/api_context.h"
#include "server/json/json_field.h"

/* The table's line with the bounds it has here; unchanged where nothing sets them. */
struct json_field field_limits_bind(const struct api_context *context,
                                    const struct json_field *field);

/* json_fields_read with those bounds; a table of at most FIELD_LIMITS_MAX_FIELDS. */
#define FIELD_LIMITS_MAX_FIELDS 64
int field_limits_read(const struct api_context *context, const cJSON *json, struct json_table table,
                      void *target, struct api_error *err);

/* Of a field that says how many of the likeliest tokens' logprobs are asked for: -1, which asks for
 * all, becomes the size of the vocabulary. */
int64_t field_limits_logprobs(const struct api_context *context, int64_t value);

#endif
