#include "models/chat_template/template_eval.h"

#include "models/chat_template/template_parser.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

static int eval_sequence(struct template_run *run, const struct template_node *node,
                         struct template_value *out) {
    struct template_value made, item;
    if (!template_value_sequence(run->arena,
                                 node->kind == NODE_LIST ? TEMPLATE_LIST : TEMPLATE_TUPLE, &made))
        return template_run_fail_memory(run);
    for (const struct template_node *next = node->items; next != NULL; next = next->next) {
        if (template_eval(run, next, &item) != 0)
            return -1;
        if (!template_value_append(run->arena, made.sequence, item))
            return template_run_fail_memory(run);
    }
    *out = made;
    return 0;
}

static int eval_dict(struct template_run *run, const struct template_node *node,
                     struct template_value *out) {
    struct template_value made, key, item;
    if (!template_value_map(run->arena, TEMPLATE_MAP, &made))
        return template_run_fail_memory(run);
    for (const struct template_node *next = node->items; next != NULL; next = next->next->next) {
        if (template_eval(run, next, &key) != 0 || template_eval(run, next->next, &item) != 0)
            return -1;
        if (!template_value_is_key(&key))
            return template_run_fail(run, "unhashable type: '%s'", template_type_name(&key));
        if (!template_value_map_set(run->arena, made.mapping, &key, item))
            return template_run_fail_memory(run);
    }
    *out = made;
    return 0;
}

/* A sum of strings, from left to right: concatenated once, not again with each of them. */
struct sum {
    struct template_value left;      /* what the operands so far make, but for those in `text` */
    struct template_builder builder; /* the strings of a run of additions, if is_text */
    bool is_text;
};

static bool is_plain_string(const struct template_value *value) {
    return value->kind == TEMPLATE_STRING && !value->is_markup;
}

static int end_text(struct template_run *run, struct sum *sum) {
    if (!sum->is_text)
        return 0;
    sum->is_text = false;
    return template_run_finish(run, &sum->builder, &sum->left);
}

static int add_operand(struct template_run *run, int op, const struct template_value *right,
                       struct sum *sum) {
    bool joins = op == '+' && is_plain_string(right) && is_plain_string(&sum->left);
    if (!joins)
        return end_text(run, sum) != 0
                   ? -1
                   : template_operator_apply(run, op, &sum->left, right, &sum->left);
    if (!sum->is_text) {
        sum->builder = (struct template_builder){.arena = run->arena};
        template_builder_add_string(&sum->builder, &sum->left);
        sum->is_text = true;
    }
    template_builder_add_string(&sum->builder, right);
    return template_run_charge_text(run, right->string.length);
}

static int eval_arithmetic(struct template_run *run, const struct template_node *node,
                           struct template_value *out) {
    struct sum sum = {.is_text = false};
    struct template_value right;
    if (template_eval(run, node->left, &sum.left) != 0)
        return -1;
    for (const struct template_node *next = node->items; next != NULL; next = next->next) {
        if (template_eval(run, next->left, &right) != 0)
            return -1;
        run->line = next->line;
        /* One addition alone may continue where its left string ends. */
        bool is_single = next == node->items && next->next == NULL;
        if ((is_single ? template_operator_apply(run, next->op, &sum.left, &right, &sum.left)
                       : add_operand(run, next->op, &right, &sum)) != 0)
            return -1;
    }
    if (end_text(run, &sum) != 0)
        return -1;
    *out = sum.left;
    return 0;
}

static int compare(struct template_run *run, int op, const struct template_value *a,
                   const struct template_value *b, bool *out) {
    int order;
    switch (op) {
    case OPERATOR_EQUAL:
        return template_type_equal(run, a, b, out);
    case OPERATOR_NOT_EQUAL:
        if (template_type_equal(run, a, b, out) != 0)
            return -1;
        *out = !*out;
        return 0;
    case OPERATOR_IN:
        return template_type_contains(run, b, a, out);
    case OPERATOR_NOT_IN:
        if (template_type_contains(run, b, a, out) != 0)
            return -1;
        *out = !*out;
        return 0;
    default:
        break;
    }
    const char *name = op == '<' ? "<" : op == '>' ? ">" : op == OPERATOR_LESS_EQUAL ? "<=" : ">=";
    if (template_type_order(run, a, b, name, &order) != 0)
        return -1;
    *out = op == '<'                   ? order < 0
           : op == '>'                 ? order > 0
           : op == OPERATOR_LESS_EQUAL ? order <= 0
                                       : order >= 0;
    return 0;
}

/* a < b < c: as a < b and b < c. */
static int eval_compare(struct template_run *run, const struct template_node *node,
                        struct template_value *out) {
    struct template_value left, right;
    bool holds = true;
    if (template_eval(run, node->left, &left) != 0)
        return -1;
    for (const struct template_node *next = node->items; holds && next != NULL; next = next->next) {
        if (template_eval(run, next->left, &right) != 0)
            return -1;
        run->line = next->line;
        if (compare(run, next->op, &left, &right, &holds) != 0)
            return -1;
        left = right;
    }
    *out = template_value_bool(holds);
    return 0;
}

static int eval_concat(struct template_run *run, const struct template_node *node,
                       struct template_value *out) {
    struct template_builder builder = {.arena = run->arena};
    struct template_value part;
    if (template_eval(run, node->left, &part) != 0 || template_repr_str(run, &part, &builder) != 0)
        return -1;
    for (const struct template_node *next = node->items; next != NULL; next = next->next)
        if (template_eval(run, next->left, &part) != 0 ||
            template_repr_str(run, &part, &builder) != 0)
            return -1;
    return template_run_finish(run, &builder, out);
}

/* Gives the last value that was evaluated, as Python's `and` and `or` do. */
static int eval_logical(struct template_run *run, const struct template_node *node, bool goes_on,
                        struct template_value *out) {
    struct template_value value = template_value_none();
    for (const struct template_node *next = node->items; next != NULL; next = next->next) {
        if (template_eval(run, next, &value) != 0)
            return -1;
        if (template_type_is_true(&value) != goes_on)
            break;
    }
    *out = value;
    return 0;
}

static int eval_condition(struct template_run *run, const struct template_node *node,
                          struct template_value *out) {
    static const char missing[] = "the inline if-expression";
    struct template_value condition;
    if (template_eval(run, node->right, &condition) != 0)
        return -1;
    if (template_type_is_true(&condition))
        return template_eval(run, node->left, out);
    if (node->other != NULL)
        return template_eval(run, node->other, out);
    *out = template_value_undefined((struct text){missing, strlen(missing)});
    return 0;
}

/* An attribute, item or slice of the left value. */
static int eval_access(struct template_run *run, const struct template_node *node,
                       struct template_value *out) {
    const struct template_node *parts[3] = {node->right, node->other, node->step};
    struct template_value value, given[3];
    if (template_eval(run, node->left, &value) != 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        given[i] = template_value_none();
        if (parts[i] != NULL && template_eval(run, parts[i], &given[i]) != 0)
            return -1;
    }
    run->line = node->line;
    return node->kind == NODE_ATTRIBUTE ? template_operator_attribute(run, &value, node->name, out)
           : node->kind == NODE_ITEM    ? template_operator_item(run, &value, &given[0], out)
                                        : template_operator_slice(run, &value, given, out);
}

/* --- Evaluating arguments --- */

int template_eval_keyword(struct template_run *run, struct template_arguments *arguments,
                          struct text name, struct template_value value) {
    struct template_value made, key = template_value_text(name, TEMPLATE_ORIGIN_SERVER);
    if (arguments->keywords == NULL) {
        if (!template_value_map(run->arena, TEMPLATE_MAP, &made))
            return template_run_fail_memory(run);
        arguments->keywords = made.mapping;
    }
    return template_value_map_set(run->arena, arguments->keywords, &key, value)
               ? 0
               : template_run_fail_memory(run);
}

int template_eval_arguments(struct template_run *run, const struct template_node *nodes,
                            struct template_arguments *out) {
    struct template_sequence items = {0};
    *out = (struct template_arguments){0};
    for (const struct template_node *node = nodes; node != NULL; node = node->next) {
        struct template_value value;
        struct template_sequence given = {.items = &value, .length = 1};
        if (template_eval(run, node->left, &value) != 0)
            return -1;
        if (node->name.length > 0) {
            if (template_eval_keyword(run, out, node->name, value) != 0)
                return -1;
            continue;
        }
        if (node->op == '*' && template_type_items(run, &value, &given) != 0)
            return -1;
        for (size_t i = 0; i < given.length; i++)
            if (!template_value_append(run->arena, &items, given.items[i]))
                return template_run_fail_memory(run);
    }
    out->items = items.items;
    out->num = items.length;
    return 0;
}

/* --- Calls --- */

static int call_kind(struct template_run *run, const struct template_value *callee,
                     const struct template_arguments *arguments, struct template_value *out) {
    switch (callee->kind) {
    case TEMPLATE_FUNCTION:
        return template_call_function(run, callee->function, NULL, arguments, out);
    case TEMPLATE_METHOD:
        return template_call_function(run, callee->method->function, &callee->method->self,
                                      arguments, out);
    case TEMPLATE_MACRO:
        return template_statement_call(run, callee->macro, arguments, out);
    default:
        if (template_type_check_defined(run, callee) != 0)
            return -1;
        return template_run_fail(run, "'%s' object is not callable", template_type_name(callee));
    }
}

int template_eval_call(struct template_run *run, const struct template_value *callee,
                       const struct template_arguments *arguments, struct template_value *out) {
    if (run->num_calls >= TEMPLATE_MAX_CALLS)
        return template_run_fail(run, "more than %d calls within another", TEMPLATE_MAX_CALLS);
    run->num_calls++;
    int status = call_kind(run, callee, arguments, out);
    run->num_calls--;
    return status;
}

static int eval_call(struct template_run *run, const struct template_node *node,
                     struct template_value *out) {
    struct template_value callee;
    struct template_arguments arguments;
    if (template_eval(run, node->left, &callee) != 0 ||
        template_eval_arguments(run, node->items, &arguments) != 0)
        return -1;
    run->line = node->line;
    return template_eval_call(run, &callee, &arguments, out);
}

static int eval_filter(struct template_run *run, const struct template_node *node,
                       struct template_value *out) {
    struct template_value value;
    struct template_arguments arguments;
    if (template_eval(run, node->left, &value) != 0 ||
        template_eval_arguments(run, node->items, &arguments) != 0)
        return -1;
    run->line = node->line;
    return template_call_function(run, node->value.function, &value, &arguments, out);
}

static int eval_node(struct template_run *run, const struct template_node *node,
                     struct template_value *out) {
    struct template_value value;
    switch (node->kind) {
    case NODE_CONSTANT:
        *out = node->value;
        return 0;
    case NODE_NAME:
        return template_run_find(run, node->name, out);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_sequence(run, node, out);
    case NODE_DICT:
        return eval_dict(run, node, out);
    case NODE_ARITHMETIC:
        return eval_arithmetic(run, node, out);
    case NODE_COMPARE:
        return eval_compare(run, node, out);
    case NODE_CONCAT:
        return eval_concat(run, node, out);
    case NODE_AND:
    case NODE_OR:
        return eval_logical(run, node, node->kind == NODE_AND, out);
    case NODE_NOT:
        if (template_eval(run, node->left, &value) != 0)
            return -1;
        *out = template_value_bool(!template_type_is_true(&value));
        return 0;
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        if (template_eval(run, node->left, &value) != 0)
            return -1;
        run->line = node->line;
        return template_operator_sign(run, node->kind == NODE_NEGATIVE, &value, out);
    case NODE_CONDITION:
        return eval_condition(run, node, out);
    case NODE_ATTRIBUTE:
    case NODE_ITEM:
    case NODE_SLICE:
        return eval_access(run, node, out);
    case NODE_CALL:
        return eval_call(run, node, out);
    case NODE_FILTER:
        return eval_filter(run, node, out);
    case NODE_TEST:
        if (eval_filter(run, node, &value) != 0)
            return -1;
        *out = template_value_bool(template_type_is_true(&value));
        return 0;
    default: /* NODE_CAPTURED */
        *out = run->captured;
        return 0;
    }
}

int template_eval(struct template_run *run, const struct template_node *node,
                  struct template_value *out) {
    if (template_run_charge(run, 1) != 0)
        return -1;
    if (run->num_evaluations >= TEMPLATE_MAX_EVALUATIONS)
        return template_run_fail(run, "expressions and calls nest too deep");
    run->num_evaluations++;
    int status = eval_node(run, node, out);
    run->num_evaluations--;
    return status;
}
