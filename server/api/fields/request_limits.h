/* Bounds that options and the vocabulary set, in addition to those in the field tables
 * (json_field.h): for numeric fields, the same at all endpoints, and for what one request takes
 * from the engine. */
#ifndef QUIRE_SERVER_API_FIELDS_REQUEST_LIMITS_H
#define QUIRE_SERVER_API_FIELDS_REQUEST_LIMITS_H

#include "engine/engine.h"
#include "server/api/call/api_context.h"
#include "config/json/json_field.h"

/* Returns the table's line with the bounds that apply here; unchanged if nothing sets them. */
struct json_field request_limits_bind(const struct api_context *context,
                                      const struct json_field *field);

/* Does the same as json_fields_read, with those bounds. The table has at most
 * REQUEST_LIMITS_MAX_FIELDS. */
#define REQUEST_LIMITS_MAX_FIELDS 64
int request_limits_read(const struct api_context *context, const cJSON *json,
                        struct json_table table, void *target, struct api_error *err);

/* Returns for how many of the most probable tokens a field requests logprobs: -1, which means all,
 * becomes the size of the vocabulary. */
int64_t request_limits_logprobs(const struct api_context *context, int64_t value);

/* Refuses a request that can never run here, however long it waits (kv_demand_fits): returns -1 and
 * fills *err, a 400 that names what the request takes, what there is and the option that gives
 * more. */
int request_limits_refuse(const struct request *request, const struct serving_limits *limits,
                          struct api_error *err);

#endif
