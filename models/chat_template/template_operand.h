/* Private to chat_template/: parses what operators stand between. Recurses with
 * template_expression.h. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_OPERAND_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_OPERAND_H

#include "models/chat_template/template_cursor.h"

/* Parses a name, literal or expression in brackets with its attributes, items and calls, a sign
 * before it, and with_filters its filters and tests. */
struct template_node *template_operand_parse(struct template_cursor *cursor, bool with_filters);
/* Parses filters with a bar before each, but the first if `bare`, over `node`. */
struct template_node *template_operand_parse_filters(struct template_cursor *cursor,
                                                     struct template_node *node, bool bare);
/* Gives the value of true, false and none; false for any other name. */
bool template_operand_is_constant(struct text name, struct template_value *out);

#endif
