#include "models/chat_template/template_macro.h"

#include "models/chat_template/template_eval.h"
#include "models/chat_template/template_statement.h"

enum { MAX_NAME_SHOWN = 80 };

static int shown(struct text name) {
    return name.length < MAX_NAME_SHOWN ? (int)name.length : MAX_NAME_SHOWN;
}

static struct text macro_name(const struct template_macro *macro) {
    return macro->node->kind == NODE_MACRO ? macro->node->name : (struct text){"caller", 6};
}

/* What has no parameter, for the macro's `varargs` and `kwargs`. */
static int bind_rest(struct template_run *run, const struct template_arguments *arguments,
                     size_t num_parameters, struct template_mapping *keywords,
                     struct template_scope *scope) {
    struct template_value rest, named = {.kind = TEMPLATE_MAP, .mapping = keywords};
    size_t num = arguments->num > num_parameters ? arguments->num - num_parameters : 0;
    if (!template_data_items(run->arena, TEMPLATE_TUPLE,
                             arguments->items + (num > 0 ? num_parameters : 0), num, &rest))
        return template_run_fail_memory(run);
    return template_run_set(run, scope, run->names->varargs, rest) != 0
               ? -1
               : template_run_set(run, scope, run->names->kwargs, named);
}

/* The given value of a parameter, its default, or undefined. */
static int bind_parameter(struct template_run *run, const struct template_node *parameter,
                          size_t index, const struct template_arguments *arguments,
                          struct template_scope *scope, bool *out_named) {
    struct template_value value;
    const struct template_value *keyword =
        arguments->keywords == NULL
            ? NULL
            : template_mapping_find_text(run->arena, arguments->keywords, parameter->name);
    *out_named = index >= arguments->num && keyword != NULL;
    if (index < arguments->num)
        value = arguments->items[index];
    else if (keyword != NULL)
        value = *keyword;
    else if (parameter->left == NULL)
        value = template_data_undefined(parameter->name);
    else if (template_eval(run, parameter->left, &value) != 0)
        return -1;
    return template_run_set(run, scope, parameter->name, value);
}

static bool is_caller(const struct template_run *run, const struct template_value *key) {
    return key->string.length == run->names->caller.length &&
           memcmp(key->string.data, run->names->caller.data, key->string.length) == 0;
}

/* Keywords that no parameter takes, and the caller of a call block. */
static int bind_keywords(struct template_run *run, const struct template_macro *macro,
                         const struct template_arguments *arguments, struct template_scope *scope,
                         struct template_mapping **out) {
    struct template_value rest;
    if (!template_mapping_create(run->arena, TEMPLATE_MAP, &rest))
        return template_run_fail_memory(run);
    for (size_t i = 0; arguments->keywords != NULL && i < arguments->keywords->length; i++) {
        const struct template_entry *entry = &arguments->keywords->entries[i];
        const struct template_node *parameter = macro->node->items;
        while (parameter != NULL &&
               (parameter->name.length != entry->key.string.length ||
                memcmp(parameter->name.data, entry->key.string.data, parameter->name.length) != 0))
            parameter = parameter->next;
        if (parameter != NULL)
            continue;
        if (is_caller(run, &entry->key)) {
            if (template_run_set(run, scope, run->names->caller, entry->item) != 0)
                return -1;
        } else if (!template_mapping_set(run->arena, rest.mapping, &entry->key, entry->item)) {
            return template_run_fail_memory(run);
        }
    }
    *out = rest.mapping;
    return 0;
}

static int bind_macro(struct template_run *run, const struct template_macro *macro,
                      const struct template_arguments *arguments, struct template_scope *scope) {
    struct text name = macro_name(macro);
    struct template_mapping *rest = NULL;
    size_t num = 0;
    for (const struct template_node *node = macro->node->items; node != NULL; node = node->next) {
        bool named;
        if (bind_parameter(run, node, num++, arguments, scope, &named) != 0)
            return -1;
    }
    if (bind_keywords(run, macro, arguments, scope, &rest) != 0)
        return -1;
    if (arguments->num > num && !macro->node->flag)
        return template_run_fail(run, "macro '%.*s' takes not more than %zu argument(s)",
                                 shown(name), name.data, num);
    if (rest->length > 0 && !macro->node->flag)
        return template_run_fail(run, "macro '%.*s' takes no keyword argument '%.*s'", shown(name),
                                 name.data, shown(template_string_text(&rest->entries[0].key)),
                                 rest->entries[0].key.string.data);
    return macro->node->flag ? bind_rest(run, arguments, num, rest, scope) : 0;
}

int template_macro_call(struct template_run *run, const struct template_macro *macro,
                        const struct template_arguments *arguments, struct template_value *out) {
    struct template_scope *scope = template_run_scope(run, macro->scope), *outer = run->scope;
    if (scope == NULL)
        return -1;
    run->scope = scope;
    int status = bind_macro(run, macro, arguments, scope);
    if (status == 0)
        status = template_statement_capture(run, macro->node->body, scope, out);
    run->scope = outer;
    return status;
}
