/* Private to chat_template/: what can be called, and how arguments get there. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CALL_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CALL_H

#include "models/chat_template/template_run.h"

enum { TEMPLATE_MAX_PARAMETERS = 5 };

/* What a call hands over. */
struct template_arguments {
    struct template_value *items; /* by position */
    size_t num;
    struct template_mapping *keywords; /* NULL: none */
};

/* One call of a function, filter, test or method. */
struct template_call {
    /* What a filter, test or method works on. */
    const struct template_value *self;
    /* By parameter; TEMPLATE_MISSING for one that is left out. */
    struct template_value given[TEMPLATE_MAX_PARAMETERS];
    /* All of them, for a function that takes any number. */
    const struct template_arguments *arguments;
};

typedef int (*template_body)(struct template_run *run, const struct template_call *call,
                             struct template_value *out);

struct template_function {
    const char *name;
    template_body body;
    const char *parameters; /* names with spaces between them; NULL: takes what it is given */
    int num_required;
};

struct template_macro {
    const struct template_node *node; /* MACRO or CALL_BLOCK */
    struct template_scope *scope;     /* in which it was defined */
};

struct template_method {
    struct template_value self;
    const struct template_function *function;
};

struct template_joiner {
    struct template_value separator;
    bool used;
};

/* Calls whatever can be called. */
int template_call_value(struct template_run *run, const struct template_value *callee,
                        const struct template_arguments *arguments, struct template_value *out);
int template_call_function(struct template_run *run, const struct template_function *function,
                           const struct template_value *self,
                           const struct template_arguments *arguments, struct template_value *out);
/* Evaluates arguments as they are written. */
int template_call_arguments(struct template_run *run, const struct template_node *items,
                            struct template_arguments *out);

/* NULL: there is none of that name. */
const struct template_function *template_functions_find(struct text name);
const struct template_function *template_filters_find(struct text name);
const struct template_function *template_tests_find(struct text name);
/* Of a value of that kind. */
const struct template_function *template_methods_find(enum template_kind kind, struct text name);
/* Whether Python's type has that method, but a template may not use it: it would change the value.
 */
bool template_methods_is_forbidden(enum template_kind kind, struct text name);
/* In a table that ends with a NULL name. */
const struct template_function *template_call_find(const struct template_function *table,
                                                   struct text name);
/* Fails with the name of the filter or test. */
int template_call_filter(struct template_run *run, struct text name,
                         const struct template_value *self,
                         const struct template_arguments *arguments, struct template_value *out);
int template_call_test(struct template_run *run, struct text name,
                       const struct template_value *self,
                       const struct template_arguments *arguments, bool *out);

/* Readers of call->given: the fallback where it is missing; a wrong type is an error. */
int template_call_get_int(struct template_run *run, const struct template_call *call, int index,
                          int64_t fallback, int64_t *out);
int template_call_get_string(struct template_run *run, const struct template_call *call, int index,
                             const char *fallback, struct template_value *out);
bool template_call_get_flag(const struct template_call *call, int index, bool fallback);

#endif
