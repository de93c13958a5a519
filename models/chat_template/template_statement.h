/* Private to chat_template/: what statements write and set. Recurses with template_eval.h: an
 * expression may call a macro, whose body is statements. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_STATEMENT_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_STATEMENT_H

#include "models/chat_template/template_call.h"

/* The ways in which a body is left. */
enum template_flow { TEMPLATE_FLOW_END, TEMPLATE_FLOW_BREAK, TEMPLATE_FLOW_CONTINUE };

int template_statement_run(struct template_run *run, const struct template_node *body,
                           enum template_flow *out);
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
