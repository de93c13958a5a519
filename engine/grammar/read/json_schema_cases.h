/* Private to json_schema*.c: formulas in disjunctive normal form. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_CASES_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_CASES_H

#include "engine/grammar/read/json_schema_private.h"

/* True or false of all values. */
int schema_set_cases(struct schema_context *c, bool value, struct schema_cases *out);
int schema_one_fact(struct schema_context *c, struct schema_fact fact, struct schema_cases *out);
int schema_or_cases(struct schema_context *c, struct schema_cases *into,
                    const struct schema_cases *more);
/* Facts that both have are in it once: keywords by what they are of. */
int schema_join_cases(struct schema_context *c, const struct schema_case *a,
                      const struct schema_case *b, struct schema_case *out);
/* Leaves out the cases of which it is known that nothing matches them. */
int schema_and_cases(struct schema_context *c, enum json_type type, struct schema_cases *into,
                     const struct schema_cases *more);

#endif
