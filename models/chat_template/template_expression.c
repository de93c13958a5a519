/* Operands, then a function for each level of precedence, the loosest last. What may come many
 * times over at one level becomes a list within one node, so that neither parsing nor evaluating a
 * long chain nests. */
#include "models/chat_template/template_cursor.h"

#include "models/chat_template/template_run.h"

#include <string.h>

/* --- Literals --- */

/* Strings that follow each other are one. */
static struct template_node *parse_string(struct template_cursor *cursor) {
    struct template_node *node = template_cursor_make(cursor, NODE_CONSTANT);
    struct template_builder builder = {.arena = cursor->arena};
    node->value = template_value_text(cursor->token.text, TEMPLATE_ORIGIN_SERVER);
    template_cursor_advance(cursor);
    if (cursor->token.kind != TOKEN_STRING)
        return node;
    template_builder_add_string(&builder, &node->value);
    for (; cursor->token.kind == TOKEN_STRING; template_cursor_advance(cursor))
        template_builder_add(&builder, cursor->token.text, TEMPLATE_ORIGIN_SERVER);
    if (!template_builder_finish(&builder, &node->value))
        template_cursor_fail_memory(cursor);
    return node;
}

static struct template_node *parse_number(struct template_cursor *cursor) {
    struct template_node *node = template_cursor_make(cursor, NODE_CONSTANT);
    node->value = cursor->token.kind == TOKEN_FLOAT ? template_value_float(cursor->token.real)
                                                    : template_value_int(cursor->token.integer);
    template_cursor_advance(cursor);
    return node;
}

static bool is_constant(struct text name, struct template_value *out) {
    static const struct {
        const char *name;
        uint8_t kind;
        bool value;
    } words[] = {{"true", TEMPLATE_BOOL, true},   {"True", TEMPLATE_BOOL, true},
                 {"false", TEMPLATE_BOOL, false}, {"False", TEMPLATE_BOOL, false},
                 {"none", TEMPLATE_NONE, false},  {"None", TEMPLATE_NONE, false}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (text_is(name, words[i].name)) {
            *out = (struct template_value){.kind = words[i].kind, .boolean = words[i].value};
            return true;
        }
    return false;
}

static struct template_node *parse_name(struct template_cursor *cursor) {
    struct template_node *node = template_cursor_make(cursor, NODE_NAME);
    node->name = template_cursor_take_name(cursor);
    if (is_constant(node->name, &node->value))
        node->kind = NODE_CONSTANT;
    if (text_is(node->name, "varargs") || text_is(node->name, "kwargs"))
        template_cursor_use(cursor, "variable", node->name, node->line);
    return node;
}

/* Expressions with commas between them up to the bracket `close`, which is taken as well. */
static void parse_items(struct template_cursor *cursor, int close, struct template_node **out) {
    struct template_node **end = out;
    while (!template_cursor_closes(cursor, close)) {
        template_cursor_append(&end, template_expression_parse(cursor, true));
        if (!template_cursor_is_operator(cursor, close))
            template_cursor_expect_operator(cursor, ',');
    }
    template_cursor_expect_operator(cursor, close);
}

/* A key that is a string may name what the template calls later. */
static struct template_node *parse_dict(struct template_cursor *cursor) {
    struct template_node *dict = template_cursor_make(cursor, NODE_DICT), **end = &dict->items;
    template_cursor_advance(cursor);
    while (!template_cursor_closes(cursor, '}')) {
        struct template_node *key = template_expression_parse(cursor, true);
        struct text name = template_string_text(&key->value);
        if (key->kind == NODE_CONSTANT && name.data != NULL)
            template_cursor_define(cursor, name);
        template_cursor_append(&end, key);
        template_cursor_expect_operator(cursor, ':');
        template_cursor_append(&end, template_expression_parse(cursor, true));
        if (!template_cursor_is_operator(cursor, '}'))
            template_cursor_expect_operator(cursor, ',');
    }
    template_cursor_expect_operator(cursor, '}');
    return dict;
}

static struct template_node *parse_list(struct template_cursor *cursor) {
    struct template_node *list = template_cursor_make(cursor, NODE_LIST);
    template_cursor_advance(cursor);
    parse_items(cursor, ']', &list->items);
    return list;
}

static struct template_node *parse_parentheses(struct template_cursor *cursor) {
    struct template_node *node = template_cursor_make(cursor, NODE_TUPLE);
    template_cursor_advance(cursor);
    if (!template_cursor_is_operator(cursor, ')'))
        node = template_expression_parse_tuple(cursor, true, TUPLE_END_NONE);
    template_cursor_expect_operator(cursor, ')');
    return node;
}

static struct template_node *parse_primary(struct template_cursor *cursor) {
    switch (cursor->token.kind) {
    case TOKEN_NAME:
        return parse_name(cursor);
    case TOKEN_STRING:
        return parse_string(cursor);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return parse_number(cursor);
    default:
        break;
    }
    if (template_cursor_is_operator(cursor, '('))
        return parse_parentheses(cursor);
    if (template_cursor_is_operator(cursor, '['))
        return parse_list(cursor);
    if (template_cursor_is_operator(cursor, '{'))
        return parse_dict(cursor);
    template_cursor_fail_expected(cursor, "an expression");
    return template_cursor_make(cursor, NODE_CONSTANT);
}

/* --- Attributes, items, calls --- */

static struct template_node *parse_attribute(struct template_cursor *cursor,
                                             struct template_node *left) {
    struct template_node *node = template_cursor_make(cursor, NODE_ATTRIBUTE);
    template_cursor_advance(cursor);
    node->left = left;
    if (cursor->token.kind == TOKEN_NAME) {
        node->name = template_cursor_take_name(cursor);
    } else if (cursor->token.kind == TOKEN_INTEGER) {
        node->kind = NODE_ITEM;
        node->right = parse_number(cursor);
    } else {
        template_cursor_fail_expected(cursor, "a name or number");
    }
    return node;
}

/* One bound of a slice; NULL where it is left out. */
static struct template_node *parse_bound(struct template_cursor *cursor) {
    if (template_cursor_is_operator(cursor, ':') || template_cursor_is_operator(cursor, ']'))
        return NULL;
    return template_expression_parse(cursor, true);
}

static struct template_node *parse_subscript(struct template_cursor *cursor,
                                             struct template_node *left) {
    struct template_node *node = template_cursor_make(cursor, NODE_ITEM);
    template_cursor_advance(cursor);
    node->left = left;
    if (template_cursor_is_operator(cursor, ']'))
        template_cursor_fail_expected(cursor, "an index");
    node->right = parse_bound(cursor);
    if (template_cursor_skip_operator(cursor, ':')) {
        node->kind = NODE_SLICE;
        node->other = parse_bound(cursor);
        if (template_cursor_skip_operator(cursor, ':'))
            node->step = parse_bound(cursor);
    }
    template_cursor_expect_operator(cursor, ']');
    return node;
}

static struct template_node *parse_argument(struct template_cursor *cursor) {
    struct template_node *node = template_cursor_make(cursor, NODE_ARGUMENT);
    if (template_cursor_skip_operator(cursor, '*')) {
        node->op = '*';
    } else if (cursor->token.kind == TOKEN_NAME) {
        const struct template_token *next = template_cursor_look(cursor);
        if (next->kind == TOKEN_OPERATOR && next->op == '=') {
            node->name = template_cursor_take_name(cursor);
            template_cursor_define(cursor, node->name);
            template_cursor_advance(cursor);
        }
    }
    node->left = template_expression_parse(cursor, true);
    return node;
}

/* Those by position first, then those with names. */
static void parse_arguments(struct template_cursor *cursor, struct template_node **out) {
    struct template_node **end = out;
    bool named = false;
    template_cursor_expect_operator(cursor, '(');
    while (!template_cursor_closes(cursor, ')')) {
        struct template_node *argument = parse_argument(cursor);
        bool by_name = argument->name.length > 0;
        if (named && !by_name)
            template_cursor_fail(cursor, argument->line, "invalid order of a call's arguments");
        named = by_name;
        template_cursor_append(&end, argument);
        if (!template_cursor_is_operator(cursor, ')'))
            template_cursor_expect_operator(cursor, ',');
    }
    template_cursor_expect_operator(cursor, ')');
}

static struct template_node *parse_call(struct template_cursor *cursor,
                                        struct template_node *left) {
    struct template_node *node = template_cursor_make(cursor, NODE_CALL);
    node->left = left;
    if (left->kind == NODE_NAME &&
        template_builtins_find(cursor->builtins->functions, left->name) == NULL)
        template_cursor_use(cursor, "function", left->name, left->line);
    if (left->kind == NODE_ATTRIBUTE && !template_builtins_is_method(cursor->builtins, left->name))
        template_cursor_use(cursor, "method", left->name, left->line);
    parse_arguments(cursor, &node->items);
    return node;
}

static struct template_node *parse_postfix(struct template_cursor *cursor,
                                           struct template_node *node) {
    for (;;) {
        if (template_cursor_is_operator(cursor, '.'))
            node = parse_attribute(cursor, node);
        else if (template_cursor_is_operator(cursor, '['))
            node = parse_subscript(cursor, node);
        else if (template_cursor_is_operator(cursor, '('))
            node = parse_call(cursor, node);
        else
            return node;
    }
}

/* --- Filters and tests --- */

/* Finds a filter or test; NULL, after failing, if none has that name. */
static const struct template_function *find_builtin(struct template_cursor *cursor, bool is_filter,
                                                    struct text name, int line) {
    const struct template_function *found = template_builtins_find(
        is_filter ? cursor->builtins->filters : cursor->builtins->tests, name);
    if (found == NULL)
        template_cursor_fail_unknown(cursor, is_filter ? "filter" : "test", name, line);
    return found;
}

/* Takes the name of the node's filter or test. */
static void take_builtin(struct template_cursor *cursor, struct template_node *node) {
    node->name = template_cursor_take_name(cursor);
    node->value.kind = TEMPLATE_FUNCTION;
    node->value.function = find_builtin(cursor, node->kind == NODE_FILTER, node->name, node->line);
}

/* Checks the name of the filter or test that a filter applies to items, if it stands there. */
static void check_applied(struct template_cursor *cursor, const struct template_node *filter) {
    const struct template_function *function = filter->value.function;
    const struct template_node *argument = filter->items;
    if (cursor->failed || function->applies == TEMPLATE_APPLIES_NONE)
        return;
    for (int i = 0; i < function->applied_index && argument != NULL; i++)
        argument = argument->next;
    if (argument != NULL && argument->op == 0 && argument->name.length == 0 &&
        argument->left->kind == NODE_CONSTANT && template_value_is_string(&argument->left->value))
        find_builtin(cursor, function->applies == TEMPLATE_APPLIES_FILTER,
                     template_string_text(&argument->left->value), argument->line);
}

static struct template_node *parse_filter(struct template_cursor *cursor,
                                          struct template_node *left) {
    struct template_node *node = template_cursor_make(cursor, NODE_FILTER);
    take_builtin(cursor, node);
    node->left = left;
    if (template_cursor_is_operator(cursor, '('))
        parse_arguments(cursor, &node->items);
    check_applied(cursor, node);
    return node;
}

struct template_node *template_expression_parse_filters(struct template_cursor *cursor,
                                                        struct template_node *node, bool bare) {
    if (bare)
        node = parse_filter(cursor, node);
    while (template_cursor_skip_operator(cursor, '|'))
        node = parse_filter(cursor, node);
    return node;
}

/* Returns whether `x is test` continues with an argument without brackets. */
static bool argument_follows(const struct template_cursor *cursor) {
    switch (cursor->token.kind) {
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    case TOKEN_NAME:
        return !template_cursor_is_name(&cursor->token, "else") &&
               !template_cursor_is_name(&cursor->token, "or") &&
               !template_cursor_is_name(&cursor->token, "and");
    default:
        return template_cursor_is_operator(cursor, '[') || template_cursor_is_operator(cursor, '{');
    }
}

static struct template_node *parse_test_argument(struct template_cursor *cursor) {
    struct template_node *argument = template_cursor_make(cursor, NODE_ARGUMENT);
    if (template_cursor_is_name(&cursor->token, "is"))
        template_cursor_fail(cursor, cursor->token.line, "tests with 'is' cannot be chained");
    argument->left = parse_postfix(cursor, parse_primary(cursor));
    return argument;
}

static struct template_node *parse_test(struct template_cursor *cursor,
                                        struct template_node *left) {
    struct template_node *node = template_cursor_make(cursor, NODE_TEST), *negated = NULL;
    template_cursor_advance(cursor);
    if (template_cursor_skip_name(cursor, "not"))
        negated = template_cursor_make(cursor, NODE_NOT);
    take_builtin(cursor, node);
    node->left = left;
    if ((text_is(node->name, "defined") || text_is(node->name, "undefined")) &&
        (left->kind == NODE_NAME || left->kind == NODE_ATTRIBUTE))
        template_cursor_define(cursor, left->name);
    if (template_cursor_is_operator(cursor, '('))
        parse_arguments(cursor, &node->items);
    else if (argument_follows(cursor))
        node->items = parse_test_argument(cursor);
    if (negated != NULL)
        negated->left = node;
    return negated != NULL ? negated : node;
}

static struct template_node *parse_filters_and_tests(struct template_cursor *cursor,
                                                     struct template_node *node) {
    for (;;) {
        if (template_cursor_is_operator(cursor, '|'))
            node = template_expression_parse_filters(cursor, node, false);
        else if (template_cursor_is_name(&cursor->token, "is"))
            node = parse_test(cursor, node);
        else if (template_cursor_is_operator(cursor, '('))
            node = parse_call(cursor, node);
        else
            return node;
    }
}

/* --- Signs --- */

static struct template_node *parse_operand(struct template_cursor *cursor, bool with_filters) {
    struct template_node *node;
    template_cursor_enter(cursor);
    if (template_cursor_is_operator(cursor, '-') || template_cursor_is_operator(cursor, '+')) {
        node =
            template_cursor_make(cursor, cursor->token.op == '-' ? NODE_NEGATIVE : NODE_POSITIVE);
        template_cursor_advance(cursor);
        node->left = parse_operand(cursor, false);
    } else {
        node = parse_primary(cursor);
    }
    node = parse_postfix(cursor, node);
    template_cursor_leave(cursor);
    return with_filters ? parse_filters_and_tests(cursor, node) : node;
}

/* --- Operators --- */

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
        return parse_operand(cursor, true);
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

/* Advances past the comparison operator at the current token, and returns it; 0: none. */
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

/* --- Tuples and targets --- */

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
    if (cursor->token.kind != TOKEN_NAME || is_constant(cursor->token.text, &constant)) {
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
