#include "models/chat_template/template_eval.h"
#include "models/chat_template/template_strings.h"
#include "models/chat_template/template_type.h"

/* The ways in which a body is left. */
enum flow { FLOW_END, FLOW_BREAK, FLOW_CONTINUE };

static int run_body(struct template_run *run, const struct template_node *body, enum flow *out);

/* --- Assignment --- */

static int assign_member(struct template_run *run, const struct template_node *target,
                         struct template_value value) {
    struct template_value space, key = template_value_text(target->member, TEMPLATE_ORIGIN_SERVER);
    if (template_run_find(run, target->name, &space) != 0)
        return -1;
    run->line = target->line;
    if (space.kind != TEMPLATE_NAMESPACE)
        return template_run_fail(run, "cannot assign attribute on non-namespace object");
    if (target->member.data[0] == '_')
        return template_run_fail(run, "a namespace cannot have the attribute '%.*s'",
                                 template_run_shown(target->member), target->member.data);
    return template_value_map_set(run->arena, space.mapping, &key, value)
               ? 0
               : template_run_fail_memory(run);
}

static int assign(struct template_run *run, const struct template_node *target,
                  struct template_value value);

static int assign_tuple(struct template_run *run, const struct template_node *target,
                        const struct template_value *value) {
    struct template_sequence items;
    size_t i = 0;
    run->line = target->line;
    if (template_type_items(run, value, &items) != 0)
        return -1;
    for (const struct template_node *name = target->items; name != NULL; name = name->next, i++) {
        if (i == items.length)
            return template_run_fail(run, "not enough values to unpack (got %zu)", items.length);
        if (assign(run, name, items.items[i]) != 0)
            return -1;
    }
    if (i < items.length)
        return template_run_fail(run, "too many values to unpack (expected %zu)", i);
    return 0;
}

static int assign(struct template_run *run, const struct template_node *target,
                  struct template_value value) {
    if (target->kind == NODE_NAME)
        return template_run_set(run, run->scope, target->name, value);
    if (target->kind == NODE_MEMBER)
        return assign_member(run, target, value);
    return assign_tuple(run, target, &value);
}

/* --- Loops --- */

/* Picks the items that pass the loop's `if`, which sees the loop's targets alone. */
static int filter_items(struct template_run *run, const struct template_node *node,
                        const struct template_sequence *items, struct template_sequence *out) {
    struct template_scope *outer = run->scope, *scope = template_run_scope(run, outer);
    struct template_sequence passed = {0};
    int status = scope == NULL ? -1 : 0;
    run->scope = scope;
    for (size_t i = 0; status == 0 && i < items->length; i++) {
        struct template_value passes;
        status = assign(run, node->left, items->items[i]);
        if (status == 0)
            status = template_eval(run, node->other, &passes);
        if (status == 0 && template_type_is_true(&passes) &&
            !template_value_append(run->arena, &passed, items->items[i]))
            status = template_run_fail_memory(run);
    }
    run->scope = outer;
    *out = passed;
    return status;
}

/* Ends the life of what the body set in the round before. */
static void forget_bindings(struct template_scope *scope) {
    for (struct template_binding *binding = scope->bindings; binding != NULL;
         binding = binding->next)
        binding->value.kind = TEMPLATE_MISSING;
}

static int run_rounds(struct template_run *run, const struct template_node *node,
                      struct template_loop *loop) {
    struct template_value value = {.kind = TEMPLATE_LOOP, .loop = loop};
    enum flow flow = FLOW_END;
    for (; flow != FLOW_BREAK && loop->index < loop->items.length; loop->index++) {
        forget_bindings(run->scope);
        if (template_run_charge(run, 1) != 0 ||
            assign(run, node->left, loop->items.items[loop->index]) != 0 ||
            template_run_set(run, run->scope, run->names->loop, value) != 0 ||
            run_body(run, node->body, &flow) != 0)
            return -1;
    }
    return 0;
}

/* In separate scopes. */
static int run_loop(struct template_run *run, const struct template_node *node) {
    struct template_value value;
    if (template_eval(run, node->right, &value) != 0)
        return -1;
    run->line = node->line;
    struct template_loop *loop = template_arena_alloc(run->arena, sizeof(*loop));
    struct template_scope *outer = run->scope, *scope = template_run_scope(run, outer);
    if (loop == NULL || scope == NULL)
        return template_run_fail_memory(run);
    *loop = (struct template_loop){.index = 0};
    if (template_type_items(run, &value, &loop->items) != 0 ||
        (node->other != NULL && filter_items(run, node, &loop->items, &loop->items) != 0))
        return -1;
    run->scope = scope;
    enum flow flow;
    int status =
        loop->items.length > 0 ? run_rounds(run, node, loop) : run_body(run, node->orelse, &flow);
    run->scope = outer;
    return status;
}

/* --- Statements --- */

int template_statement_capture(struct template_run *run, const struct template_node *body,
                               struct template_scope *scope, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena}, *outer_output = run->output;
    struct template_scope *outer_scope = run->scope;
    enum flow flow;
    run->output = &builder;
    run->scope = scope;
    int status = run_body(run, body, &flow);
    run->output = outer_output;
    run->scope = outer_scope;
    return status != 0 ? -1 : template_run_finish(run, &builder, out);
}

/* Gives what the body writes, put through the filters of the node. */
static int run_filtered(struct template_run *run, const struct template_node *node,
                        struct template_value *out) {
    struct template_scope *scope = template_run_scope(run, run->scope);
    struct template_value captured, outer = run->captured;
    if (scope == NULL || template_statement_capture(run, node->body, scope, &captured) != 0)
        return -1;
    run->captured = captured;
    int status = template_eval(run, node->right, out);
    run->captured = outer;
    return status;
}

static int run_scope(struct template_run *run, const struct template_node *body, enum flow *out) {
    struct template_scope *outer = run->scope, *scope = template_run_scope(run, outer);
    if (scope == NULL)
        return -1;
    run->scope = scope;
    int status = run_body(run, body, out);
    run->scope = outer;
    return status;
}

static int run_if(struct template_run *run, const struct template_node *node, enum flow *out) {
    for (const struct template_node *branch = node->items; branch != NULL; branch = branch->next) {
        struct template_value condition = template_value_bool(true);
        if (branch->left != NULL && template_eval(run, branch->left, &condition) != 0)
            return -1;
        if (template_type_is_true(&condition))
            return run_body(run, branch->body, out);
    }
    return 0;
}

static int make_macro(struct template_run *run, const struct template_node *node,
                      struct template_value *out) {
    struct template_macro *macro = template_arena_alloc(run->arena, sizeof(*macro));
    if (macro == NULL)
        return template_run_fail_memory(run);
    *macro = (struct template_macro){node, run->scope};
    *out = (struct template_value){.kind = TEMPLATE_MACRO, .macro = macro};
    return 0;
}

/* Calls a macro that has the block's body for its `caller`. */
static int run_call_block(struct template_run *run, const struct template_node *node) {
    const struct template_node *call = node->right;
    struct template_value caller, callee, value;
    struct template_arguments arguments;
    if (make_macro(run, node, &caller) != 0 || template_eval(run, call->left, &callee) != 0 ||
        template_eval_arguments(run, call->items, &arguments) != 0 ||
        template_eval_keyword(run, &arguments, run->names->caller, caller) != 0)
        return -1;
    run->line = call->line;
    return template_eval_call(run, &callee, &arguments, &value) != 0
               ? -1
               : template_repr_str(run, &value, run->output);
}

static int run_statement(struct template_run *run, const struct template_node *node,
                         enum flow *out) {
    struct template_value value;
    switch (node->kind) {
    case NODE_TEXT:
        template_builder_add_string(run->output, &node->value);
        return template_run_charge_text(run, node->value.string.length);
    case NODE_OUTPUT:
        if (template_eval(run, node->left, &value) != 0)
            return -1;
        run->line = node->line;
        return template_repr_str(run, &value, run->output);
    case NODE_FILTER_BLOCK:
        if (run_filtered(run, node, &value) != 0)
            return -1;
        return template_repr_str(run, &value, run->output);
    case NODE_IF:
        return run_if(run, node, out);
    case NODE_FOR:
        return run_loop(run, node);
    case NODE_SET:
    case NODE_SET_BLOCK:
        if ((node->kind == NODE_SET ? template_eval(run, node->right, &value)
                                    : run_filtered(run, node, &value)) != 0)
            return -1;
        return assign(run, node->left, value);
    case NODE_MACRO:
        if (make_macro(run, node, &value) != 0)
            return -1;
        return template_run_set(run, run->scope, node->name, value);
    case NODE_CALL_BLOCK:
        return run_call_block(run, node);
    case NODE_SCOPE:
        return run_scope(run, node->body, out);
    case NODE_BREAK:
        *out = FLOW_BREAK;
        return 0;
    default: /* NODE_CONTINUE */
        *out = FLOW_CONTINUE;
        return 0;
    }
}

static int run_body(struct template_run *run, const struct template_node *body, enum flow *out) {
    int status = 0;
    *out = FLOW_END;
    if (run->num_evaluations >= TEMPLATE_MAX_EVALUATIONS)
        return template_run_fail(run, "expressions and calls nest too deep");
    run->num_evaluations++;
    for (const struct template_node *node = body; status == 0 && *out == FLOW_END && node != NULL;
         node = node->next) {
        run->line = node->line;
        status = template_run_charge(run, 1);
        if (status == 0)
            status = run_statement(run, node, out);
    }
    run->num_evaluations--;
    return status;
}

/* --- Macros --- */

/* Binds the given value, the default, or undefined. */
static int bind_parameter(struct template_run *run, const struct template_node *parameter,
                          size_t index, const struct template_arguments *arguments,
                          struct template_scope *scope) {
    struct template_value value;
    const struct template_value *keyword =
        arguments->keywords == NULL
            ? NULL
            : template_value_map_find_text(run->arena, arguments->keywords, parameter->name);
    if (index < arguments->num)
        value = arguments->items[index];
    else if (keyword != NULL)
        value = *keyword;
    else if (parameter->left == NULL)
        value = template_value_undefined(parameter->name);
    else if (template_eval(run, parameter->left, &value) != 0)
        return -1;
    return template_run_set(run, scope, parameter->name, value);
}

/* Fails where no parameter takes it, but for the caller of a call block. */
static int bind_keyword(struct template_run *run, const struct template_macro *macro,
                        const struct template_entry *entry, struct template_scope *scope) {
    struct text macro_name = macro->node->name, name = template_string_text(&entry->key);
    for (const struct template_node *node = macro->node->items; node != NULL; node = node->next)
        if (text_compare(node->name, name) == 0)
            return 0;
    if (text_compare(run->names->caller, name) == 0)
        return template_run_set(run, scope, run->names->caller, entry->item);
    return template_run_fail(run, "macro '%.*s' takes no keyword argument '%.*s'",
                             template_run_shown(macro_name), macro_name.data,
                             template_run_shown(name), name.data);
}

static int bind(struct template_run *run, const struct template_macro *macro,
                const struct template_arguments *arguments, struct template_scope *scope) {
    struct text macro_name = macro->node->name;
    size_t num = 0;
    for (const struct template_node *node = macro->node->items; node != NULL; node = node->next)
        if (bind_parameter(run, node, num++, arguments, scope) != 0)
            return -1;
    if (arguments->num > num)
        return template_run_fail(run, "macro '%.*s' takes not more than %zu argument(s)",
                                 template_run_shown(macro_name), macro_name.data, num);
    for (size_t i = 0; arguments->keywords != NULL && i < arguments->keywords->length; i++)
        if (bind_keyword(run, macro, &arguments->keywords->entries[i], scope) != 0)
            return -1;
    return 0;
}

int template_statement_call(struct template_run *run, const struct template_macro *macro,
                            const struct template_arguments *arguments,
                            struct template_value *out) {
    struct template_scope *scope = template_run_scope(run, macro->scope), *outer = run->scope;
    if (scope == NULL)
        return -1;
    run->scope = scope;
    int status = bind(run, macro, arguments, scope);
    if (status == 0)
        status = template_statement_capture(run, macro->node->body, scope, out);
    run->scope = outer;
    return status;
}
