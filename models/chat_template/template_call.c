#include "models/chat_template/template_run.h"
#include "models/chat_template/template_type.h"

/* Takes the next name off a list with spaces between them; false: none is left. */
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
                : template_value_map_find_text(run->arena, arguments->keywords, name);
        num_keywords += keyword != NULL;
        if (keyword != NULL && num < arguments->num)
            return template_run_fail(run, "%s() got multiple values for argument '%.*s'",
                                     function->name, template_run_shown(name), name.data);
        call->given[num] = (struct template_value){.kind = TEMPLATE_MISSING};
        if (num < arguments->num)
            call->given[num] = arguments->items[num];
        else if (keyword != NULL)
            call->given[num] = *keyword;
        else if ((int)num < function->num_required)
            return template_run_fail(run, "%s() is missing its argument '%.*s'", function->name,
                                     template_run_shown(name), name.data);
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
    struct template_call call = {
        .self = self, .variant = function->variant, .arguments = arguments};
    if (function->body == NULL)
        return template_run_fail(run, "%s is only for other engines", function->name);
    if (function->parameters != NULL && bind(run, function, arguments, &call) != 0)
        return -1;
    size_t bytes = self != NULL && self->kind == TEMPLATE_STRING ? self->string.length : 0;
    return template_run_charge_text(run, bytes) != 0 ? -1 : function->body(run, &call, out);
}

int template_call_filter(struct template_run *run, struct text name,
                         const struct template_value *self,
                         const struct template_arguments *arguments, struct template_value *out) {
    const struct template_function *filter = template_builtins_find(run->builtins->filters, name);
    if (filter == NULL)
        return template_run_fail(run, "no filter named '%.*s'", template_run_shown(name),
                                 name.data);
    return template_call_function(run, filter, self, arguments, out);
}

int template_call_test(struct template_run *run, struct text name,
                       const struct template_value *self,
                       const struct template_arguments *arguments, bool *out) {
    const struct template_function *test = template_builtins_find(run->builtins->tests, name);
    struct template_value result;
    if (test == NULL)
        return template_run_fail(run, "no test named '%.*s'", template_run_shown(name), name.data);
    if (template_call_function(run, test, self, arguments, &result) != 0)
        return -1;
    *out = template_type_is_true(&result);
    return 0;
}

/* --- Reading arguments --- */

int template_call_get_int(struct template_run *run, const struct template_call *call, int index,
                          int64_t fallback, int64_t *out) {
    const struct template_value *given = &call->given[index];
    *out = fallback;
    if (given->kind == TEMPLATE_MISSING || template_type_int(given, out))
        return 0;
    if (template_type_check_defined(run, given) != 0)
        return -1;
    return template_run_fail(run, "'%s' object cannot be interpreted as an integer",
                             template_type_name(given));
}

int template_call_get_string(struct template_run *run, const struct template_call *call, int index,
                             const char *fallback, struct template_value *out) {
    const struct template_value *given = &call->given[index];
    if (given->kind == TEMPLATE_MISSING) {
        *out = template_value_server(fallback);
        return 0;
    }
    if (template_type_check_defined(run, given) != 0)
        return -1;
    if (given->kind != TEMPLATE_STRING)
        return template_run_fail(run, "argument %d must be str, not %s", index + 1,
                                 template_type_name(given));
    *out = *given;
    return 0;
}

bool template_call_get_flag(const struct template_call *call, int index, bool fallback) {
    const struct template_value *given = &call->given[index];
    return given->kind == TEMPLATE_MISSING ? fallback : template_type_is_true(given);
}
