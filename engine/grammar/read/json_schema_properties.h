/* Private to json_schema_*.c: what a case says of an object. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_PROPERTIES_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_PROPERTIES_H

#include "engine/grammar/read/json_schema_private.h"

#define OBJECT_MAX_CLASSES 32

/* A property that has a name of its own, in the order of the schema. */
struct property {
    const char *name;
    struct schema_literal *literals; /* what its value must match */
    int num_literals, literals_capacity;
    bool required, is_absent; /* is_absent: there must be none */
};

/* Names of other properties whose values must match the same schemas. */
struct name_class {
    const struct text_automaton *automaton; /* NULL: all strings */
    struct schema_literal *literals;
    int num_literals, literals_capacity;
    uint32_t patterns; /* of patternProperties that the names match, as bits */
};

struct object {
    struct property *properties;
    int num_properties, properties_capacity;
    struct name_class classes[OBJECT_MAX_CLASSES];
    int num_classes;
    int num_others; /* names that the classes have, at most GRAMMAR_MAX_REPEAT */
    int min, max;   /* properties; max < 0: no end */
    bool is_empty;
    const char *path;
};

/* Reads a case. Without `classes` only what tells whether it is empty: no other properties, if
 * it may do without. Where
 * the schema names properties, and says nothing of others, there are none. */
int schema_read_object(struct schema_context *c, const struct schema_case *one, bool classes,
                       struct object *out);

#endif
