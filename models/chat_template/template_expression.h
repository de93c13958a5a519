/* Private to chat_template/: parses expressions, and the targets of assignments. Recurses with
 * template_operand.h, as the grammar does: an operand may be an expression in brackets. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_EXPRESSION_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_EXPRESSION_H

#include "models/chat_template/template_cursor.h"

/* Words that end a tuple without brackets, as a closing bracket and the tag's end do. */
enum template_tuple_end { TUPLE_END_NONE, TUPLE_END_IN, TUPLE_END_RECURSIVE };

/* Parses one expression; without a condition an `if` behind it is left to the caller. */
struct template_node *template_expression_parse(struct template_cursor *cursor,
                                                bool with_condition);
/* Parses one expression, or several with commas between them. */
struct template_node *template_expression_parse_tuple(struct template_cursor *cursor,
                                                      bool with_condition,
                                                      enum template_tuple_end end);
/* Parses a name, names with commas, or a namespace's member, which the template defines so. */
struct template_node *template_expression_parse_target(struct template_cursor *cursor,
                                                       enum template_tuple_end end,
                                                       bool with_member);

#endif
