/* Writes each model family's tool calls in the way that its models were trained to
 * (server/output/tool_*.c), so that the forced text is likely. */
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

/* Returns a marker: one control token if it is one, otherwise its text. */
grammar_node tool_grammar_marker(struct grammar_builder *builder, const struct tokenizer *tokenizer,
                                 const char *name);
/* Returns the id of a control token; -1 if the vocabulary does not have it. */
int32_t tool_grammar_control_token(const struct tokenizer *tokenizer, const char *name);

/* Fills *form. The format is a model's, not NONE. */
void tool_grammar_form_init(struct tool_grammar_form *form, struct grammar_builder *builder,
                            const struct tokenizer *tokenizer, enum tool_call_format format);
/* Returns how the format writes arguments one by one; NULL if it writes a JSON object. */
const struct argument_form *tool_grammar_argument_form(enum tool_call_format format);
/* Returns one call in the form that it has in a row of calls. */
grammar_node tool_grammar_form_call(const struct tool_grammar_form *form, const char *name,
                                    grammar_node arguments);
/* Returns whether an answer may have several. */
bool tool_grammar_form_has_rows(const struct tool_grammar_form *form);
/* Returns what is written between two calls. */
const char *tool_grammar_form_separator(const struct tool_grammar_form *form);
/* Returns the calls as the whole answer. */
grammar_node tool_grammar_form_answer(const struct tool_grammar_form *form, grammar_node calls);

#endif
