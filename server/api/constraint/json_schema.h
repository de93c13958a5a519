/* JSON schemas as grammars of the JSON texts that match them.
 *
 * Supported: type (also a list), enum, const, properties, required, additionalProperties, items,
 * prefixItems, minItems, maxItems, minLength, maxLength, pattern (grammar_regex.h), format
 * (date-time, date, time, uuid, email, ipv4), minimum, maximum and their exclusive forms, anyOf,
 * oneOf (as anyOf), allOf (merged), $ref within the schema. Annotations are ignored. What else
 * there is narrows nothing: it is ignored, or with `strict` refused by name.
 *
 * The texts are a subset of those that match: properties come in the schema's order; an object with
 * `properties` has no others unless additionalProperties says so; one space may follow a comma or
 * colon and there is no other white space (small models would never stop writing it); numbers have
 * at most 16 digits before and behind the point. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_H

#include "engine/grammar/grammar.h"
#include "server/api/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define JSON_SCHEMA_MAX_DEPTH 64
#define JSON_SCHEMA_MAX_SCHEMAS 5000 /* subschemas, and values of enum */
#define JSON_SCHEMA_MAX_BRANCHES 256 /* of one anyOf, oneOf, allOf or list of types */

/* `path` names the schema in messages ("response_format.json_schema.schema"). The schema is not
 * kept. -1 and *err: 400 naming the place and what is wrong there (invalid_json_schema, or
 * unsupported_json_schema for a schema that is none of this server's), or 503. What only the whole
 * grammar shows, $ref loops for instance, is left to grammar_build; *out is GRAMMAR_FAILED when the
 * builder met a bound. */
int json_schema_node(struct grammar_builder *builder, const cJSON *schema, const char *path,
                     bool strict, grammar_node *out, struct api_error *err);
/* Returns whether a 400 of json_schema_node is for a schema that may well be valid. */
bool json_schema_is_unsupported(const struct api_error *err);
/* Any JSON object. */
grammar_node json_schema_any_object(struct grammar_builder *builder);

/* grammar_build, with its error as a client gets it. */
int json_schema_build(struct grammar_builder *builder, grammar_node root, const char *path,
                      struct grammar **out, struct api_error *err);

#endif
