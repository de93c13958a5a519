/* Each family's tool calls as its models were trained to write them (server/output/tool_*.c), so
 * that the forced text is a likely one. */
#ifndef QUIRE_SERVER_API_CONVERSATION_TOOL_GRAMMAR_FORM_H
#define QUIRE_SERVER_API_CONVERSATION_TOOL_GRAMMAR_FORM_H

#include "engine/grammar/machine/grammar.h"
#include "server/api/conversation/tool_grammar_arguments.h"
#include "server/output/output_parser.h"

#define TOOL_GRAMMAR_MAX_MARKERS 5

struct tool_grammar_form {
    struct grammar_builder *builder;
    enum tool_call_format format;
    bool has_args_token; /* Mistral's newer form */
    grammar_node markers[TOOL_GRAMMAR_MAX_MARKERS];
};

/* Returns a marker: one control token where it is one, else its text. */
grammar_node tool_grammar_marker(struct grammar_builder *builder, const struct tokenizer *tokenizer,
                                 const char *name);
/* Returns -1 when the vocabulary has no such control token. */
int32_t tool_grammar_control_token(const struct tokenizer *tokenizer, const char *name);

/* The format is a model's, not NONE. */
void tool_grammar_form_init(struct tool_grammar_form *form, struct grammar_builder *builder,
                            const struct tokenizer *tokenizer, enum tool_call_format format);
/* Returns how the format writes arguments one by one; NULL: it writes a JSON object. */
const struct argument_form *tool_grammar_argument_form(enum tool_call_format format);
/* Returns one call as it stands in a row of them. */
grammar_node tool_grammar_form_call(const struct tool_grammar_form *form, const char *name,
                                    grammar_node arguments);
/* Returns whether an answer may have several. */
bool tool_grammar_form_has_rows(const struct tool_grammar_form *form);
/* Returns what stands between two calls. */
const char *tool_grammar_form_separator(const struct tool_grammar_form *form);
/* Returns the calls as the whole answer. */
grammar_node tool_grammar_form_answer(const struct tool_grammar_form *form, grammar_node calls);

#endif
