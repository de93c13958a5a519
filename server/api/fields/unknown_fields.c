#include "server/api/fields/unknown_fields.h"

#include "server/api/fields/unsupported_fields.h"

#include <stdio.h>

#define MAX_SHOWN_BYTES 300

int unknown_fields_read(const cJSON *json, const struct json_table *tables, int num_tables,
                        struct byte_buffer *names, struct api_error *err) {
    const cJSON *item;
    cJSON_ArrayForEach(item, json) {
        if (!json_fields_know(tables, num_tables, item->string) &&
            unsupported_fields_check(item, err) != 0)
            return -1;
    }
    json_fields_list_unknown(json, tables, num_tables, unsupported_fields_is_neutral, "", names);
    return 0;
}

int unknown_fields_check(const struct api_context *context, const struct byte_buffer *names,
                         struct api_error *err) {
    if (names->length == 0 || !context->rejects_unknown_params)
        return 0;
    size_t first = 0;
    while (first < names->length && names->data[first] != ',')
        first++;
    char param[sizeof(err->param)];
    snprintf(param, sizeof(param), "%.*s", (int)first, names->data);
    return api_error_set(err, 400, "invalid_request_error", "unknown_parameter", param,
                         "this server refuses fields it does not know: %.*s",
                         names->length < MAX_SHOWN_BYTES ? (int)names->length : MAX_SHOWN_BYTES,
                         names->data);
}
