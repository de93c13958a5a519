/* Private to chat_template/: the names that a template can use and does not define: filters, tests,
 * functions and methods, in tables. The parser and the evaluator know the tables only through this
 * header; template_library.h has those of every template. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_BUILTINS_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_BUILTINS_H

#include "models/chat_template/template_data.h"

struct template_run;
struct template_call;

typedef int (*template_body)(struct template_run *run, const struct template_call *call,
                             struct template_value *out);

/* Says whether a filter applies a filter or test that one of its arguments names. */
enum template_applies { TEMPLATE_APPLIES_NONE, TEMPLATE_APPLIES_FILTER, TEMPLATE_APPLIES_TEST };

struct template_function {
    const char *name; /* NULL ends a table */
    /* NULL: a name of other engines that templates for them carry; an error where it is reached. */
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
    /* Those that Python's type has and that would change the value, with NULL behind: a template
     * that reaches one ends with an error, as in Jinja's immutable sandbox. */
    const char *const *refused;
};

/* Lists of tables, with NULL behind each. */
struct template_builtins {
    const struct template_function *const *filters, *const *tests, *const *functions;
    const struct template_methods *methods;
};

/* Searches the tables of a list. NULL: there is none of that name. */
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

#endif
