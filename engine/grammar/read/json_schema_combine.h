/* Private to json_schema*.c: schemas made of others. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_COMBINE_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_COMBINE_H

#include "engine/grammar/read/json_schema_expand.h"

int schema_expand_ref(const struct schema_expansion *e);
int schema_expand_not(const struct schema_expansion *e);
int schema_expand_all_of(const struct schema_expansion *e);
int schema_expand_any_of(const struct schema_expansion *e);
int schema_expand_one_of(const struct schema_expansion *e);
int schema_expand_if(const struct schema_expansion *e);

#endif
