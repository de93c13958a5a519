/* Private to chat_template/: the filters, tests, functions and methods that every template has:
 * Jinja's own, those Transformers adds, and the methods of Python's types. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_LIBRARY_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_LIBRARY_H

#include "models/chat_template/template_builtins.h"

/* Tables, with a NULL name behind the last entry, of the file of the same name. */
extern const struct template_function template_filters[], template_item_filters[],
    template_json_filters[], template_tests[], template_functions[], template_string_methods[],
    template_map_methods[], template_loop_methods[];

extern const struct template_builtins template_library;

#endif
