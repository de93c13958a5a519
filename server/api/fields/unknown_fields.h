/* The fields of a body that are in no table of its endpoint. Fields of other servers' requests that
 * would change what the caller gets are a 400 that names them, unless their value requests nothing:
 * to ignore one would answer a different question. All others (metadata, store, adaptive_decay
 * without adaptive_target) are ignored and named in a header, or refused with --unknown-params
 * reject. */
#ifndef QUIRE_SERVER_API_FIELDS_UNKNOWN_FIELDS_H
#define QUIRE_SERVER_API_FIELDS_UNKNOWN_FIELDS_H

#include "config/base/byte_buffer.h"
#include "server/api/call/api_context.h"
#include "config/json/api_error.h"
#include "config/json/json_field.h"

/* Refuses the unsupported ones of the body's fields that are in none of the tables, and appends the
 * names of the ignored ones to `names`, like json_fields_list_unknown. The first table has the
 * endpoint's aliases. On failure returns -1 and fills *err: code "unsupported_parameter", param is
 * the field. */
int unknown_fields_read(const cJSON *json, const struct json_table *tables, int num_tables,
                        struct byte_buffer *names, struct api_error *err);

/* Refuses the names from above if there are any and the server accepts none: returns -1 and a 400,
 * whose param is the first one. */
int unknown_fields_check(const struct api_context *context, const struct byte_buffer *names,
                         struct api_error *err);

/* The value that requests nothing; null always does. */
enum neutral_value {
    NEUTRAL_NONE,     /* no value does: the field must be left out */
    NEUTRAL_FALSE,    /* false */
    NEUTRAL_TRUE,     /* true */
    NEUTRAL_EMPTY,    /* "", [] or {} */
    NEUTRAL_ZERO,     /* 0 */
    NEUTRAL_ONE,      /* 1 */
    NEUTRAL_NEGATIVE, /* any number below 0 */
    NEUTRAL_NOT_POSITIVE,
    NEUTRAL_WORD, /* the text `word` */
};

struct unsupported_field {
    const char *name;
    enum neutral_value neutral;
    const char *word;
    /* What to use instead, for the message, with {NAME} for what the endpoint calls that field;
     * NULL: there is nothing similar. */
    const char *instead;
};

/* Returns the table of the unsupported fields, by name; static. */
const struct unsupported_field *unknown_fields_unsupported(size_t *out_count);

#endif
