/* Private to json_schema*.c: keywords of objects that say something of single properties. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_EXPAND_OBJECT_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_EXPAND_OBJECT_H

#include "engine/grammar/read/json_schema_expand.h"

int schema_expand_required(const struct schema_expansion *e);
int schema_expand_properties(const struct schema_expansion *e);
int schema_expand_dependencies(const struct schema_expansion *e);

#endif
