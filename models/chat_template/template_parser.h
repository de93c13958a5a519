/* Private to chat_template/: tokens to nodes, after the grammar of Jinja 3.1 (jinja2/parser.py). */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_PARSER_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_PARSER_H

#include "models/chat_template/template_lexer.h"
#include "models/chat_template/template_node.h"

/* Statements and expressions that are open at once, each within the one before it. */
enum { TEMPLATE_MAX_NESTING = 100 };

struct template_parser {
    struct template_lexer lexer;
    struct template_arena *arena;
    struct template_token token, ahead; /* the current one and, if has_ahead, that behind it */
    bool has_ahead;
    int nesting;
    bool takes_rest;             /* the macro being parsed uses `varargs` or `kwargs` */
    struct template_value names; /* map of the interned ones */
};

/* The source may go afterwards; the nodes lie in the arena. */
int template_parser_run(struct template_arena *arena, struct text source,
                        struct template_names *out_names, struct template_node **out,
                        struct error *err);

/* --- Between template_parser.c, template_expression.c and template_operand.c --- */

int template_parser_fail_memory(struct template_parser *parser);
/* "expected WHAT, got the current token". Returns -1. */
int template_parser_fail_expected(struct template_parser *parser, const char *what);
int template_parser_enter(struct template_parser *parser);
int template_parser_advance(struct template_parser *parser);
/* The token behind the current one; NULL after an error. */
const struct template_token *template_parser_look(struct template_parser *parser);
bool template_parser_is_name(const struct template_token *token, const char *name);
bool template_parser_is_operator(const struct template_parser *parser, int op);
/* Moves behind it if it is there: 1, else 0; -1 after an error. */
int template_parser_skip_name(struct template_parser *parser, const char *name);
int template_parser_skip_operator(struct template_parser *parser, int op);
int template_parser_expect_operator(struct template_parser *parser, int op);
/* The current token's text, a name, interned; moves behind it. */
int template_parser_take_name(struct template_parser *parser, struct text *out);
struct template_node *template_parser_node(struct template_parser *parser,
                                           enum template_node_kind kind, int line);
/* The same at the current token's line. */
struct template_node *template_parser_make(struct template_parser *parser,
                                           enum template_node_kind kind);
/* Puts a node at the end of a list, *end, which moves behind it. */
void template_parser_append(struct template_node ***end, struct template_node *node);

/* What ends a tuple without brackets, besides a closing bracket and the tag's end. */
enum template_tuple_end { TUPLE_END_NONE, TUPLE_END_IN, TUPLE_END_RECURSIVE };

int template_expression_parse(struct template_parser *parser, bool with_condition,
                              struct template_node **out);
/* One expression, or several with commas between them. */
int template_expression_parse_tuple(struct template_parser *parser, bool with_condition,
                                    enum template_tuple_end end, struct template_node **out);
/* A name, names with commas, or a namespace's member. */
int template_expression_parse_target(struct template_parser *parser, enum template_tuple_end end,
                                     bool with_member, struct template_node **out);
/* A name, literal or expression in brackets with its attributes, items and calls, a sign before it,
 * and with_filters its filters and tests. */
int template_operand_parse(struct template_parser *parser, bool with_filters,
                           struct template_node **out);
/* Filters with a bar before each, but the first if `bare`, over `node`. */
int template_operand_parse_filters(struct template_parser *parser, struct template_node *node,
                                   bool bare, struct template_node **out);
/* true, false, none: its value. */
bool template_operand_is_constant(struct text name, struct template_value *out);

#endif
