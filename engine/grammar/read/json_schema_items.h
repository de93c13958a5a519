/* Private to json_schema*.c: what a case says of an array. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_ITEMS_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_ITEMS_H

#include "engine/grammar/read/json_schema_private.h"

#define ARRAY_MAX_PREFIX 256
#define ARRAY_MAX_LITERALS 32

/* A schema of all items from an index on. */
struct rest {
    struct schema_literal literal;
    int from;
};

/* What a case says of an array. */
struct array {
    int min, max; /* max < 0: no end */
    const struct schema_fact *prefixes[ARRAY_MAX_LITERALS];
    struct rest rests[ARRAY_MAX_LITERALS];
    const struct schema_fact *fails[ARRAY_MAX_LITERALS]; /* FACT_ITEM */
    const struct schema_fact *contains; /* or the opposite of items; NULL: neither */
    struct schema_literal contained;    /* what min_contained to max_contained items match */
    int min_contained, max_contained;   /* max_contained < 0: no end */
    int num_prefixes, num_rests, num_fails, num_places; /* places with a schema of their own */
    bool is_unique, is_closed, is_opened;
    const char *path;
};

/* The schemas that an item at a place must match. */
struct place_literals {
    struct schema_literal items[3 * ARRAY_MAX_LITERALS + 1];
};

enum content { ANY_ITEM, CONTAINED, NOT_CONTAINED };

int schema_read_array(struct schema_context *c, const struct schema_case *one, struct array *a);
/* The goal of an item at a place, of which `content` says whether it is counted. */
int schema_place_goal(struct schema_context *c, const struct array *a, int place,
                      enum content content, struct place_literals *memory, struct schema_goal *out);
/* Places that nothing can stand at end the array; without a word on further items it is closed. */
int schema_close_array(struct schema_context *c, struct array *a);

#endif
