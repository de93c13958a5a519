/* Reads the forms that an output can be constrained to, each into a node of a grammar: a JSON
 * schema, any object, a regular expression, a choice of texts, a grammar, a structural tag. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_OUTPUT_FORM_H
#define QUIRE_SERVER_API_CONSTRAINT_OUTPUT_FORM_H

#include "engine/grammar/machine/grammar.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>

#define OUTPUT_FORM_NONE (-2) /* in place of a node: any text */
#define OUTPUT_FORM_MAX_CHOICES 5000

/* Reads a field's value; `path` names it in messages. On failure returns -1 and fills *err: 400
 * (param is the path, or a place below it), or 503 when memory is short. *out is GRAMMAR_FAILED
 * when the builder reached a bound, which json_schema_build reports. `whitespace` is that of JSON:
 * see json_schema_node. */
typedef int (*output_form_reader)(const cJSON *value, const char *path,
                                  struct grammar_builder *builder, const char *whitespace,
                                  grammar_node *out, struct api_error *err);

int output_form_json(const cJSON *value, const char *path, struct grammar_builder *builder,
                     const char *whitespace, grammar_node *out,
                     struct api_error *err); /* a schema, or the text of one */
int output_form_regex(const cJSON *value, const char *path, struct grammar_builder *builder,
                      const char *whitespace, grammar_node *out, struct api_error *err);
int output_form_choice(const cJSON *value, const char *path, struct grammar_builder *builder,
                       const char *whitespace, grammar_node *out, struct api_error *err);
int output_form_object(const cJSON *value, const char *path, struct grammar_builder *builder,
                       const char *whitespace, grammar_node *out,
                       struct api_error *err); /* true: any JSON object */
/* Reads a grammar in one of the notations of grammar_text.h. */
int output_form_grammar(const cJSON *value, const char *path, struct grammar_builder *builder,
                        const char *whitespace, grammar_node *out, struct api_error *err);
/* Does the same for the content of a JSON string. */
int output_form_json_grammar(const cJSON *value, const char *path, struct grammar_builder *builder,
                             const char *whitespace, grammar_node *out, struct api_error *err);
/* Reads a grammar; an empty text means none. */
int output_form_optional_grammar(const cJSON *value, const char *path,
                                 struct grammar_builder *builder, const char *whitespace,
                                 grammar_node *out, struct api_error *err);

/* Reads xgrammar's structural tags, an object or its text: {"type": "structural_tag"} with
 *     "structures": [{"begin", "schema", "end"}, ...], "triggers": [...]
 * for any text in which a trigger begins one of the structures whose begin starts with it, or
 *     "format": one of
 *         {"type": "const_string", "value"}, {"type": "json_schema", "json_schema"},
 *         {"type": "regex", "pattern"}, {"type": "grammar", "grammar"}, {"type": "any_text"},
 *         {"type": "sequence" or "or", "elements"}, {"type": "tag", "begin", "content", "end"},
 *         {"type": "triggered_tags", "triggers", "tags", "at_least_one", "stop_after_first"},
 *         {"type": "tags_with_separator", "tags", "separator", "at_least_one", "stop_after_first"}.
 * any_text as the content of a tag extends to the tag's first end. Other formats are refused by
 * name. A trigger is matched against the text of tokens; control tokens have none. */
int output_form_structural_tag(const cJSON *value, const char *path,
                               struct grammar_builder *builder, const char *whitespace,
                               grammar_node *out, struct api_error *err);

#endif
