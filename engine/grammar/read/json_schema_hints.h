/* Private to json_schema*.c: the types that a schema means which names none. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_HINTS_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_HINTS_H

#include "engine/grammar/read/json_schema_private.h"

#define SCHEMA_ALL_TYPES ((1u << NUM_TYPES) - 1)

/* Without `type`, the keywords imply the types; none at all means any. */
int schema_meant_types(struct schema_context *c, const struct schema_goal *goal, unsigned *out);

#endif
