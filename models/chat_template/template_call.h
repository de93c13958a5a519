/* Private to chat_template/: calls of filters, tests, functions and methods: how arguments reach
 * their parameters, and how a body reads them. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CALL_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_CALL_H

#include "models/chat_template/template_builtins.h"
#include "models/chat_template/template_run.h"

enum { TEMPLATE_MAX_PARAMETERS = 5 };

/* The arguments of a call, evaluated. */
struct template_arguments {
    struct template_value *items; /* by position */
    size_t num;
    struct template_mapping *keywords; /* NULL: none */
};

/* One call of a function, filter, test or method. */
struct template_call {
    /* The value that a filter, test or method works on. */
    const struct template_value *self;
    /* By parameter; TEMPLATE_MISSING for one that is left out. */
    struct template_value given[TEMPLATE_MAX_PARAMETERS];
    int variant; /* of the function */
    /* All of them, for a function that takes any number. */
    const struct template_arguments *arguments;
};

struct template_method {
    struct template_value self;
    const struct template_function *function;
};

/* Defines the body of a function. */
#define TEMPLATE_BODY(name)                                                                        \
    static int name(struct template_run *run, const struct template_call *call,                    \
                    struct template_value *out)

/* Binds the arguments as Python does it, by position, then by name, and runs the body. self: what a
 * filter, test or method works on; NULL: none. */
int template_call_function(struct template_run *run, const struct template_function *function,
                           const struct template_value *self,
                           const struct template_arguments *arguments, struct template_value *out);
/* Fails with the name where there is no such filter or test. */
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
