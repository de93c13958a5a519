/* The filters that take any value. */
#include "models/chat_template/template_attribute.h"
#include "models/chat_template/template_call.h"
#include "models/chat_template/template_library.h"
#include "models/chat_template/template_repr.h"
#include "models/chat_template/template_type.h"

#define FILTER(name)                                                                               \
    static int name(struct template_run *run, const struct template_call *call,                    \
                    struct template_value *out)

FILTER(fall_back) {
    const struct template_value *value = call->self;
    bool replaced = value->kind == TEMPLATE_UNDEFINED ||
                    (template_call_get_flag(call, 1, false) && !template_type_is_true(value));
    *out = !replaced                                 ? *value
           : call->given[0].kind == TEMPLATE_MISSING ? template_data_server("")
                                                     : call->given[0];
    return 0;
}

FILTER(length) {
    int64_t num = template_type_length(call->self);
    if (num < 0)
        return template_run_fail(run, "object of type '%s' has no len()",
                                 template_type_name(call->self));
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

const struct template_function template_general_filters[] = {
    {"default", fall_back, "default_value boolean", 0},
    {"d", fall_back, "default_value boolean", 0},
    {"length", length, "", 0},
    {"count", length, "", 0},
    {"string", string, "", 0},
    {"safe", safe, "", 0},
    {"from_json", NULL, NULL, 0},
    {"fromjson", NULL, NULL, 0},
    {NULL, NULL, NULL, 0},
};
