/* A function for each level of precedence, the loosest last. What may come many times over at one
 * level becomes a list within one node, so that neither parsing nor evaluating a long chain nests.
 */
#include "models/chat_template/template_expression.h"

#include "models/chat_template/template_operand.h"

/* --- Operators ---------------------------------------------------------------------------------
 */

/* The levels of operators that go from left to right, the tightest first. */
enum level { LEVEL_UNARY, LEVEL_PRODUCT, LEVEL_CONCAT, LEVEL_SUM };

/* Returns the operator of that level that the current token is, or 0. */
static int operator_of(const struct template_cursor *cursor, enum level level) {
    static const int operators[][5] = {
        [LEVEL_UNARY] = {0},
        [LEVEL_PRODUCT] = {'*', '/', OPERATOR_FLOOR_DIVIDE, '%'},
        [LEVEL_CONCAT] = {'~'},
        [LEVEL_SUM] = {'+', '-'},
    };
    for (const int *op = operators[level]; *op != 0; op++)
        if (template_cursor_is_operator(cursor, *op))
            return *op;
    return 0;
}

static struct template_node *parse_level(struct template_cursor *cursor, enum level level) {
    if (level == LEVEL_UNARY)
        return template_operand_parse(cursor, true);
    struct template_node *first = parse_level(cursor, level - 1), *chain = NULL, **end = NULL;
    for (int op; (op = operator_of(cursor, level)) != 0;) {
        if (chain == NULL) {
            chain =
                template_cursor_make(cursor, level == LEVEL_CONCAT ? NODE_CONCAT : NODE_ARITHMETIC);
            chain->left = first;
            end = &chain->items;
        }
        struct template_node *operand = template_cursor_make(cursor, NODE_OPERAND);
        template_cursor_append(&end, operand);
        template_cursor_advance(cursor);
        operand->op = (int16_t)op;
        operand->left = parse_level(cursor, level - 1);
    }
    return chain != NULL ? chain : first;
}

/* Moves behind the comparison that the current token begins, and returns it; 0: none. */
static int take_comparison(struct template_cursor *cursor) {
    static const int operators[] = {OPERATOR_EQUAL,      OPERATOR_NOT_EQUAL,    '<', '>',
                                    OPERATOR_LESS_EQUAL, OPERATOR_GREATER_EQUAL};
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
        if (template_cursor_skip_operator(cursor, operators[i]))
            return operators[i];
    if (template_cursor_skip_name(cursor, "in"))
        return OPERATOR_IN;
    if (!template_cursor_is_name(&cursor->token, "not") ||
        !template_cursor_is_name(template_cursor_look(cursor), "in"))
        return 0;
    template_cursor_advance(cursor);
    template_cursor_advance(cursor);
    return OPERATOR_NOT_IN;
}

static struct template_node *parse_compare(struct template_cursor *cursor) {
    int line = cursor->token.line;
    struct template_node *first = parse_level(cursor, LEVEL_SUM), *chain = NULL, **end = NULL;
    for (int op; (op = take_comparison(cursor)) != 0;) {
        if (chain == NULL) {
            chain = template_cursor_node(cursor, NODE_COMPARE, line);
            chain->left = first;
            end = &chain->items;
        }
        struct template_node *operand = template_cursor_make(cursor, NODE_OPERAND);
        template_cursor_append(&end, operand);
        operand->op = (int16_t)op;
        operand->left = parse_level(cursor, LEVEL_SUM);
    }
    return chain != NULL ? chain : first;
}

static struct template_node *parse_not(struct template_cursor *cursor) {
    int line = cursor->token.line, num = 0;
    while (template_cursor_skip_name(cursor, "not"))
        num++;
    struct template_node *node = parse_compare(cursor);
    for (int i = 0; i < (num > 2 ? 2 - num % 2 : num); i++) {
        struct template_node *negated = template_cursor_node(cursor, NODE_NOT, line);
        negated->left = node;
        node = negated;
    }
    return node;
}

/* Operands with `word` between them, each parsed by `parse`. */
static struct template_node *parse_words(struct template_cursor *cursor, const char *word,
                                         enum template_node_kind kind,
                                         struct template_node *(*parse)(struct template_cursor *)) {
    int line = cursor->token.line;
    struct template_node *first = parse(cursor), *chain, **end;
    if (!template_cursor_is_name(&cursor->token, word))
        return first;
    chain = template_cursor_node(cursor, kind, line);
    end = &chain->items;
    template_cursor_append(&end, first);
    while (template_cursor_skip_name(cursor, word))
        template_cursor_append(&end, parse(cursor));
    return chain;
}

static struct template_node *parse_and(struct template_cursor *cursor) {
    return parse_words(cursor, "and", NODE_AND, parse_not);
}

static struct template_node *parse_or(struct template_cursor *cursor) {
    return parse_words(cursor, "or", NODE_OR, parse_and);
}

struct template_node *template_expression_parse(struct template_cursor *cursor,
                                                bool with_condition) {
    int line = cursor->token.line;
    template_cursor_enter(cursor);
    struct template_node *node = parse_or(cursor);
    while (with_condition && template_cursor_skip_name(cursor, "if")) {
        struct template_node *condition = template_cursor_node(cursor, NODE_CONDITION, line);
        condition->left = node;
        condition->right = parse_or(cursor);
        if (template_cursor_skip_name(cursor, "else"))
            condition->other = template_expression_parse(cursor, true);
        node = condition;
    }
    template_cursor_leave(cursor);
    return node;
}

/* --- Tuples and targets ------------------------------------------------------------------------
 */

static bool is_tuple_end(const struct template_cursor *cursor, enum template_tuple_end end) {
    return cursor->token.kind == TOKEN_OUTPUT_END || cursor->token.kind == TOKEN_BLOCK_END ||
           template_cursor_is_operator(cursor, ')') ||
           (end == TUPLE_END_IN && template_cursor_is_name(&cursor->token, "in")) ||
           (end == TUPLE_END_RECURSIVE && template_cursor_is_name(&cursor->token, "recursive"));
}

struct template_node *template_expression_parse_tuple(struct template_cursor *cursor,
                                                      bool with_condition,
                                                      enum template_tuple_end tuple_end) {
    struct template_node *tuple = template_cursor_make(cursor, NODE_TUPLE), **end = &tuple->items;
    struct template_node *first = template_expression_parse(cursor, with_condition);
    if (!template_cursor_is_operator(cursor, ','))
        return first;
    template_cursor_append(&end, first);
    while (template_cursor_skip_operator(cursor, ',') && !is_tuple_end(cursor, tuple_end))
        template_cursor_append(&end, template_expression_parse(cursor, with_condition));
    return tuple;
}

/* Parses a name, a namespace's member, or targets in brackets. */
static struct template_node *parse_one_target(struct template_cursor *cursor, bool with_member) {
    struct template_value constant;
    template_cursor_enter(cursor);
    if (template_cursor_skip_operator(cursor, '(')) {
        struct template_node *targets =
            template_expression_parse_target(cursor, TUPLE_END_NONE, with_member);
        template_cursor_expect_operator(cursor, ')');
        template_cursor_leave(cursor);
        return targets;
    }
    template_cursor_leave(cursor);
    struct template_node *node = template_cursor_make(cursor, NODE_NAME);
    if (cursor->token.kind != TOKEN_NAME ||
        template_operand_is_constant(cursor->token.text, &constant)) {
        template_cursor_fail_expected(cursor, "a name to assign to");
        return node;
    }
    node->name = template_cursor_take_name(cursor);
    template_cursor_define(cursor, node->name);
    if (with_member && template_cursor_skip_operator(cursor, '.')) {
        node->kind = NODE_MEMBER;
        node->member = template_cursor_take_name(cursor);
        template_cursor_define(cursor, node->member);
    }
    return node;
}

struct template_node *template_expression_parse_target(struct template_cursor *cursor,
                                                       enum template_tuple_end tuple_end,
                                                       bool with_member) {
    struct template_node *tuple = template_cursor_make(cursor, NODE_TUPLE), **end = &tuple->items;
    struct template_node *first = parse_one_target(cursor, with_member);
    if (!template_cursor_is_operator(cursor, ','))
        return first;
    template_cursor_append(&end, first);
    while (template_cursor_skip_operator(cursor, ',') && !is_tuple_end(cursor, tuple_end) &&
           !template_cursor_is_operator(cursor, '='))
        template_cursor_append(&end, parse_one_target(cursor, with_member));
    return tuple;
}
