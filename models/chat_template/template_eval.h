/* Private to chat_template/: what expressions are. Recurses with template_statement.h. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_EVAL_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_EVAL_H

#include "models/chat_template/template_call.h"

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

#endif
