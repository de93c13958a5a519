/* Private to chat_template/: what a template itself defines and calls. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_MACRO_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_MACRO_H

#include "models/chat_template/template_call.h"

struct template_macro {
    const struct template_node *node; /* MACRO or CALL_BLOCK */
    struct template_scope *scope;     /* in which it was defined */
};

/* Binds the arguments to the macro's parameters, and gives what its body writes. */
int template_macro_call(struct template_run *run, const struct template_macro *macro,
                        const struct template_arguments *arguments, struct template_value *out);

#endif
