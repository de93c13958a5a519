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

/* The given value of a parameter, its default, or undefined. */
static int bind_parameter(struct template_run *run, const struct template_node *parameter,
                          size_t index, const struct template_arguments *arguments,
                          struct template_scope *scope) {
    struct template_value value;
    const struct template_value *keyword =
        arguments->keywords == NULL
            ? NULL
            : template_mapping_find_text(run->arena, arguments->keywords, parameter->name);
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

static bool is_name(struct text name, const struct template_value *key) {
    return key->string.length == name.length &&
           memcmp(key->string.data, name.data, name.length) == 0;
}

/* What no parameter takes is an error, but for the caller of a call block. */
static int bind_keyword(struct template_run *run, const struct template_macro *macro,
                        const struct template_entry *entry, struct template_scope *scope) {
    struct text macro_text = macro_name(macro), name = template_string_text(&entry->key);
    const struct template_node *parameter = macro->node->items;
    while (parameter != NULL && !is_name(parameter->name, &entry->key))
        parameter = parameter->next;
    if (parameter != NULL)
        return 0;
    if (is_name(run->names->caller, &entry->key))
        return template_run_set(run, scope, run->names->caller, entry->item);
    return template_run_fail(run, "macro '%.*s' takes no keyword argument '%.*s'",
                             shown(macro_text), macro_text.data, shown(name), name.data);
}

static int bind(struct template_run *run, const struct template_macro *macro,
                const struct template_arguments *arguments, struct template_scope *scope) {
    struct text name = macro_name(macro);
    size_t num = 0;
    for (const struct template_node *node = macro->node->items; node != NULL; node = node->next)
        if (bind_parameter(run, node, num++, arguments, scope) != 0)
            return -1;
    if (arguments->num > num)
        return template_run_fail(run, "macro '%.*s' takes not more than %zu argument(s)",
                                 shown(name), name.data, num);
    for (size_t i = 0; arguments->keywords != NULL && i < arguments->keywords->length; i++)
        if (bind_keyword(run, macro, &arguments->keywords->entries[i], scope) != 0)
            return -1;
    return 0;
}

int template_macro_call(struct template_run *run, const struct template_macro *macro,
                        const struct template_arguments *arguments, struct template_value *out) {
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
