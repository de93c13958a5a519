/* Private to chat_template/: what expressions are, and what statements write and set. The two
 * recurse: an expression may call a macro, whose body is statements. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_EVAL_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_EVAL_H

#include "models/chat_template/template_parser.h"
#include "models/chat_template/template_run.h"

int template_eval(struct template_run *run, const struct template_node *node,
                  struct template_value *out);
/* Evaluates arguments as they are written: NODE_ARGUMENT each. */
int template_eval_arguments(struct template_run *run, const struct template_node *items,
                            struct template_arguments *out);
/* Adds one by name. */
int template_eval_keyword(struct template_run *run, struct template_arguments *arguments,
                          struct text name, struct template_value value);
/* Calls whatever can be called. */
int template_eval_call(struct template_run *run, const struct template_value *callee,
                       const struct template_arguments *arguments, struct template_value *out);

/* --- Statements (template_statement.c) --- */

/* Gives what the body writes, as a string, in a scope of its own if `scope` is not NULL. */
int template_statement_capture(struct template_run *run, const struct template_node *body,
                               struct template_scope *scope, struct template_value *out);

struct template_macro {
    const struct template_node *node; /* MACRO or CALL_BLOCK */
    struct template_scope *scope;     /* in which it was defined */
};

/* Binds the arguments to the macro's parameters, and gives what its body writes. */
int template_statement_call(struct template_run *run, const struct template_macro *macro,
                            const struct template_arguments *arguments, struct template_value *out);

#endif
