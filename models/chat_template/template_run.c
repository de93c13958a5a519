#include "models/chat_template/template_run.h"

#include "config/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

/* A cut message must not end within a character, and one of a template may have several lines. */
int template_run_fail(struct template_run *run, const char *format, ...) {
    char text[sizeof(run->err->message) - 32];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    int length = (int)utf8_valid_prefix(text, strlen(text));
    for (int i = 0; i < length; i++)
        text[i] = text[i] == '\n' ? ' ' : text[i];
    return error_set(run->err, ERROR_SYNTAX, "line %d: %.*s", run->line, length, text);
}

int template_run_fail_memory(struct template_run *run) {
    if (template_arena_is_full(run->arena))
        return template_run_fail(run, "the template's values and output need more than %zu bytes",
                                 template_arena_max_bytes(run->arena));
    return error_set(run->err, ERROR_MEMORY, "no memory to apply the chat template");
}

int template_run_charge(struct template_run *run, size_t units) {
    if (units > (size_t)run->steps) {
        run->steps = 0;
        return template_run_fail(run, "the template takes more steps than are allowed");
    }
    run->steps -= (int64_t)units;
    return 0;
}

int template_run_charge_text(struct template_run *run, size_t bytes) {
    enum { BYTES_PER_STEP = 64 };
    return template_run_charge(run, bytes / BYTES_PER_STEP);
}

int template_run_finish(struct template_run *run, struct template_builder *builder,
                        struct template_value *out) {
    return template_builder_finish(builder, out) ? 0 : template_run_fail_memory(run);
}

int template_run_copy(struct template_run *run, struct text text, struct template_value *out) {
    char *copy = template_arena_alloc_text(run->arena, text.length);
    if (copy == NULL)
        return template_run_fail_memory(run);
    char *end = copy;
    *out = template_value_text(text_copy(text, &end), TEMPLATE_ORIGIN_SERVER);
    return 0;
}

/* --- Variables --- */

struct template_scope *template_run_scope(struct template_run *run, struct template_scope *parent) {
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

int template_run_set(struct template_run *run, struct template_scope *scope, struct text name,
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

int template_run_find(struct template_run *run, struct text name, struct template_value *out) {
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
        template_value_map_find_text(run->arena, run->variables->mapping, name);
    if (variable != NULL)
        *out = *variable;
    else if ((function = template_builtins_find(run->builtins->functions, name)) != NULL)
        *out = (struct template_value){.kind = TEMPLATE_FUNCTION, .function = function};
    else
        *out = template_value_undefined(name);
    return template_run_charge(run, seen / 16);
}

/* --- Builtins --- */

static const struct template_function *find_in(const struct template_function *table,
                                               struct text name) {
    for (; table->name != NULL; table++)
        if (text_is(name, table->name))
            return table;
    return NULL;
}

const struct template_function *template_builtins_find(const struct template_function *const *list,
                                                       struct text name) {
    const struct template_function *found = NULL;
    for (; found == NULL && *list != NULL; list++)
        found = find_in(*list, name);
    return found;
}

static const struct template_methods *methods_of(const struct template_builtins *builtins,
                                                 enum template_kind kind) {
    const struct template_methods *methods = builtins->methods;
    while (methods->kind != kind && methods->kind != TEMPLATE_MISSING)
        methods++;
    return methods;
}

const struct template_function *template_builtins_method(const struct template_builtins *builtins,
                                                         enum template_kind kind,
                                                         struct text name) {
    const struct template_methods *methods = methods_of(builtins, kind);
    return methods->table == NULL ? NULL : find_in(methods->table, name);
}

static bool is_refused(const struct template_methods *methods, struct text name) {
    const char *const *refused = methods->refused;
    for (; refused != NULL && *refused != NULL; refused++)
        if (text_is(name, *refused))
            return true;
    return false;
}

bool template_builtins_is_refused(const struct template_builtins *builtins, enum template_kind kind,
                                  struct text name) {
    return is_refused(methods_of(builtins, kind), name);
}

bool template_builtins_is_method(const struct template_builtins *builtins, struct text name) {
    const struct template_methods *methods = builtins->methods;
    for (; methods->kind != TEMPLATE_MISSING; methods++)
        if ((methods->table != NULL && find_in(methods->table, name) != NULL) ||
            is_refused(methods, name))
            return true;
    return false;
}
