/* Private to chat_template/: the methods of Python's types. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_METHODS_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_METHODS_H

#include "models/chat_template/template_call.h"

/* Of a string. NULL: there is none. */
const struct template_function *template_string_methods_find(struct text name);
/* Those of them that take it apart. */
const struct template_function *template_string_parts_find(struct text name);

#endif
