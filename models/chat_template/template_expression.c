/* A function for each level of precedence, the loosest first. What may come many times over at one
 * level becomes a list within one node, so that neither parsing nor evaluating a long chain nests.
 */
#include "models/chat_template/template_expression.h"

#include "models/chat_template/template_operand.h"

/* --- Operators ---------------------------------------------------------------------------------
 */

/* The levels of operators that go from left to right, the tightest first. */
enum level { LEVEL_UNARY, LEVEL_PRODUCT, LEVEL_CONCAT, LEVEL_SUM };

/* The operator of that level that the current token is, or 0. */
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

static int parse_level(struct template_cursor *cursor, enum level level,
                       struct template_node **out) {
    struct template_node *first, *chain = NULL, **end = NULL;
    if (level == LEVEL_UNARY)
        return template_operand_parse(cursor, true, out);
    if (parse_level(cursor, level - 1, &first) != 0)
        return -1;
    for (int op; (op = operator_of(cursor, level)) != 0;) {
        if (chain == NULL) {
            chain =
                template_cursor_make(cursor, level == LEVEL_CONCAT ? NODE_CONCAT : NODE_ARITHMETIC);
            if (chain == NULL)
                return -1;
            chain->left = first;
            end = &chain->items;
        }
        struct template_node *operand = template_cursor_make(cursor, NODE_OPERAND);
        if (operand == NULL || template_cursor_advance(cursor) != 0 ||
            parse_level(cursor, level - 1, &operand->left) != 0)
            return -1;
        operand->op = (int16_t)op;
        template_cursor_append(&end, operand);
    }
    *out = chain != NULL ? chain : first;
    return 0;
}

/* The comparison that the current token begins, moved behind; 0: none; -1 after an error. */
static int take_comparison(struct template_cursor *cursor) {
    static const int operators[] = {OPERATOR_EQUAL,      OPERATOR_NOT_EQUAL,    '<', '>',
                                    OPERATOR_LESS_EQUAL, OPERATOR_GREATER_EQUAL};
    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
        if (template_cursor_is_operator(cursor, operators[i]))
            return template_cursor_advance(cursor) != 0 ? -1 : operators[i];
    int skipped = template_cursor_skip_name(cursor, "in");
    if (skipped != 0)
        return skipped < 0 ? -1 : OPERATOR_IN;
    if (!template_cursor_is_name(&cursor->token, "not"))
        return 0;
    const struct template_token *next = template_cursor_look(cursor);
    if (next == NULL)
        return -1;
    if (!template_cursor_is_name(next, "in"))
        return 0;
    if (template_cursor_advance(cursor) != 0 || template_cursor_advance(cursor) != 0)
        return -1;
    return OPERATOR_NOT_IN;
}

static int parse_compare(struct template_cursor *cursor, struct template_node **out) {
    struct template_node *first, *chain = NULL, **end = NULL;
    int line = cursor->token.line, op;
    if (parse_level(cursor, LEVEL_SUM, &first) != 0)
        return -1;
    while ((op = take_comparison(cursor)) > 0) {
        if (chain == NULL) {
            chain = template_cursor_node(cursor, NODE_COMPARE, line);
            if (chain == NULL)
                return -1;
            chain->left = first;
            end = &chain->items;
        }
        struct template_node *operand = template_cursor_make(cursor, NODE_OPERAND);
        if (operand == NULL || parse_level(cursor, LEVEL_SUM, &operand->left) != 0)
            return -1;
        operand->op = (int16_t)op;
        template_cursor_append(&end, operand);
    }
    *out = chain != NULL ? chain : first;
    return op;
}

static int parse_not(struct template_cursor *cursor, struct template_node **out) {
    bool negated = false, any = false;
    int line = cursor->token.line;
    for (int skipped; (skipped = template_cursor_skip_name(cursor, "not")) != 0; any = true) {
        if (skipped < 0)
            return -1;
        negated = !negated;
    }
    if (parse_compare(cursor, out) != 0)
        return -1;
    for (int i = 0; any && i < (negated ? 1 : 2); i++) {
        struct template_node *node = template_cursor_node(cursor, NODE_NOT, line);
        if (node == NULL)
            return -1;
        node->left = *out;
        *out = node;
    }
    return 0;
}

/* Operands with `word` between them, each parsed by `parse`. */
static int parse_words(struct template_cursor *cursor, const char *word,
                       enum template_node_kind kind,
                       int (*parse)(struct template_cursor *, struct template_node **),
                       struct template_node **out) {
    struct template_node *first, *next, *chain = NULL, **end = NULL;
    int line = cursor->token.line, skipped;
    if (parse(cursor, &first) != 0)
        return -1;
    while ((skipped = template_cursor_skip_name(cursor, word)) == 1) {
        if (chain == NULL) {
            chain = template_cursor_node(cursor, kind, line);
            if (chain == NULL)
                return -1;
            end = &chain->items;
            template_cursor_append(&end, first);
        }
        if (parse(cursor, &next) != 0)
            return -1;
        template_cursor_append(&end, next);
    }
    *out = chain != NULL ? chain : first;
    return skipped;
}

static int parse_and(struct template_cursor *cursor, struct template_node **out) {
    return parse_words(cursor, "and", NODE_AND, parse_not, out);
}

static int parse_or(struct template_cursor *cursor, struct template_node **out) {
    return parse_words(cursor, "or", NODE_OR, parse_and, out);
}

static int parse_condition(struct template_cursor *cursor, struct template_node **out) {
    struct template_node *node;
    int line = cursor->token.line, skipped;
    if (parse_or(cursor, &node) != 0)
        return -1;
    while ((skipped = template_cursor_skip_name(cursor, "if")) == 1) {
        struct template_node *condition = template_cursor_node(cursor, NODE_CONDITION, line);
        if (condition == NULL || parse_or(cursor, &condition->right) != 0)
            return -1;
        condition->left = node;
        node = condition;
        int has_else = template_cursor_skip_name(cursor, "else");
        if (has_else < 0 ||
            (has_else == 1 && template_expression_parse(cursor, true, &condition->other) != 0))
            return -1;
    }
    *out = node;
    return skipped;
}

int template_expression_parse(struct template_cursor *cursor, bool with_condition,
                              struct template_node **out) {
    if (template_cursor_enter(cursor) != 0)
        return -1;
    int status = with_condition ? parse_condition(cursor, out) : parse_or(cursor, out);
    cursor->nesting--;
    return status;
}

/* --- Tuples and targets ------------------------------------------------------------------------
 */

static bool is_tuple_end(const struct template_cursor *cursor, enum template_tuple_end end) {
    return cursor->token.kind == TOKEN_OUTPUT_END || cursor->token.kind == TOKEN_BLOCK_END ||
           template_cursor_is_operator(cursor, ')') ||
           (end == TUPLE_END_IN && template_cursor_is_name(&cursor->token, "in")) ||
           (end == TUPLE_END_RECURSIVE && template_cursor_is_name(&cursor->token, "recursive"));
}

int template_expression_parse_tuple(struct template_cursor *cursor, bool with_condition,
                                    enum template_tuple_end tuple_end, struct template_node **out) {
    struct template_node *tuple = template_cursor_make(cursor, NODE_TUPLE), *item, **end;
    if (tuple == NULL || template_expression_parse(cursor, with_condition, &item) != 0)
        return -1;
    *out = item;
    if (!template_cursor_is_operator(cursor, ','))
        return 0;
    *out = tuple;
    end = &tuple->items;
    template_cursor_append(&end, item);
    while (template_cursor_is_operator(cursor, ',')) {
        if (template_cursor_advance(cursor) != 0)
            return -1;
        if (is_tuple_end(cursor, tuple_end))
            break;
        if (template_expression_parse(cursor, with_condition, &item) != 0)
            return -1;
        template_cursor_append(&end, item);
    }
    return 0;
}

static int parse_target_name(struct template_cursor *cursor, bool with_member,
                             struct template_node **out);

/* Names with commas up to `)` or another end. */
static int parse_target_names(struct template_cursor *cursor, enum template_tuple_end tuple_end,
                              bool with_member, struct template_node **out) {
    struct template_node *tuple = template_cursor_make(cursor, NODE_TUPLE), *item, **end;
    if (tuple == NULL || parse_target_name(cursor, with_member, &item) != 0)
        return -1;
    *out = item;
    if (!template_cursor_is_operator(cursor, ','))
        return 0;
    *out = tuple;
    end = &tuple->items;
    template_cursor_append(&end, item);
    while (template_cursor_is_operator(cursor, ',')) {
        if (template_cursor_advance(cursor) != 0)
            return -1;
        if (is_tuple_end(cursor, tuple_end) || template_cursor_is_operator(cursor, '='))
            break;
        if (parse_target_name(cursor, with_member, &item) != 0)
            return -1;
        template_cursor_append(&end, item);
    }
    return 0;
}

static int parse_target_name(struct template_cursor *cursor, bool with_member,
                             struct template_node **out) {
    struct template_value constant;
    if (template_cursor_enter(cursor) != 0)
        return -1;
    cursor->nesting--;
    if (template_cursor_is_operator(cursor, '(')) {
        cursor->nesting++;
        if (template_cursor_advance(cursor) != 0 ||
            parse_target_names(cursor, TUPLE_END_NONE, with_member, out) != 0)
            return -1;
        cursor->nesting--;
        return template_cursor_expect_operator(cursor, ')');
    }
    struct template_node *node = template_cursor_make(cursor, NODE_NAME);
    if (node == NULL)
        return -1;
    if (cursor->token.kind != TOKEN_NAME ||
        template_operand_is_constant(cursor->token.text, &constant))
        return template_cursor_fail_expected(cursor, "a name to assign to");
    *out = node;
    if (template_cursor_take_name(cursor, &node->name) != 0 ||
        template_cursor_define(cursor, node->name) != 0)
        return -1;
    if (!with_member || !template_cursor_is_operator(cursor, '.'))
        return 0;
    node->kind = NODE_MEMBER;
    return template_cursor_advance(cursor) != 0 ||
                   template_cursor_take_name(cursor, &node->member) != 0
               ? -1
               : template_cursor_define(cursor, node->member);
}

int template_expression_parse_target(struct template_cursor *cursor, enum template_tuple_end end,
                                     bool with_member, struct template_node **out) {
    return parse_target_names(cursor, end, with_member, out);
}
