#include "models/chat_template/template_builtins.h"

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
