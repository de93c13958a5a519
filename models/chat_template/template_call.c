/* Arguments are bound as Python does it: by position, then by name, each parameter once. */
#include "models/chat_template/template_call.h"

#include "models/chat_template/chat_template.h"
#include "models/chat_template/template_lexer.h"

enum { MAX_NAME_SHOWN = 80 };

static int shown(struct text name) {
    return name.length < MAX_NAME_SHOWN ? (int)name.length : MAX_NAME_SHOWN;
}

/* --- Evaluating arguments ----------------------------------------------------------------------
 */

static int add_keyword(struct template_run *run, struct template_arguments *arguments,
                       const struct template_value *name, struct template_value value) {
    struct template_value made;
    if (arguments->keywords == NULL) {
        if (!template_mapping_create(run->arena, TEMPLATE_MAP, &made))
            return template_run_fail_memory(run);
        arguments->keywords = made.mapping;
    }
    return template_mapping_set(run->arena, arguments->keywords, name, value)
               ? 0
               : template_run_fail_memory(run);
}

static int add_keywords(struct template_run *run, struct template_arguments *arguments,
                        const struct template_value *map) {
    if (map->kind != TEMPLATE_MAP)
        return template_run_fail(run, "argument after ** must be a mapping, not %s",
                                 template_truth_type(map));
    for (size_t i = 0; i < map->mapping->length; i++) {
        const struct template_entry *entry = &map->mapping->entries[i];
        if (entry->key.kind != TEMPLATE_STRING)
            return template_run_fail(run, "keywords must be strings");
        if (add_keyword(run, arguments, &entry->key, entry->item) != 0)
            return -1;
    }
    return 0;
}

static int add_argument(struct template_run *run, struct template_sequence *items,
                        struct template_arguments *arguments, const struct template_node *node) {
    struct template_value value;
    struct template_sequence more;
    if (template_eval(run, node->left, &value) != 0)
        return -1;
    if (node->name.length > 0) {
        struct template_value name = template_data_text(node->name, TEMPLATE_ORIGIN_SERVER);
        return add_keyword(run, arguments, &name, value);
    }
    if (node->op == OPERATOR_POWER)
        return add_keywords(run, arguments, &value);
    if (node->op != '*')
        return template_data_append(run->arena, items, value) ? 0 : template_run_fail_memory(run);
    if (template_truth_items(run, &value, &more) != 0)
        return -1;
    for (size_t i = 0; i < more.length; i++)
        if (!template_data_append(run->arena, items, more.items[i]))
            return template_run_fail_memory(run);
    return 0;
}

int template_call_arguments(struct template_run *run, const struct template_node *nodes,
                            struct template_arguments *out) {
    struct template_sequence items = {0};
    *out = (struct template_arguments){0};
    for (const struct template_node *node = nodes; node != NULL; node = node->next)
        if (add_argument(run, &items, out, node) != 0)
            return -1;
    out->items = items.items;
    out->num = items.length;
    return 0;
}

/* --- Functions ---------------------------------------------------------------------------------
 */

/* The next name of a list with spaces between them, off the list; false: none is left. */
static bool next_parameter(const char **list, struct text *out) {
    size_t length = strcspn(*list, " ");
    *out = (struct text){*list, length};
    *list += length + ((*list)[length] == ' ');
    return length > 0;
}

static int bind(struct template_run *run, const struct template_function *function,
                const struct template_arguments *arguments, struct template_call *call) {
    const char *list = function->parameters;
    struct text name;
    size_t num = 0, num_keywords = 0;
    for (; next_parameter(&list, &name); num++) {
        const struct template_value *keyword =
            arguments->keywords == NULL
                ? NULL
                : template_mapping_find_text(run->arena, arguments->keywords, name);
        num_keywords += keyword != NULL;
        if (keyword != NULL && num < arguments->num)
            return template_run_fail(run, "%s() got multiple values for argument '%.*s'",
                                     function->name, shown(name), name.data);
        call->given[num] = (struct template_value){.kind = TEMPLATE_MISSING};
        if (num < arguments->num)
            call->given[num] = arguments->items[num];
        else if (keyword != NULL)
            call->given[num] = *keyword;
        else if ((int)num < function->num_required)
            return template_run_fail(run, "%s() is missing its argument '%.*s'", function->name,
                                     shown(name), name.data);
    }
    if (arguments->num > num)
        return template_run_fail(run, "%s() takes at most %zu arguments, not %zu", function->name,
                                 num, arguments->num);
    if (arguments->keywords != NULL && num_keywords < arguments->keywords->length)
        return template_run_fail(run, "%s() got an unexpected keyword argument", function->name);
    return 0;
}

int template_call_function(struct template_run *run, const struct template_function *function,
                           const struct template_value *self,
                           const struct template_arguments *arguments, struct template_value *out) {
    struct template_call call = {.self = self, .arguments = arguments};
    if (function->parameters != NULL && bind(run, function, arguments, &call) != 0)
        return -1;
    size_t bytes = self != NULL && self->kind == TEMPLATE_STRING ? self->string.length : 0;
    return template_run_charge_text(run, bytes) != 0 ? -1 : function->body(run, &call, out);
}

/* --- Macros ------------------------------------------------------------------------------------
 */

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
    return template_scope_set(run, scope, run->names->varargs, rest) != 0
               ? -1
               : template_scope_set(run, scope, run->names->kwargs, named);
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
        value = template_scope_undefined(parameter->name);
    else if (template_eval(run, parameter->left, &value) != 0)
        return -1;
    return template_scope_set(run, scope, parameter->name, value);
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
            if (template_scope_set(run, scope, run->names->caller, entry->item) != 0)
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

static int call_macro(struct template_run *run, const struct template_macro *macro,
                      const struct template_arguments *arguments, struct template_value *out) {
    struct template_scope *scope = template_scope_create(run, macro->scope), *outer = run->scope;
    if (scope == NULL)
        return -1;
    run->scope = scope;
    int status = bind_macro(run, macro, arguments, scope);
    if (status == 0)
        status = template_statement_capture(run, macro->node->body, scope, out);
    run->scope = outer;
    return status;
}

/* --- Whatever can be called --------------------------------------------------------------------
 */

static int call_joiner(struct template_joiner *joiner, struct template_value *out) {
    *out = joiner->used ? joiner->separator : template_data_server("");
    joiner->used = true;
    return 0;
}

static int call_kind(struct template_run *run, const struct template_value *callee,
                     const struct template_arguments *arguments, struct template_value *out) {
    switch (callee->kind) {
    case TEMPLATE_FUNCTION:
        return template_call_function(run, callee->function, NULL, arguments, out);
    case TEMPLATE_METHOD:
        return template_call_function(run, callee->method->function, &callee->method->self,
                                      arguments, out);
    case TEMPLATE_MACRO:
        return call_macro(run, callee->macro, arguments, out);
    case TEMPLATE_LOOP:
        if (arguments->num != 1 || arguments->keywords != NULL)
            return template_run_fail(run, "loop() takes 1 argument");
        return template_loop_call(run, callee->loop, &arguments->items[0], out);
    case TEMPLATE_JOINER:
        return call_joiner(callee->joiner, out);
    default:
        if (template_truth_check_defined(run, callee) != 0)
            return -1;
        return template_run_fail(run, "'%s' object is not callable", template_truth_type(callee));
    }
}

int template_call_value(struct template_run *run, const struct template_value *callee,
                        const struct template_arguments *arguments, struct template_value *out) {
    if (run->num_calls >= CHAT_TEMPLATE_MAX_DEPTH)
        return template_run_fail(run, "more than %d calls within another", CHAT_TEMPLATE_MAX_DEPTH);
    run->num_calls++;
    int status = call_kind(run, callee, arguments, out);
    run->num_calls--;
    return status;
}

const struct template_function *template_call_find(const struct template_function *table,
                                                   struct text name) {
    for (; table->name != NULL; table++)
        if (strlen(table->name) == name.length && memcmp(table->name, name.data, name.length) == 0)
            return table;
    return NULL;
}

int template_call_filter(struct template_run *run, struct text name,
                         const struct template_value *self,
                         const struct template_arguments *arguments, struct template_value *out) {
    const struct template_function *filter = template_filters_find(name);
    if (filter == NULL)
        return template_run_fail(run, "no filter named '%.*s'", shown(name), name.data);
    return template_call_function(run, filter, self, arguments, out);
}

int template_call_test(struct template_run *run, struct text name,
                       const struct template_value *self,
                       const struct template_arguments *arguments, bool *out) {
    const struct template_function *test = template_tests_find(name);
    struct template_value result;
    if (test == NULL)
        return template_run_fail(run, "no test named '%.*s'", shown(name), name.data);
    if (template_call_function(run, test, self, arguments, &result) != 0)
        return -1;
    *out = template_truth_is_true(&result);
    return 0;
}

/* --- Reading arguments -------------------------------------------------------------------------
 */

int template_call_get_int(struct template_run *run, const struct template_call *call, int index,
                          int64_t fallback, int64_t *out) {
    const struct template_value *given = &call->given[index];
    *out = fallback;
    if (given->kind == TEMPLATE_MISSING || template_truth_int(given, out))
        return 0;
    if (template_truth_check_defined(run, given) != 0)
        return -1;
    return template_run_fail(run, "'%s' object cannot be interpreted as an integer",
                             template_truth_type(given));
}

int template_call_get_string(struct template_run *run, const struct template_call *call, int index,
                             const char *fallback, struct template_value *out) {
    const struct template_value *given = &call->given[index];
    if (given->kind == TEMPLATE_MISSING) {
        *out = template_data_server(fallback);
        return 0;
    }
    if (template_truth_check_defined(run, given) != 0)
        return -1;
    if (given->kind != TEMPLATE_STRING)
        return template_run_fail(run, "argument %d must be str, not %s", index + 1,
                                 template_truth_type(given));
    *out = *given;
    return 0;
}

bool template_call_get_flag(const struct template_call *call, int index, bool fallback) {
    const struct template_value *given = &call->given[index];
    return given->kind == TEMPLATE_MISSING ? fallback : template_truth_is_true(given);
}
