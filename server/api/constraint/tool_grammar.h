/* The form of an answer that calls tools, as a grammar that what is generated has to match: where
 * it must (tool_choice "required" or a named function), or may instead of another form. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_TOOL_GRAMMAR_H
#define QUIRE_SERVER_API_CONSTRAINT_TOOL_GRAMMAR_H

#include "engine/grammar/grammar.h"
#include "server/api/api_error.h"
#include "server/api/chat/tool_fields.h"
#include "server/output/output_parser.h"

struct tool_grammar_config {
    const struct tool_fields *fields;
    struct output_parser_config model; /* how the model writes calls, and reasoning before them */
    const struct tokenizer *tokenizer;
};

/* The format forced calls have: the model's, or hermes where it has none of its own. The answer is
 * to be parsed as that. */
enum tool_call_format tool_grammar_format(enum tool_call_format format);

/* Whether the answer must be calls. */
bool tool_grammar_is_forced(const struct tool_fields *fields);

/* Whether the parameters of each tool are a JSON schema of an object: -1 and *err, as
 * tool_grammar_build has it, where one is not. What calls could not be forced to match is no fault. */
int tool_grammar_check(const struct tool_fields *fields, struct api_error *err);

/* One call, or unless one is NAMED and where parallel ones are allowed up to 16, and nothing else;
 * reasoning may come first where the model reasons. The arguments match the function's parameters,
 * a JSON schema of an object (json_schema.h; what that ignores, a strict function is refused for);
 * a function without parameters has the arguments {}. On failure -1 and *err, 400 naming the place
 * in the schema, or 503; the grammar is the caller's to unref. */
int tool_grammar_build(const struct tool_grammar_config *config, struct grammar **out,
                       struct api_error *err);
/* The calls alone, as a node of a larger grammar. */
int tool_grammar_calls(const struct tool_grammar_config *config, struct grammar_builder *builder,
                       grammar_node *out, struct api_error *err);

#endif
