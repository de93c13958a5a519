/* Names are interned when the template is parsed, so a look-up compares pointers. What no scope of
 * the template has set is looked for in the request's variables, and then among the functions. */
#include "models/chat_template/template_call.h"
#include "models/chat_template/template_run.h"

struct template_value template_scope_undefined(struct text name) {
    struct template_value value = template_data_text(name, TEMPLATE_ORIGIN_SERVER);
    value.kind = TEMPLATE_UNDEFINED;
    value.origin = TEMPLATE_MISSING;
    return value;
}

struct template_scope *template_scope_create(struct template_run *run,
                                             struct template_scope *parent) {
    struct template_scope *scope = template_arena_alloc(run->arena, sizeof(*scope));
    if (scope == NULL) {
        template_run_fail_memory(run);
        return NULL;
    }
    *scope = (struct template_scope){.parent = parent};
    return scope;
}

static struct template_binding *find_binding(const struct template_scope *scope, const char *name,
                                             size_t *seen) {
    struct template_binding *binding = scope->bindings;
    for (; binding != NULL && binding->name != name; binding = binding->next)
        ++*seen;
    return binding;
}

int template_scope_set(struct template_run *run, struct template_scope *scope, struct text name,
                       struct template_value value) {
    size_t seen = 0;
    struct template_binding *binding = find_binding(scope, name.data, &seen);
    if (template_run_charge(run, seen / 16) != 0)
        return -1;
    if (binding != NULL) {
        binding->value = value;
        return 0;
    }
    binding = template_arena_alloc(run->arena, sizeof(*binding));
    if (binding == NULL)
        return template_run_fail_memory(run);
    *binding = (struct template_binding){name.data, value, scope->bindings};
    scope->bindings = binding;
    return 0;
}

int template_scope_find(struct template_run *run, struct text name, struct template_value *out) {
    const struct template_function *function;
    size_t seen = 0;
    for (const struct template_scope *scope = run->scope; scope != NULL; scope = scope->parent) {
        const struct template_binding *binding = find_binding(scope, name.data, &seen);
        if (binding != NULL && binding->value.kind != TEMPLATE_MISSING) {
            *out = binding->value;
            return template_run_charge(run, seen / 16);
        }
        seen++;
    }
    const struct template_value *variable =
        template_mapping_find_text(run->arena, run->variables->mapping, name);
    if (variable != NULL)
        *out = *variable;
    else if ((function = template_functions_find(name)) != NULL)
        *out = (struct template_value){.kind = TEMPLATE_FUNCTION, .function = function};
    else
        *out = template_scope_undefined(name);
    return template_run_charge(run, seen / 16);
}
