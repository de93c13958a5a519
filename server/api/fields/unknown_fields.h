/* What happens to fields of a body that nobody knows. */
#ifndef QUIRE_SERVER_API_FIELDS_UNKNOWN_FIELDS_H
#define QUIRE_SERVER_API_FIELDS_UNKNOWN_FIELDS_H

#include "config/base/byte_buffer.h"
#include "server/api/api_context.h"
#include "server/api/api_error.h"
#include "server/json/json_field.h"

/* Of the body's fields that are in none of the tables: those of unsupported_fields.h are a 400
 * unless they ask for nothing; the names of the others are appended to `names`, as
 * json_fields_list_unknown writes them. -1 and *err on failure. */
int unknown_fields_read(const cJSON *json, const struct json_table *tables, int num_tables,
                        struct byte_buffer *names, struct api_error *err);

/* names: as above. -1 and a 400, whose param is the first one's, when there are any and the server
 * refuses them. */
int unknown_fields_check(const struct api_context *context, const struct byte_buffer *names,
                         struct api_error *err);

#endif
