/* Private to json_schema*.c: an object being read, and the names of its other properties. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_NAMES_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_NAMES_H

#include "engine/grammar/read/json_schema_properties.h"

#define OBJECT_MAX_FACTS 64
#define OBJECT_MAX_PATTERNS 32
#define OBJECT_MAX_SOURCES 64

/* additionalProperties, or unevaluatedProperties: a schema of all properties that some schemas do
 * not name. */
struct remainder {
    struct schema_literal literal;
    const cJSON *sources[OBJECT_MAX_SOURCES]; /* schemas with properties and patternProperties */
    int num_sources;
};

/* A member of patternProperties. */
struct name_pattern {
    const struct text_automaton *automaton;
    const cJSON *item;
    struct schema_literal literal;
    const cJSON *source;
};

struct object_reader {
    struct schema_context *c;
    const struct schema_case *one;
    struct object *object;
    struct remainder *remainders;                         /* [OBJECT_MAX_FACTS] */
    struct name_pattern *patterns;                        /* [OBJECT_MAX_PATTERNS] */
    const struct text_automaton *names[OBJECT_MAX_FACTS]; /* that propertyNames admits */
    int num_remainders, num_patterns, num_names;
    bool is_closed, is_opened;
};

int schema_append_literal(struct schema_context *c, struct schema_literal literal,
                          struct schema_literal **list, int *count, int *capacity);
bool schema_is_source(const struct remainder *remainder, const cJSON *schema);
/* Returns whether minProperties is above the number of names that are known so far. */
bool schema_has_too_few(const struct object *o);
/* Fills the classes of the object, whose properties are read. All strings are one class, without an
 * automaton, where nothing cuts them. */
int schema_read_names(struct object_reader *r);

#endif
