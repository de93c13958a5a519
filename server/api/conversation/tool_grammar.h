/* Builds the grammar of an answer's tool calls, in the model's format, for calls that are forced
 * (tool_choice "required" or a named function) or allowed instead of another form. */
#ifndef QUIRE_SERVER_API_CONVERSATION_TOOL_GRAMMAR_H
#define QUIRE_SERVER_API_CONVERSATION_TOOL_GRAMMAR_H

#include "engine/grammar/machine/grammar.h"
#include "config/json/api_error.h"
#include "server/api/conversation/conversation.h"
#include "server/output/output_parser.h"
#include "config/base/byte_buffer.h"
#include "server/output/tool_members.h"
#include <cjson/cJSON.h>

struct tool_grammar_config {
    const struct conversation *conversation;
    struct output_parser_config model; /* how the model writes tool calls and reasoning */
    const struct tokenizer *tokenizer;
};

/* Returns the format of forced calls, in which the answer is then parsed: the model's, or hermes if
 * it does not have its own. */
enum tool_call_format tool_grammar_format(enum tool_call_format format);

/* Checks that the parameters of each tool are a JSON schema of an object: -1 and *err, a 400 that
 * names the place, if one is not. Calls that could not be forced to match are not an error, and
 * tools after those that use up GRAMMAR_MAX_WORK are not checked. `ignored` receives the names of
 * keywords that forced calls would not be constrained by; NULL: they are not requested. */
int tool_grammar_check(const struct conversation *conversation, struct byte_buffer *ignored,
                       struct api_error *err);

/* Adds one call, or up to 16 if parallel calls are allowed and the choice is not NAMED. The
 * arguments match the function's parameters, a JSON schema of an object (json_schema.h; a strict
 * function is refused if its schema has what that ignores). A function without parameters has the
 * arguments {}. On failure returns -1 and fills *err: a 400 that names the place in the schema, or
 * 503. */
int tool_grammar_calls(const struct tool_grammar_config *config, struct grammar_builder *builder,
                       grammar_node *out, struct api_error *err);

/* Returns STRING if the schema's type, enum, const, or the schemas of its anyOf or oneOf, admit
 * only strings, NULLABLE_STRING if they also admit null, otherwise ANY. */
enum parameter_type tool_types_of_schema(const cJSON *schema);
/* Appends the types of every tool's parameters. */
void tool_types_append(const struct conversation *conversation, struct byte_buffer *types);

#endif
