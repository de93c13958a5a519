/* How an endpoint names what all generating endpoints have. Readers of shared fields look them up,
 * and name them in errors, as the endpoint does. */
#ifndef QUIRE_SERVER_API_CALL_BODY_NAMES_H
#define QUIRE_SERVER_API_CALL_BODY_NAMES_H

#include "config/json/json_field.h"

/* Static. */
struct body_names {
    const struct json_alias *aliases; /* NULL: none */
    int num_aliases;
    const char *format;    /* the dotted path of the output's form: "response_format" */
    bool has_flat_format;  /* a json_schema's members (name, schema, strict) stand in the form
                              itself, not in its member json_schema */
    bool has_schema_alone; /* of these the schema alone: the others are not known there */
};

/* Those of completions and chats. */
extern const struct body_names openai_names;

/* Returns a field's member, NULL where it is not given. */
const cJSON *body_names_given(const struct body_names *names, const cJSON *body, const char *name);
/* Returns what the body calls a field, its alias where it has neither; static, as `name` is. */
const char *body_names_field(const struct body_names *names, const cJSON *body, const char *name);
/* Returns the table with the aliases. */
struct json_table body_names_table(const struct body_names *names, struct json_table table);

#endif
