/* Private to json_schema*.c: goals that were met, each once, and the types that they mean. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_TABLE_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_TABLE_H

#include "engine/grammar/read/json_schema_private.h"

enum progress { UNTOUCHED, DEFERRED, COMPILING, COMPILED };
enum emptiness { UNKNOWN, SEARCHING, EMPTY, NOT_EMPTY };

struct schema_entry {
    struct schema_entry *next;          /* of the hash's list */
    struct schema_entry *next_deferred; /* of the queue */
    struct schema_goal goal;
    enum progress progress;
    enum emptiness emptiness;
    grammar_node node; /* COMPILED */
    grammar_node rule; /* that stands for it where it was needed earlier; -1: none */
};

/* Returns the entry of a goal, its references resolved; NULL and *c->err. */
struct schema_entry *schema_find_entry(struct schema_context *c, const struct schema_goal *goal);

#define SCHEMA_ALL_TYPES ((1u << NUM_TYPES) - 1)

/* Without `type`, the keywords imply the types; none at all means any. */
int schema_meant_types(struct schema_context *c, const struct schema_goal *goal, unsigned *out);

#endif
