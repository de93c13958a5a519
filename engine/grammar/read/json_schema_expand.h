/* Private to json_schema*.c: how a keyword is expanded. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_EXPAND_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_EXPAND_H

#include "engine/grammar/read/json_schema_private.h"

/* A keyword of a schema as it is expanded for a type. */
struct schema_expansion {
    struct schema_context *c;
    const struct schema_literal *of;
    const cJSON *item;
    enum json_type type;
    int nesting;
    struct schema_cases *out;
};

int schema_expand(struct schema_context *c, const struct schema_literal *literal,
                  enum json_type type, int nesting, struct schema_cases *out);
int schema_expand_value(const struct schema_expansion *e, bool value);
/* What holds for all values: false where the schema is negated. */
int schema_expand_true(const struct schema_expansion *e);
int schema_keep_fact(const struct schema_expansion *e);
int schema_decline_negation(const struct schema_expansion *e);
/* One schema within the keyword's, possibly the opposite of it. */
int schema_expand_within(const struct schema_expansion *e, const cJSON *schema, const char *label,
                         bool negated, struct schema_cases *out);
int schema_check_is(const struct schema_expansion *e, bool is_right, const char *what);

#endif
