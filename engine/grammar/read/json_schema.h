/* JSON schemas as grammars of the JSON texts that match them: drafts 4 to 2020-12.
 *
 * Every text of the grammar matches the schema. A keyword that a schema has is kept exactly, or the
 * schema is refused by a 400 that names the keyword and its place; none is passed over. Under
 * grammar_builder_ignore, uniqueItems, format, a pattern that cannot be read and unknown words of a
 * strict schema are left out where they would be refused, and named with their place.
 *
 * | keywords | |
 * |---|---|
 * | type, enum, const, allOf, anyOf, not, if | all |
 * | oneOf | where no value matches two of the schemas (by type, value, or a property that both
 * require), or the opposite of one can be written | | $ref, $dynamicRef, $recursiveRef | a JSON
 * pointer or an anchor within the schema, also recursive; not beside an $id within it | | minimum,
 * maximum, exclusive ones | up to 6 digits behind the point | | multipleOf | up to 4096 units of
 * its last digit; large ones only with bounds | | minLength, maxLength, pattern | in any
 * combination that is not too large; pattern as in grammar_regex.h | | format | date-time, date,
 * time, duration, uuid, email, hostname, ipv4, ipv6, uri, uri-reference, json-pointer; of JSON
 * Schema's others none, and any word that is none of those says nothing | | items, prefixItems,
 * additionalItems, minItems, maxItems | all | | contains, minContains, maxContains | once for an
 * array, with small bounds | | uniqueItems | items of an enum (or const, boolean, null) of at most
 * 10 values, or at most one item | | properties, required, patternProperties, propertyNames,
 * additionalProperties | all | | minProperties, maxProperties | all, but beside hundreds of
 * properties; no object has a name twice | | dependentRequired, dependentSchemas, dependencies |
 * all | | unevaluatedProperties, unevaluatedItems | beside allOf and $ref |
 *
 * Within not, if and overlapping oneOf, these have no opposite: additionalProperties,
 * patternProperties, propertyNames, uniqueItems, unevaluated*, counted contains, enum of objects
 * and arrays. Annotations, and words that are no keywords, are ignored; the latter are refused with
 * `strict`.
 *
 * What is meant, where a schema does not say it: an object that has `properties` or
 * `patternProperties` has no others (but if minProperties asks for more), and an array that has
 * prefixItems no further items, unless a keyword speaks of them; without any type, the keywords
 * imply it.
 *
 * How texts are written: properties come in the schema's order and others behind them; without
 * whitespace fields (below) one space may follow a comma or colon and there is no other white space
 * (small models would never stop writing it); numbers have at most 20 digits before the point and
 * 22 behind it, 15 in all where values are excluded, and exponents only without bounds; characters
 * are written escaped only where JSON asks for it, or where every string matches. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_SCHEMA_H

#include "engine/grammar/machine/grammar.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define JSON_SCHEMA_MAX_DEPTH 64
/* Sets of schemas that one value must match; values of enum. */
#define JSON_SCHEMA_MAX_SCHEMAS 5000
#define JSON_SCHEMA_MAX_BRANCHES 256 /* of one anyOf, oneOf, allOf or list of types */

/* `path` names the schema in messages ("response_format.json_schema.schema"). `whitespace` is what
 * json_schema_whitespace gave; NULL without it. The schema is not kept. -1 and *err: 400 naming the
 * place and what is wrong there (invalid_json_schema, or unsupported_json_schema for a schema that
 * is none of this server's), or 503. What only the whole grammar shows, $ref loops for instance, is
 * left to grammar_build; *out is GRAMMAR_FAILED when the builder met a bound. */
int json_schema_node(struct grammar_builder *builder, const cJSON *schema, const char *path,
                     bool strict, const char *whitespace, grammar_node *out, struct api_error *err);
/* Returns whether a 400 of json_schema_node is for a schema that may well be valid. */
bool json_schema_is_unsupported(const struct api_error *err);
/* Any JSON object. */
grammar_node json_schema_any_object(struct grammar_builder *builder, const char *whitespace);

/* grammar_build, with its error as a client gets it. */
int json_schema_build(struct grammar_builder *builder, grammar_node root, const char *path,
                      struct grammar **out, struct api_error *err);

/* --- The white space between the tokens of a JSON text, as vLLM's clients request it ---
 *
 * structured_outputs.whitespace_pattern, or its older guided_whitespace_pattern, a regular
 * expression that what stands between two tokens matches;
 * structured_outputs.disable_any_whitespace, that there is none. Without them one space may follow
 * a comma or colon. */

#define JSON_SCHEMA_MAX_WHITESPACE 256 /* bytes */

/* Reads the fields of a body. *out lives as long as the body; NULL: none of them is given; "": no
 * white space. -1 and *err: 400 naming the field, for a pattern that also matches what JSON has no
 * room for between its tokens, one that is too long, and for two of the fields; 503 when memory is
 * short. */
int json_schema_whitespace(const cJSON *body, const char **out, struct api_error *err);

#endif
