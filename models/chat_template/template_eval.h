/* Private to chat_template/: evaluates expressions and executes statements. The two are mutually
 * recursive: an expression may call a macro, whose body is statements. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_EVAL_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_EVAL_H

#include "models/chat_template/template_parser.h"
#include "models/chat_template/template_run.h"

int template_eval(struct template_run *run, const struct template_node *node,
                  struct template_value *out);
/* Evaluates arguments, a list of NODE_ARGUMENT. */
int template_eval_arguments(struct template_run *run, const struct template_node *items,
                            struct template_arguments *out);
/* Adds a keyword argument. */
int template_eval_keyword(struct template_run *run, struct template_arguments *arguments,
                          struct text name, struct template_value value);
/* Calls a callable value. */
int template_eval_call(struct template_run *run, const struct template_value *callee,
                       const struct template_arguments *arguments, struct template_value *out);

/* --- Statements (template_statement.c) --- */

/* Returns the body's output as a string; executes it in `scope` unless that is NULL. */
int template_statement_capture(struct template_run *run, const struct template_node *body,
                               struct template_scope *scope, struct template_value *out);

struct template_macro {
    const struct template_node *node; /* MACRO or CALL_BLOCK */
    struct template_scope *scope;     /* in which it was defined */
};

/* Binds the arguments to the macro's parameters, and returns its body's output. */
int template_statement_call(struct template_run *run, const struct template_macro *macro,
                            const struct template_arguments *arguments, struct template_value *out);

#endif
