/* Fields of other servers' request types that would change what the caller gets and that this
 * server does not have: leaving one aside would answer another question than was asked, so it is a
 * 400, unless its value asks for nothing. Fields that change nothing of the answer (metadata,
 * store, mirostat_tau without mirostat) are not here: they are ignored and named
 * (unknown_fields.h). */
#ifndef QUIRE_SERVER_API_FIELDS_UNSUPPORTED_FIELDS_H
#define QUIRE_SERVER_API_FIELDS_UNSUPPORTED_FIELDS_H

#include "server/api/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* The value that asks for nothing; null always does. */
enum neutral_value {
    NEUTRAL_NONE,     /* there is none: the field must be left out */
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
    const char *instead; /* what to use, for the message; NULL: there is nothing like it */
};

/* All of them, by name; static. */
const struct unsupported_field *unsupported_fields(size_t *out_count);

/* Whether the item of a body is one of them with a value that asks for nothing. */
bool unsupported_fields_is_neutral(const cJSON *item);

/* -1 and a 400 (param the field, code "unsupported_parameter") when the item of a body is one of
 * them and its value asks for something. */
int unsupported_fields_check(const cJSON *item, struct api_error *err);

#endif
