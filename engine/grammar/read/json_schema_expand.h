/* Private to json_schema*.c: how a keyword is expanded, and the cases that it gives. */
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
/* One schema within the keyword's, possibly the opposite of it. */
int schema_expand_within(const struct schema_expansion *e, const cJSON *schema, const char *label,
                         bool negated, struct schema_cases *out);

/* --- Formulas in disjunctive normal form --- */

/* True or false of all values. */
int schema_set_cases(struct schema_context *c, bool value, struct schema_cases *out);
int schema_or_cases(struct schema_context *c, struct schema_cases *into,
                    const struct schema_cases *more);
/* Facts that both have are in it once: keywords by what they are of. */
int schema_join_cases(struct schema_context *c, const struct schema_case *a,
                      const struct schema_case *b, struct schema_case *out);
/* Leaves out the cases of which it is known that nothing matches them. */
int schema_and_cases(struct schema_context *c, enum json_type type, struct schema_cases *into,
                     const struct schema_cases *more);

/* --- json_schema_combine.c: schemas made of others --- */

int schema_expand_ref(const struct schema_expansion *e);
int schema_expand_not(const struct schema_expansion *e);
int schema_expand_all_of(const struct schema_expansion *e);
int schema_expand_any_of(const struct schema_expansion *e);
int schema_expand_one_of(const struct schema_expansion *e);
int schema_expand_if(const struct schema_expansion *e);

#endif
