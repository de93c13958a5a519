/* What operators stand between: literals, names, and what may follow those - attributes, items,
 * calls, filters, tests. */
#include "models/chat_template/template_builder.h"
#include "models/chat_template/template_parser.h"

#include <string.h>

/* --- Literals ----------------------------------------------------------------------------------
 */

/* Strings that follow each other are one. */
static int parse_string(struct template_parser *parser, struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_CONSTANT);
    struct template_builder builder = {.arena = parser->arena};
    struct text first = parser->token.text;
    if (node == NULL || template_parser_advance(parser) != 0)
        return -1;
    node->value = template_data_text(first, TEMPLATE_ORIGIN_SERVER);
    *out = node;
    if (parser->token.kind != TOKEN_STRING)
        return 0;
    template_builder_add(&builder, first, TEMPLATE_ORIGIN_SERVER);
    while (parser->token.kind == TOKEN_STRING) {
        template_builder_add(&builder, parser->token.text, TEMPLATE_ORIGIN_SERVER);
        if (template_parser_advance(parser) != 0)
            return -1;
    }
    return template_builder_finish(&builder, &node->value) ? 0
                                                           : template_parser_fail_memory(parser);
}

static int parse_number(struct template_parser *parser, struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_CONSTANT);
    if (node == NULL)
        return -1;
    node->value = parser->token.kind == TOKEN_FLOAT ? template_data_float(parser->token.real)
                                                    : template_data_int(parser->token.integer);
    *out = node;
    return template_parser_advance(parser);
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
        if (strlen(words[i].name) == name.length &&
            memcmp(words[i].name, name.data, name.length) == 0) {
            *out = (struct template_value){.kind = words[i].kind, .boolean = words[i].value};
            return true;
        }
    return false;
}

static int parse_name(struct template_parser *parser, struct template_node **out) {
    struct template_value constant;
    bool is_constant = template_operand_is_constant(parser->token.text, &constant);
    parser->takes_rest |= template_parser_is_name(&parser->token, "varargs") ||
                          template_parser_is_name(&parser->token, "kwargs");
    struct template_node *node =
        template_parser_make(parser, is_constant ? NODE_CONSTANT : NODE_NAME);
    if (node == NULL || template_parser_take_name(parser, &node->name) != 0)
        return -1;
    if (is_constant)
        node->value = constant;
    *out = node;
    return 0;
}

/* Expressions with commas between them up to the bracket `close`, which is taken as well. With
 * `pairs` each second one follows a colon. */
static int parse_items(struct template_parser *parser, int close, bool pairs,
                       struct template_node **out) {
    struct template_node **end = out, *item;
    int separator = 0;
    for (size_t i = 0; !template_parser_is_operator(parser, close); i++) {
        if (separator != 0 && template_parser_expect_operator(parser, separator) != 0)
            return -1;
        if (separator == ',' && template_parser_is_operator(parser, close))
            break;
        if (template_expression_parse(parser, true, &item) != 0)
            return -1;
        template_parser_append(&end, item);
        separator = pairs && i % 2 == 0 ? ':' : ',';
        if (separator == ':' && template_parser_is_operator(parser, close))
            return template_parser_fail_expected(parser, "':'");
    }
    return template_parser_expect_operator(parser, close);
}

static int parse_collection(struct template_parser *parser, struct template_node **out) {
    bool is_dict = template_parser_is_operator(parser, '{');
    struct template_node *node = template_parser_make(parser, is_dict ? NODE_DICT : NODE_LIST);
    if (node == NULL || template_parser_advance(parser) != 0)
        return -1;
    *out = node;
    return parse_items(parser, is_dict ? '}' : ']', is_dict, &node->items);
}

static int parse_parentheses(struct template_parser *parser, struct template_node **out) {
    struct template_node *tuple = template_parser_make(parser, NODE_TUPLE);
    if (tuple == NULL || template_parser_advance(parser) != 0)
        return -1;
    *out = tuple;
    if (!template_parser_is_operator(parser, ')') &&
        template_expression_parse_tuple(parser, true, TUPLE_END_NONE, out) != 0)
        return -1;
    return template_parser_expect_operator(parser, ')');
}

static int parse_primary(struct template_parser *parser, struct template_node **out) {
    switch (parser->token.kind) {
    case TOKEN_NAME:
        return parse_name(parser, out);
    case TOKEN_STRING:
        return parse_string(parser, out);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return parse_number(parser, out);
    default:
        break;
    }
    if (template_parser_is_operator(parser, '('))
        return parse_parentheses(parser, out);
    if (template_parser_is_operator(parser, '[') || template_parser_is_operator(parser, '{'))
        return parse_collection(parser, out);
    return template_parser_fail_expected(parser, "an expression");
}

/* --- Attributes, items, calls ------------------------------------------------------------------
 */

static int parse_attribute(struct template_parser *parser, struct template_node *left,
                           struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_ATTRIBUTE);
    if (node == NULL || template_parser_advance(parser) != 0)
        return -1;
    node->left = left;
    *out = node;
    if (parser->token.kind == TOKEN_NAME)
        return template_parser_take_name(parser, &node->name);
    if (parser->token.kind != TOKEN_INTEGER)
        return template_parser_fail_expected(parser, "a name or number");
    node->kind = NODE_ITEM;
    return parse_number(parser, &node->right);
}

/* One bound of a slice, which may be left out. */
static int parse_bound(struct template_parser *parser, struct template_node **out) {
    if (template_parser_is_operator(parser, ':') || template_parser_is_operator(parser, ']'))
        return 0;
    return template_expression_parse(parser, true, out);
}

static int parse_subscript(struct template_parser *parser, struct template_node *left,
                           struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_ITEM);
    if (node == NULL || template_parser_advance(parser) != 0)
        return -1;
    node->left = left;
    *out = node;
    if (template_parser_is_operator(parser, ']'))
        return template_parser_fail_expected(parser, "an index");
    if (parse_bound(parser, &node->right) != 0)
        return -1;
    if (template_parser_is_operator(parser, ':')) {
        node->kind = NODE_SLICE;
        if (template_parser_advance(parser) != 0 || parse_bound(parser, &node->other) != 0)
            return -1;
        int skipped = template_parser_skip_operator(parser, ':');
        if (skipped < 0 || (skipped == 1 && parse_bound(parser, &node->step) != 0))
            return -1;
    }
    return template_parser_expect_operator(parser, ']');
}

static int parse_argument(struct template_parser *parser, struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_ARGUMENT);
    if (node == NULL)
        return -1;
    *out = node;
    if (template_parser_is_operator(parser, '*') ||
        template_parser_is_operator(parser, OPERATOR_POWER)) {
        node->op = (int16_t)parser->token.op;
        if (template_parser_advance(parser) != 0)
            return -1;
    } else if (parser->token.kind == TOKEN_NAME) {
        const struct template_token *next = template_parser_look(parser);
        if (next == NULL)
            return -1;
        if (next->kind == TOKEN_OPERATOR && next->op == '=' &&
            (template_parser_take_name(parser, &node->name) != 0 ||
             template_parser_advance(parser) != 0))
            return -1;
    }
    return template_expression_parse(parser, true, &node->left);
}

/* Positional ones first, then those with names, * and **. */
static int argument_rank(const struct template_node *argument) {
    return argument->op == OPERATOR_POWER ? 3 : argument->op == '*' ? 2 : argument->name.length > 0;
}

static int parse_arguments(struct template_parser *parser, struct template_node **out) {
    struct template_node **end = out, *argument;
    int rank = 0;
    if (template_parser_expect_operator(parser, '(') != 0)
        return -1;
    while (!template_parser_is_operator(parser, ')')) {
        if (*out != NULL && template_parser_expect_operator(parser, ',') != 0)
            return -1;
        if (*out != NULL && template_parser_is_operator(parser, ')'))
            break;
        if (parse_argument(parser, &argument) != 0)
            return -1;
        int own = argument_rank(argument);
        if (own < rank && !(rank == 2 && own == 1))
            return template_lexer_fail(&parser->lexer, argument->line,
                                       "invalid order of a call's arguments");
        rank = own > rank ? own : rank;
        template_parser_append(&end, argument);
    }
    return template_parser_expect_operator(parser, ')');
}

static int parse_call(struct template_parser *parser, struct template_node *left,
                      struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_CALL);
    if (node == NULL)
        return -1;
    node->left = left;
    *out = node;
    return parse_arguments(parser, &node->items);
}

static int parse_postfix(struct template_parser *parser, struct template_node *node,
                         struct template_node **out) {
    int status = 0;
    while (status == 0) {
        if (template_parser_is_operator(parser, '.'))
            status = parse_attribute(parser, node, &node);
        else if (template_parser_is_operator(parser, '['))
            status = parse_subscript(parser, node, &node);
        else if (template_parser_is_operator(parser, '('))
            status = parse_call(parser, node, &node);
        else
            break;
    }
    *out = node;
    return status;
}

/* --- Filters and tests -------------------------------------------------------------------------
 */

static int parse_filter(struct template_parser *parser, struct template_node *left,
                        struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_FILTER);
    if (node == NULL || template_parser_take_name(parser, &node->name) != 0)
        return -1;
    node->left = left;
    *out = node;
    return template_parser_is_operator(parser, '(') ? parse_arguments(parser, &node->items) : 0;
}

int template_operand_parse_filters(struct template_parser *parser, struct template_node *node,
                                   bool bare, struct template_node **out) {
    if (bare && parse_filter(parser, node, &node) != 0)
        return -1;
    while (template_parser_is_operator(parser, '|'))
        if (template_parser_advance(parser) != 0 || parse_filter(parser, node, &node) != 0)
            return -1;
    *out = node;
    return 0;
}

/* Whether `x is test` goes on with an argument without brackets. */
static bool argument_follows(const struct template_parser *parser) {
    switch (parser->token.kind) {
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    case TOKEN_NAME:
        return !template_parser_is_name(&parser->token, "else") &&
               !template_parser_is_name(&parser->token, "or") &&
               !template_parser_is_name(&parser->token, "and");
    default:
        return template_parser_is_operator(parser, '[') || template_parser_is_operator(parser, '{');
    }
}

static int parse_test_argument(struct template_parser *parser, struct template_node **out) {
    struct template_node *argument = template_parser_make(parser, NODE_ARGUMENT);
    if (argument == NULL)
        return -1;
    if (template_parser_is_name(&parser->token, "is"))
        return template_lexer_fail(&parser->lexer, parser->token.line,
                                   "tests with 'is' cannot be chained");
    *out = argument;
    if (parse_primary(parser, &argument->left) != 0)
        return -1;
    return parse_postfix(parser, argument->left, &argument->left);
}

static int parse_test(struct template_parser *parser, struct template_node *left,
                      struct template_node **out) {
    struct template_node *node = template_parser_make(parser, NODE_TEST), *negated = NULL;
    if (node == NULL || template_parser_advance(parser) != 0)
        return -1;
    int is_negated = template_parser_skip_name(parser, "not");
    if (is_negated < 0 || template_parser_take_name(parser, &node->name) != 0)
        return -1;
    node->left = left;
    *out = node;
    if (is_negated == 1) {
        negated = template_parser_make(parser, NODE_NOT);
        if (negated == NULL)
            return -1;
        negated->left = node;
        *out = negated;
    }
    if (template_parser_is_operator(parser, '('))
        return parse_arguments(parser, &node->items);
    return argument_follows(parser) ? parse_test_argument(parser, &node->items) : 0;
}

static int parse_filters_and_tests(struct template_parser *parser, struct template_node *node,
                                   struct template_node **out) {
    int status = 0;
    while (status == 0) {
        if (template_parser_is_operator(parser, '|'))
            status = template_operand_parse_filters(parser, node, false, &node);
        else if (template_parser_is_name(&parser->token, "is"))
            status = parse_test(parser, node, &node);
        else if (template_parser_is_operator(parser, '('))
            status = parse_call(parser, node, &node);
        else
            break;
    }
    *out = node;
    return status;
}

/* --- Signs -------------------------------------------------------------------------------------
 */

int template_operand_parse(struct template_parser *parser, bool with_filters,
                           struct template_node **out) {
    struct template_node *node;
    int status;
    if (template_parser_enter(parser) != 0)
        return -1;
    if (template_parser_is_operator(parser, '-') || template_parser_is_operator(parser, '+')) {
        node =
            template_parser_make(parser, parser->token.op == '-' ? NODE_NEGATIVE : NODE_POSITIVE);
        if (node == NULL || template_parser_advance(parser) != 0)
            return -1;
        status = template_operand_parse(parser, false, &node->left);
    } else {
        status = parse_primary(parser, &node);
    }
    if (status != 0 || parse_postfix(parser, node, &node) != 0)
        return -1;
    parser->nesting--;
    *out = node;
    return with_filters ? parse_filters_and_tests(parser, node, out) : 0;
}
