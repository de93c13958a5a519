/* Private to chat_template/: tokens to nodes, after the grammar of Jinja 3.1 (jinja2/parser.py). */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_PARSER_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_PARSER_H

#include "config/base/error.h"
#include "models/chat_template/template_builtins.h"
#include "models/chat_template/template_node.h"

/* Parses a whole template. The source may go afterwards; the nodes lie in the arena. A filter, test,
 * function or method that neither the builtins nor the template has is an error, wherever it
 * stands. */
int template_parser_run(struct template_arena *arena, struct text source,
                        const struct template_builtins *builtins, struct template_names *out_names,
                        struct template_node **out, struct error *err);

#endif
