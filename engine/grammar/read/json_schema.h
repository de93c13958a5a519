/* JSON schemas as grammars of the JSON texts that match them: drafts 4 to 2020-12.
 *
 * Every text of the grammar matches the schema. Each keyword of a schema is enforced exactly, or
 * the schema is refused with a 400 that names the keyword and its place; none is silently skipped.
 * With grammar_builder_ignore, uniqueItems, format, an unreadable pattern and unknown words of a
 * strict schema are left out instead of refused, and reported with their place.
 *
 * | keywords | |
 * |---|---|
 * | type, enum, const, allOf, anyOf, not, if | all |
 * | oneOf | where no value matches two of the schemas (by type, value, or a property that both
 * require), or the opposite of one can be written | | $ref, $dynamicRef, $recursiveRef | a JSON
 * pointer or an anchor within the schema, also recursive; not next to an $id within it | | minimum,
 * maximum, exclusive ones | up to 6 digits after the point | | multipleOf | up to 4096 units of its
 * last digit; large ones only with bounds | | minLength, maxLength, pattern | in any combination
 * that is not too large; pattern as in grammar_regex.h | | format | date-time, date, time,
 * duration, uuid, email, hostname, ipv4, ipv6, uri, uri-reference, json-pointer; not JSON Schema's
 * other formats; any word that is not one of its formats has no effect | | items, prefixItems,
 * additionalItems, minItems, maxItems | all | | contains, minContains, maxContains | once for an
 * array, with small bounds | | uniqueItems | items of an enum (or const, boolean, null) of at most
 * 10 values, or at most one item | | properties, required, patternProperties, propertyNames,
 * additionalProperties | all | | minProperties, maxProperties | all, except together with hundreds
 * of properties; no object has a name twice | | dependentRequired, dependentSchemas, dependencies |
 * all | | unevaluatedProperties, unevaluatedItems | next to allOf and $ref |
 *
 * Within not, if and overlapping oneOf, these have no opposite: additionalProperties,
 * patternProperties, propertyNames, uniqueItems, unevaluated*, counted contains, enum of objects
 * and arrays. Annotations and words that are not keywords are ignored; with `strict`, the latter
 * are refused.
 *
 * Defaults where a schema does not say: an object with `properties` or `patternProperties` has no
 * others (unless minProperties asks for more), and an array with prefixItems has no further items,
 * unless a keyword mentions them. Without any type, the keywords imply it.
 *
 * How texts are written: properties come in the schema's order, followed by others. Without
 * whitespace fields (below), one space may follow a comma or colon and there is no other white
 * space (small models would never stop writing it). Numbers have at most 20 digits before the point
 * and 22 after it, or 15 in all where values are excluded, and exponents only without bounds.
 * Characters are escaped only where JSON requires it, or where every string matches. */
#ifndef QUIRE_ENGINE_GRAMMAR_READ_JSON_SCHEMA_H
#define QUIRE_ENGINE_GRAMMAR_READ_JSON_SCHEMA_H

#include "engine/grammar/machine/grammar.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define JSON_SCHEMA_MAX_DEPTH 64
/* Maximum sets of schemas that one value must match, and values of an enum. */
#define JSON_SCHEMA_MAX_SCHEMAS 5000
#define JSON_SCHEMA_MAX_BRANCHES 256 /* of one anyOf, oneOf, allOf or list of types */

/* `path` names the schema in messages ("response_format.json_schema.schema"). `whitespace` is the
 * result of json_schema_whitespace, or NULL. The schema is not kept. Returns -1 with *err: 400
 * naming the place and what is wrong there (invalid_json_schema, or unsupported_json_schema for a
 * valid schema that this server does not support), or 503. Errors that only the whole grammar
 * shows, such as $ref loops, are left to grammar_build. *out is GRAMMAR_FAILED when the builder
 * exceeded a bound. */
int json_schema_node(struct grammar_builder *builder, const cJSON *schema, const char *path,
                     bool strict, const char *whitespace, grammar_node *out, struct api_error *err);
/* Returns whether a 400 of json_schema_node concerns a schema that may be valid. */
bool json_schema_is_unsupported(const struct api_error *err);
/* Any JSON object. */
grammar_node json_schema_any_object(struct grammar_builder *builder, const char *whitespace);

/* Calls grammar_build and turns its error into the API error for the client. */
int json_schema_build(struct grammar_builder *builder, grammar_node root, const char *path,
                      struct grammar **out, struct api_error *err);

/* --- The white space between the tokens of a JSON text, as vLLM's clients request it ---
 *
 * structured_outputs.whitespace_pattern, or the older guided_whitespace_pattern, is a regular
 * expression for what comes between two tokens. structured_outputs.disable_any_whitespace allows
 * none. Without them one space may follow a comma or colon. */

#define JSON_SCHEMA_MAX_WHITESPACE 256 /* bytes */

/* Reads the fields of a body. *out lives as long as the body; NULL: no such field; "": no white
 * space. Returns -1 with *err: 400 naming the field, for a pattern that also matches text that JSON
 * does not allow between its tokens, for one that is too long, and for more than one of the fields;
 * 503 when memory is short. */
int json_schema_whitespace(const cJSON *body, const char **out, struct api_error *err);

#endif
