/* What operators stand between: literals, names, and what may follow those - attributes, items,
 * calls, filters, tests. */
#include "models/chat_template/template_operand.h"

#include "models/chat_template/template_builder.h"
#include "models/chat_template/template_expression.h"

#include <string.h>

/* --- Literals ----------------------------------------------------------------------------------
 */

/* Strings that follow each other are one. */
static int parse_string(struct template_cursor *cursor, struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_CONSTANT);
    struct template_builder builder = {.arena = cursor->arena};
    struct text first = cursor->token.text;
    if (node == NULL || template_cursor_advance(cursor) != 0)
        return -1;
    node->value = template_data_text(first, TEMPLATE_ORIGIN_SERVER);
    *out = node;
    if (cursor->token.kind != TOKEN_STRING)
        return 0;
    template_builder_add(&builder, first, TEMPLATE_ORIGIN_SERVER);
    while (cursor->token.kind == TOKEN_STRING) {
        template_builder_add(&builder, cursor->token.text, TEMPLATE_ORIGIN_SERVER);
        if (template_cursor_advance(cursor) != 0)
            return -1;
    }
    return template_builder_finish(&builder, &node->value) ? 0
                                                           : template_cursor_fail_memory(cursor);
}

static int parse_number(struct template_cursor *cursor, struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_CONSTANT);
    if (node == NULL)
        return -1;
    node->value = cursor->token.kind == TOKEN_FLOAT ? template_data_float(cursor->token.real)
                                                    : template_data_int(cursor->token.integer);
    *out = node;
    return template_cursor_advance(cursor);
}

bool template_operand_is_constant(struct text name, struct template_value *out) {
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

static int parse_name(struct template_cursor *cursor, struct template_node **out) {
    struct template_value constant;
    bool is_constant = template_operand_is_constant(cursor->token.text, &constant);
    struct template_node *node =
        template_cursor_make(cursor, is_constant ? NODE_CONSTANT : NODE_NAME);
    if (node == NULL || template_cursor_take_name(cursor, &node->name) != 0)
        return -1;
    if (is_constant)
        node->value = constant;
    *out = node;
    bool is_rest = text_is(node->name, "varargs") || text_is(node->name, "kwargs");
    return is_rest ? template_cursor_use(cursor, "variable", node->name, node->line) : 0;
}

/* Expressions with commas between them up to the bracket `close`, which is taken as well. With
 * `pairs` each second one follows a colon. */
static int parse_items(struct template_cursor *cursor, int close, bool pairs,
                       struct template_node **out) {
    struct template_node **end = out, *item;
    int separator = 0;
    for (size_t i = 0; !template_cursor_is_operator(cursor, close); i++) {
        if (separator != 0 && template_cursor_expect_operator(cursor, separator) != 0)
            return -1;
        if (separator == ',' && template_cursor_is_operator(cursor, close))
            break;
        if (template_expression_parse(cursor, true, &item) != 0)
            return -1;
        template_cursor_append(&end, item);
        separator = pairs && i % 2 == 0 ? ':' : ',';
        if (separator == ':' && item->kind == NODE_CONSTANT &&
            template_data_is_string(&item->value) &&
            template_cursor_define(
                cursor, (struct text){item->value.string.data, item->value.string.length}) != 0)
            return -1;
        if (separator == ':' && template_cursor_is_operator(cursor, close))
            return template_cursor_fail_expected(cursor, "':'");
    }
    return template_cursor_expect_operator(cursor, close);
}

static int parse_collection(struct template_cursor *cursor, struct template_node **out) {
    bool is_dict = template_cursor_is_operator(cursor, '{');
    struct template_node *node = template_cursor_make(cursor, is_dict ? NODE_DICT : NODE_LIST);
    if (node == NULL || template_cursor_advance(cursor) != 0)
        return -1;
    *out = node;
    return parse_items(cursor, is_dict ? '}' : ']', is_dict, &node->items);
}

static int parse_parentheses(struct template_cursor *cursor, struct template_node **out) {
    struct template_node *tuple = template_cursor_make(cursor, NODE_TUPLE);
    if (tuple == NULL || template_cursor_advance(cursor) != 0)
        return -1;
    *out = tuple;
    if (!template_cursor_is_operator(cursor, ')') &&
        template_expression_parse_tuple(cursor, true, TUPLE_END_NONE, out) != 0)
        return -1;
    return template_cursor_expect_operator(cursor, ')');
}

static int parse_primary(struct template_cursor *cursor, struct template_node **out) {
    switch (cursor->token.kind) {
    case TOKEN_NAME:
        return parse_name(cursor, out);
    case TOKEN_STRING:
        return parse_string(cursor, out);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return parse_number(cursor, out);
    default:
        break;
    }
    if (template_cursor_is_operator(cursor, '('))
        return parse_parentheses(cursor, out);
    if (template_cursor_is_operator(cursor, '[') || template_cursor_is_operator(cursor, '{'))
        return parse_collection(cursor, out);
    return template_cursor_fail_expected(cursor, "an expression");
}

/* --- Attributes, items, calls ------------------------------------------------------------------
 */

static int parse_attribute(struct template_cursor *cursor, struct template_node *left,
                           struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_ATTRIBUTE);
    if (node == NULL || template_cursor_advance(cursor) != 0)
        return -1;
    node->left = left;
    *out = node;
    if (cursor->token.kind == TOKEN_NAME)
        return template_cursor_take_name(cursor, &node->name);
    if (cursor->token.kind != TOKEN_INTEGER)
        return template_cursor_fail_expected(cursor, "a name or number");
    node->kind = NODE_ITEM;
    return parse_number(cursor, &node->right);
}

/* One bound of a slice, which may be left out. */
static int parse_bound(struct template_cursor *cursor, struct template_node **out) {
    if (template_cursor_is_operator(cursor, ':') || template_cursor_is_operator(cursor, ']'))
        return 0;
    return template_expression_parse(cursor, true, out);
}

static int parse_subscript(struct template_cursor *cursor, struct template_node *left,
                           struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_ITEM);
    if (node == NULL || template_cursor_advance(cursor) != 0)
        return -1;
    node->left = left;
    *out = node;
    if (template_cursor_is_operator(cursor, ']'))
        return template_cursor_fail_expected(cursor, "an index");
    if (parse_bound(cursor, &node->right) != 0)
        return -1;
    if (template_cursor_is_operator(cursor, ':')) {
        node->kind = NODE_SLICE;
        if (template_cursor_advance(cursor) != 0 || parse_bound(cursor, &node->other) != 0)
            return -1;
        int skipped = template_cursor_skip_operator(cursor, ':');
        if (skipped < 0 || (skipped == 1 && parse_bound(cursor, &node->step) != 0))
            return -1;
    }
    return template_cursor_expect_operator(cursor, ']');
}

static int parse_argument(struct template_cursor *cursor, struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_ARGUMENT);
    if (node == NULL)
        return -1;
    *out = node;
    int has_star = template_cursor_skip_operator(cursor, '*');
    if (has_star < 0)
        return -1;
    if (has_star == 1) {
        node->op = '*';
    } else if (cursor->token.kind == TOKEN_NAME) {
        const struct template_token *next = template_cursor_look(cursor);
        if (next == NULL)
            return -1;
        if (next->kind == TOKEN_OPERATOR && next->op == '=' &&
            (template_cursor_take_name(cursor, &node->name) != 0 ||
             template_cursor_define(cursor, node->name) != 0 ||
             template_cursor_advance(cursor) != 0))
            return -1;
    }
    return template_expression_parse(cursor, true, &node->left);
}

/* Those by position first, then those with names. */
static int parse_arguments(struct template_cursor *cursor, struct template_node **out) {
    struct template_node **end = out, *argument;
    bool named = false;
    if (template_cursor_expect_operator(cursor, '(') != 0)
        return -1;
    while (!template_cursor_is_operator(cursor, ')')) {
        if (*out != NULL && template_cursor_expect_operator(cursor, ',') != 0)
            return -1;
        if (*out != NULL && template_cursor_is_operator(cursor, ')'))
            break;
        if (parse_argument(cursor, &argument) != 0)
            return -1;
        bool by_name = argument->name.length > 0;
        if (named && !by_name)
            return template_lexer_fail(&cursor->lexer, argument->line,
                                       "invalid order of a call's arguments");
        named = by_name;
        template_cursor_append(&end, argument);
    }
    return template_cursor_expect_operator(cursor, ')');
}

static int parse_call(struct template_cursor *cursor, struct template_node *left,
                      struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_CALL);
    if (node == NULL)
        return -1;
    node->left = left;
    *out = node;
    if (left->kind == NODE_NAME &&
        template_builtins_find(cursor->builtins->functions, left->name) == NULL &&
        template_cursor_use(cursor, "function", left->name, left->line) != 0)
        return -1;
    if (left->kind == NODE_ATTRIBUTE &&
        !template_builtins_is_method(cursor->builtins, left->name) &&
        template_cursor_use(cursor, "method", left->name, left->line) != 0)
        return -1;
    return parse_arguments(cursor, &node->items);
}

static int parse_postfix(struct template_cursor *cursor, struct template_node *node,
                         struct template_node **out) {
    int status = 0;
    while (status == 0) {
        if (template_cursor_is_operator(cursor, '.'))
            status = parse_attribute(cursor, node, &node);
        else if (template_cursor_is_operator(cursor, '['))
            status = parse_subscript(cursor, node, &node);
        else if (template_cursor_is_operator(cursor, '('))
            status = parse_call(cursor, node, &node);
        else
            break;
    }
    *out = node;
    return status;
}

/* --- Filters and tests -------------------------------------------------------------------------
 */

/* Finds what the node's name stands for, which becomes its value. */
static int resolve(struct template_cursor *cursor, struct template_node *node) {
    bool is_filter = node->kind == NODE_FILTER;
    const struct template_function *found = template_builtins_find(
        is_filter ? cursor->builtins->filters : cursor->builtins->tests, node->name);
    if (found == NULL)
        return template_cursor_fail_unknown(cursor, is_filter ? "filter" : "test", node->name,
                                            node->line);
    node->value = (struct template_value){.kind = TEMPLATE_FUNCTION, .function = found};
    return 0;
}

/* Checks the name of the filter or test that a filter applies to items, if it stands there. */
static int check_applied(struct template_cursor *cursor, const struct template_node *filter) {
    const struct template_function *function = filter->value.function;
    bool is_filter = function->applies == TEMPLATE_APPLIES_FILTER;
    const struct template_node *argument = filter->items;
    for (int i = 0; i < function->applied_index && argument != NULL; i++)
        argument = argument->next;
    if (function->applies == TEMPLATE_APPLIES_NONE || argument == NULL || argument->op != 0 ||
        argument->name.length > 0 || argument->left->kind != NODE_CONSTANT ||
        !template_data_is_string(&argument->left->value))
        return 0;
    struct text name = {argument->left->value.string.data, argument->left->value.string.length};
    if (template_builtins_find(is_filter ? cursor->builtins->filters : cursor->builtins->tests,
                               name) != NULL)
        return 0;
    return template_cursor_fail_unknown(cursor, is_filter ? "filter" : "test", name,
                                        argument->line);
}

static int parse_filter(struct template_cursor *cursor, struct template_node *left,
                        struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_FILTER);
    if (node == NULL || template_cursor_take_name(cursor, &node->name) != 0 ||
        resolve(cursor, node) != 0)
        return -1;
    node->left = left;
    *out = node;
    if (!template_cursor_is_operator(cursor, '('))
        return 0;
    return parse_arguments(cursor, &node->items) != 0 ? -1 : check_applied(cursor, node);
}

int template_operand_parse_filters(struct template_cursor *cursor, struct template_node *node,
                                   bool bare, struct template_node **out) {
    if (bare && parse_filter(cursor, node, &node) != 0)
        return -1;
    while (template_cursor_is_operator(cursor, '|'))
        if (template_cursor_advance(cursor) != 0 || parse_filter(cursor, node, &node) != 0)
            return -1;
    *out = node;
    return 0;
}

/* Whether `x is test` goes on with an argument without brackets. */
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

static int parse_test_argument(struct template_cursor *cursor, struct template_node **out) {
    struct template_node *argument = template_cursor_make(cursor, NODE_ARGUMENT);
    if (argument == NULL)
        return -1;
    if (template_cursor_is_name(&cursor->token, "is"))
        return template_lexer_fail(&cursor->lexer, cursor->token.line,
                                   "tests with 'is' cannot be chained");
    *out = argument;
    if (parse_primary(cursor, &argument->left) != 0)
        return -1;
    return parse_postfix(cursor, argument->left, &argument->left);
}

static int parse_test(struct template_cursor *cursor, struct template_node *left,
                      struct template_node **out) {
    struct template_node *node = template_cursor_make(cursor, NODE_TEST), *negated = NULL;
    if (node == NULL || template_cursor_advance(cursor) != 0)
        return -1;
    int is_negated = template_cursor_skip_name(cursor, "not");
    if (is_negated < 0 || template_cursor_take_name(cursor, &node->name) != 0 ||
        resolve(cursor, node) != 0)
        return -1;
    bool asks = text_is(node->name, "defined") || text_is(node->name, "undefined");
    bool is_named = left->kind == NODE_NAME || left->kind == NODE_ATTRIBUTE;
    if (asks && is_named && template_cursor_define(cursor, left->name) != 0)
        return -1;
    node->left = left;
    *out = node;
    if (is_negated == 1) {
        negated = template_cursor_make(cursor, NODE_NOT);
        if (negated == NULL)
            return -1;
        negated->left = node;
        *out = negated;
    }
    if (template_cursor_is_operator(cursor, '('))
        return parse_arguments(cursor, &node->items);
    return argument_follows(cursor) ? parse_test_argument(cursor, &node->items) : 0;
}

static int parse_filters_and_tests(struct template_cursor *cursor, struct template_node *node,
                                   struct template_node **out) {
    int status = 0;
    while (status == 0) {
        if (template_cursor_is_operator(cursor, '|'))
            status = template_operand_parse_filters(cursor, node, false, &node);
        else if (template_cursor_is_name(&cursor->token, "is"))
            status = parse_test(cursor, node, &node);
        else if (template_cursor_is_operator(cursor, '('))
            status = parse_call(cursor, node, &node);
        else
            break;
    }
    *out = node;
    return status;
}

/* --- Signs -------------------------------------------------------------------------------------
 */

int template_operand_parse(struct template_cursor *cursor, bool with_filters,
                           struct template_node **out) {
    struct template_node *node;
    int status;
    if (template_cursor_enter(cursor) != 0)
        return -1;
    if (template_cursor_is_operator(cursor, '-') || template_cursor_is_operator(cursor, '+')) {
        node =
            template_cursor_make(cursor, cursor->token.op == '-' ? NODE_NEGATIVE : NODE_POSITIVE);
        if (node == NULL || template_cursor_advance(cursor) != 0)
            return -1;
        status = template_operand_parse(cursor, false, &node->left);
    } else {
        status = parse_primary(cursor, &node);
    }
    if (status != 0 || parse_postfix(cursor, node, &node) != 0)
        return -1;
    cursor->nesting--;
    *out = node;
    return with_filters ? parse_filters_and_tests(cursor, node, out) : 0;
}
