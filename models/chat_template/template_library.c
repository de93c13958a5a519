#include "models/chat_template/template_library.h"

static const struct template_function *const filters[] = {template_filters, template_item_filters,
                                                          template_json_filters, NULL};
static const struct template_function *const tests[] = {template_tests, NULL};
static const struct template_function *const functions[] = {template_functions, NULL};

static const char *const refused_of_maps[] = {"clear",      "pop",    "popitem",
                                              "setdefault", "update", NULL};
static const char *const refused_of_lists[] = {"append", "clear",  "pop",    "reverse", "insert",
                                               "sort",   "extend", "remove", NULL};

static const struct template_methods methods[] = {
    {TEMPLATE_STRING, template_string_methods, NULL},
    {TEMPLATE_MAP, template_map_methods, refused_of_maps},
    {TEMPLATE_LIST, NULL, refused_of_lists},
    {TEMPLATE_LOOP, template_loop_methods, NULL},
    {TEMPLATE_MISSING, NULL, NULL},
};

const struct template_builtins template_library = {filters, tests, functions, methods};
