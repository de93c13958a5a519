/* The filters that take any value. */
#include "models/chat_template/template_filters.h"

#include "models/chat_template/template_json.h"

#define FILTER(name)                                                                               \
    static int name(struct template_run *run, const struct template_call *call,                    \
                    struct template_value *out)

FILTER(fall_back) {
    const struct template_value *value = call->self;
    bool replaced = value->kind == TEMPLATE_UNDEFINED ||
                    (template_call_get_flag(call, 1, false) && !template_truth_is_true(value));
    *out = !replaced                                 ? *value
           : call->given[0].kind == TEMPLATE_MISSING ? template_data_server("")
                                                     : call->given[0];
    return 0;
}

FILTER(length) {
    int64_t num = template_truth_length(call->self);
    if (num < 0)
        return template_run_fail(run, "object of type '%s' has no len()",
                                 template_truth_type(call->self));
    *out = template_data_int(num);
    return 0;
}

FILTER(string) {
    return template_repr_string(run, call->self, out);
}

FILTER(safe) {
    if (template_repr_string(run, call->self, out) != 0)
        return -1;
    out->is_markup = true;
    return 0;
}

/* Attributes alone: no keys of maps. */
FILTER(attribute) {
    struct template_value name, self = *call->self;
    if (template_call_get_string(run, call, 0, "", &name) != 0)
        return -1;
    if (template_attribute_get(run, &self, template_string_text(&name), out) != 0)
        return -1;
    if (self.kind == TEMPLATE_MAP && out->kind != TEMPLATE_METHOD)
        *out = template_scope_undefined(template_string_text(&name));
    return 0;
}

const struct template_function *template_filters_find(struct text name) {
    static const struct template_function filters[] = {
        {"tojson", template_json_filter, "ensure_ascii indent separators sort_keys", 0},
        {"default", fall_back, "default_value boolean", 0},
        {"d", fall_back, "default_value boolean", 0},
        {"length", length, "", 0},
        {"count", length, "", 0},
        {"string", string, "", 0},
        {"safe", safe, "", 0},
        {"attr", attribute, "name", 1},
        {NULL, NULL, NULL, 0},
    };
    const struct template_function *filter = template_call_find(filters, name);
    if (filter == NULL)
        filter = template_text_filters_find(name);
    return filter != NULL ? filter : template_item_filters_find(name);
}
