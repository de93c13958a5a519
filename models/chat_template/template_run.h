/* Private to chat_template/: one rendering, its errors, bounds and variables, and the builtins it
 * calls.
 *
 * A function that can fail returns 0, or -1 with the reason in run->err and its outputs unchanged.
 * A result may be the same object as an operand. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_RUN_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_RUN_H

#include "config/base/error.h"
#include "models/chat_template/template_value_private.h"

/* Maximum nesting of evaluated nodes (over all calls), of calls, and of lists and maps. */
enum { TEMPLATE_MAX_EVALUATIONS = 400, TEMPLATE_MAX_CALLS = 64, TEMPLATE_MAX_VALUE_DEPTH = 100 };

struct template_binding {
    const char *name;            /* interned */
    struct template_value value; /* TEMPLATE_MISSING: not set in this round of a loop */
    struct template_binding *next;
};

struct template_scope {
    struct template_scope *parent; /* NULL: of the template itself */
    struct template_binding *bindings;
};

struct template_names;
struct template_builtins;

struct template_run {
    struct template_arena *arena;
    const struct template_value *variables; /* a map */
    const struct template_names *names;
    const struct template_builtins *builtins;
    int64_t now;
    struct error *err;
    struct template_builder *output;
    struct template_scope *scope;
    struct template_value captured; /* of NODE_CAPTURED */
    int64_t steps;                  /* steps left */
    int line;
    int num_evaluations, num_calls; /* current nesting */
};

/* Returns the length of a name in a message, for %.*s. */
static inline int template_run_shown(struct text name) {
    return name.length < 80 ? (int)name.length : 80;
}

/* Fills run->err with "line N: ..." and returns -1. */
int template_run_fail(struct template_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* After an allocation failed. */
int template_run_fail_memory(struct template_run *run);
/* Counts work: the number of items or bytes processed. */
int template_run_charge(struct template_run *run, size_t units);
int template_run_charge_text(struct template_run *run, size_t bytes);
/* Returns the string that a builder holds. */
int template_run_finish(struct template_run *run, struct template_builder *builder,
                        struct template_value *out);
/* Copies text that the server's own code made. */
int template_run_copy(struct template_run *run, struct text text, struct template_value *out);

/* --- Variables ---
 * A name is searched in the scope and those around it, in the request's variables, and among the
 * functions. */

/* Makes a scope within `parent`; NULL after an error. */
struct template_scope *template_run_scope(struct template_run *run, struct template_scope *parent);
int template_run_set(struct template_run *run, struct template_scope *scope, struct text name,
                     struct template_value value);
/* Returns an undefined value if nothing has that name. */
int template_run_find(struct template_run *run, struct text name, struct template_value *out);

/* --- Builtins ---
 * The names that a template can use and does not define: filters, tests, functions and methods, in
 * tables. The parser and the evaluator know the tables only through these functions. */

struct template_call;

typedef int (*template_body)(struct template_run *run, const struct template_call *call,
                             struct template_value *out);

/* Says whether a filter applies a filter or test that one of its arguments names. */
enum template_applies { TEMPLATE_APPLIES_NONE, TEMPLATE_APPLIES_FILTER, TEMPLATE_APPLIES_TEST };

struct template_function {
    const char *name; /* NULL ends a table */
    /* NULL: a name of other engines that templates written for them contain; an error when it is
     * reached. */
    template_body body;
    const char *parameters; /* names with spaces between them; NULL: takes what it is given */
    int num_required;
    int variant; /* for a body that several names share */
    enum template_applies applies;
    int applied_index; /* among the arguments by position: where the applied one's name is */
};

/* The methods of values of one kind. */
struct template_methods {
    enum template_kind kind; /* TEMPLATE_MISSING ends a list */
    const struct template_function *table;
    /* Methods of Python's type that would change the value, ending with NULL: a template that
     * reaches one ends with an error, as in Jinja's immutable sandbox. */
    const char *const *refused;
};

/* Lists of tables, each ending with NULL. */
struct template_builtins {
    const struct template_function *const *filters, *const *tests, *const *functions;
    const struct template_methods *methods;
};

/* Searches the tables of a list. Returns NULL if none has that name. */
const struct template_function *template_builtins_find(const struct template_function *const *list,
                                                       struct text name);
/* Searches the methods of values of that kind. */
const struct template_function *template_builtins_method(const struct template_builtins *builtins,
                                                         enum template_kind kind, struct text name);
/* Returns whether values of any kind have a method of that name, refused or not. */
bool template_builtins_is_method(const struct template_builtins *builtins, struct text name);
/* Returns whether the name is among the refused methods of that kind. */
bool template_builtins_is_refused(const struct template_builtins *builtins, enum template_kind kind,
                                  struct text name);

/* --- Calls (template_call.c) ---
 * How arguments reach their parameters, and how a body reads them. */

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
    /* By parameter; TEMPLATE_MISSING if omitted. */
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

/* Binds the arguments like Python, by position, then by name, and runs the body. self: the value
 * that a filter, test or method works on; NULL: none. */
int template_call_function(struct template_run *run, const struct template_function *function,
                           const struct template_value *self,
                           const struct template_arguments *arguments, struct template_value *out);
/* Fails with the name if the filter or test is unknown. */
int template_call_filter(struct template_run *run, struct text name,
                         const struct template_value *self,
                         const struct template_arguments *arguments, struct template_value *out);
int template_call_test(struct template_run *run, struct text name,
                       const struct template_value *self,
                       const struct template_arguments *arguments, bool *out);

/* Read call->given; return the fallback if it is missing. A wrong type is an error. */
int template_call_get_int(struct template_run *run, const struct template_call *call, int index,
                          int64_t fallback, int64_t *out);
int template_call_get_string(struct template_run *run, const struct template_call *call, int index,
                             const char *fallback, struct template_value *out);
bool template_call_get_flag(const struct template_call *call, int index, bool fallback);

/* The tables of every template, with a NULL name after the last entry. */
extern const struct template_function template_filters[], template_item_filters[],
    template_json_filters[], template_tests[], template_functions[], template_string_methods[],
    template_map_methods[], template_loop_methods[];

#endif
