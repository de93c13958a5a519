/* Private to json_schema*.c: goals and cases whose values an enum or a const names. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_CHOICE_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_CHOICE_H

#include "engine/grammar/read/json_schema_private.h"

extern const cJSON schema_null, schema_true, schema_false;

/* The values of one enum, or one const, of which those are chosen that match all else. */
struct schema_choice {
    const cJSON *item, *first; /* its first value: of a const the item itself */
    bool is_const;
};

/* The values of a choice that a goal, or else a case, admits. */
struct schema_admission {
    const struct schema_goal *goal;
    enum json_type type;
    const struct schema_case *one;
};

/* Finds a schema of the goal, or a fact of the case, that names its values. */
bool schema_goal_choice(const struct schema_context *c, const struct schema_goal *goal,
                        struct schema_choice *out);
bool schema_case_choice(const struct schema_case *one, struct schema_choice *out);
/* The admitted values as nodes, and whether there is none. */
int schema_choice_node(struct schema_context *c, const struct schema_choice *choice,
                       const struct schema_admission *admission, grammar_node *out);
int schema_choice_is_empty(struct schema_context *c, const struct schema_choice *choice,
                           const struct schema_admission *admission, bool *out);
int schema_case_admits(struct schema_context *c, enum json_type type, const struct schema_case *one,
                       const cJSON *value, bool *out);

#endif
