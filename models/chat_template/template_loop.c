#include "models/chat_template/template_call.h"

struct template_loop {
    const struct template_node *node;
    struct template_scope *outer; /* in which the loop stands */
    struct template_sequence items;
    size_t index;                    /* of the current one */
    int depth;                       /* of a recursive loop: how many of it are around this one */
    struct template_value last_seen; /* by loop.changed(): a list of its arguments */
};

/* The items that pass the loop's `if`, which sees the loop's targets alone. */
static int filter_items(struct template_run *run, const struct template_node *node,
                        const struct template_sequence *items, struct template_sequence *out) {
    struct template_scope *outer = run->scope, *scope = template_scope_create(run, outer);
    struct template_sequence passed = {0};
    int status = scope == NULL ? -1 : 0;
    run->scope = scope;
    for (size_t i = 0; status == 0 && i < items->length; i++) {
        struct template_value passes;
        status = template_statement_assign(run, node->left, items->items[i]);
        if (status == 0)
            status = template_eval(run, node->other, &passes);
        if (status == 0 && template_truth_is_true(&passes) &&
            !template_data_append(run->arena, &passed, items->items[i]))
            status = template_run_fail_memory(run);
    }
    run->scope = outer;
    *out = passed;
    return status;
}

/* What the body sets lives for one round. */
static void forget_bindings(struct template_scope *scope) {
    for (struct template_binding *binding = scope->bindings; binding != NULL;
         binding = binding->next)
        binding->value.kind = TEMPLATE_MISSING;
}

static int run_rounds(struct template_run *run, const struct template_node *node,
                      struct template_loop *loop) {
    struct template_value value = {.kind = TEMPLATE_LOOP, .loop = loop};
    enum template_flow flow = TEMPLATE_FLOW_END;
    for (; flow != TEMPLATE_FLOW_BREAK && loop->index < loop->items.length; loop->index++) {
        forget_bindings(run->scope);
        if (template_run_charge(run, 1) != 0 ||
            template_statement_assign(run, node->left, loop->items.items[loop->index]) != 0 ||
            template_scope_set(run, run->scope, run->names->loop, value) != 0 ||
            template_statement_run(run, node->body, &flow) != 0)
            return -1;
    }
    return 0;
}

static int run_else(struct template_run *run, const struct template_node *node) {
    enum template_flow flow;
    return template_statement_run(run, node->orelse, &flow);
}

/* The loop over a value's items, in scopes of its own. */
static int run_over(struct template_run *run, const struct template_node *node,
                    const struct template_value *value, int depth) {
    struct template_loop *loop = template_arena_alloc(run->arena, sizeof(*loop));
    struct template_scope *outer = run->scope, *scope = template_scope_create(run, outer);
    if (loop == NULL || scope == NULL)
        return template_run_fail_memory(run);
    *loop = (struct template_loop){.node = node, .outer = outer, .depth = depth};
    if (template_truth_items(run, value, &loop->items) != 0 ||
        (node->other != NULL && filter_items(run, node, &loop->items, &loop->items) != 0))
        return -1;
    run->scope = scope;
    int status = loop->items.length > 0 ? run_rounds(run, node, loop) : run_else(run, node);
    run->scope = outer;
    return status;
}

int template_loop_run(struct template_run *run, const struct template_node *node) {
    struct template_value value;
    if (template_eval(run, node->right, &value) != 0)
        return -1;
    run->line = node->line;
    return run_over(run, node, &value, 0);
}

int template_loop_call(struct template_run *run, struct template_loop *loop,
                       const struct template_value *items, struct template_value *out) {
    struct template_builder builder = {.arena = run->arena}, *outer_output = run->output;
    struct template_scope *outer_scope = run->scope;
    if (!loop->node->flag)
        return template_run_fail(run, "the loop is not recursive: it needs the keyword");
    run->output = &builder;
    run->scope = loop->outer;
    int status = run_over(run, loop->node, items, loop->depth + 1);
    run->output = outer_output;
    run->scope = outer_scope;
    return status != 0 ? -1 : template_run_finish(run, &builder, out);
}

/* --- The variable `loop` -----------------------------------------------------------------------
 */

static int cycle(struct template_run *run, const struct template_call *call,
                 struct template_value *out) {
    size_t num = call->arguments->num;
    if (num == 0)
        return template_run_fail(run, "no items for cycling given");
    *out = call->arguments->items[call->self->loop->index % num];
    return 0;
}

static int changed(struct template_run *run, const struct template_call *call,
                   struct template_value *out) {
    struct template_loop *loop = call->self->loop;
    struct template_value seen;
    bool same = false;
    if (!template_data_items(run->arena, TEMPLATE_TUPLE, call->arguments->items,
                             call->arguments->num, &seen))
        return template_run_fail_memory(run);
    if (loop->last_seen.kind != TEMPLATE_MISSING &&
        template_truth_equal(run, &loop->last_seen, &seen, &same) != 0)
        return -1;
    loop->last_seen = seen;
    *out = template_data_bool(!same);
    return 0;
}

static int find_method(struct template_run *run, const struct template_loop *loop, struct text name,
                       struct template_value *out) {
    static const struct template_function methods[] = {
        {"cycle", cycle, NULL, 0}, {"changed", changed, NULL, 0}, {NULL, NULL, NULL, 0}};
    const struct template_function *function = template_call_find(methods, name);
    *out = template_scope_undefined(name);
    out->origin = TEMPLATE_LOOP;
    if (function == NULL)
        return 0;
    struct template_method *method = template_arena_alloc(run->arena, sizeof(*method));
    if (method == NULL)
        return template_run_fail_memory(run);
    *method = (struct template_method){
        {.kind = TEMPLATE_LOOP, .loop = (struct template_loop *)loop}, function};
    *out = (struct template_value){.kind = TEMPLATE_METHOD, .method = method};
    return 0;
}

static bool find_number(const struct template_loop *loop, struct text name, int64_t *out) {
    int64_t index = (int64_t)loop->index, length = (int64_t)loop->items.length;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", index + 1},         {"index0", index},
                   {"revindex", length - index}, {"revindex0", length - index - 1},
                   {"length", length},           {"depth", loop->depth + 1},
                   {"depth0", loop->depth}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strlen(numbers[i].name) == name.length &&
            memcmp(numbers[i].name, name.data, name.length) == 0) {
            *out = numbers[i].value;
            return true;
        }
    return false;
}

/* The item before or after the current one, undefined where there is none. */
static struct template_value neighbour(const struct template_loop *loop, bool is_next,
                                       struct text name) {
    if (is_next ? loop->index + 1 < loop->items.length : loop->index > 0)
        return loop->items.items[is_next ? loop->index + 1 : loop->index - 1];
    return template_scope_undefined(name);
}

int template_loop_attribute(struct template_run *run, const struct template_loop *loop,
                            struct text name, struct template_value *out) {
    int64_t number;
    if (find_number(loop, name, &number))
        *out = template_data_int(number);
    else if (name.length == 5 && memcmp(name.data, "first", 5) == 0)
        *out = template_data_bool(loop->index == 0);
    else if (name.length == 4 && memcmp(name.data, "last", 4) == 0)
        *out = template_data_bool(loop->index + 1 == loop->items.length);
    else if (name.length == 8 &&
             (memcmp(name.data, "nextitem", 8) == 0 || memcmp(name.data, "previtem", 8) == 0))
        *out = neighbour(loop, name.data[0] == 'n', name);
    else
        return find_method(run, loop, name, out);
    return 0;
}
