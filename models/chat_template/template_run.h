/* Private to chat_template/: one rendering, its variables, errors and bounds.
 *
 * A function that can fail returns 0, or -1 with the reason in run->err; its outputs are untouched
 * then. A result may be the same object as an operand. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_RUN_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_RUN_H

#include "config/base/error.h"
#include "models/chat_template/template_builder.h"
#include "models/chat_template/template_node.h"
#include "models/chat_template/template_value.h"

/* Nodes that are evaluated within another, over all calls; calls; lists and maps within another. */
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
    int64_t steps;                  /* that are left */
    int line;
    int num_evaluations, num_calls; /* within another, at this moment */
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
/* Counts work: so many items that are read, or bytes. */
int template_run_charge(struct template_run *run, size_t units);
int template_run_charge_text(struct template_run *run, size_t bytes);
/* Gives the string that a builder holds. */
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
/* Gives an undefined value where nothing has that name. */
int template_run_find(struct template_run *run, struct text name, struct template_value *out);

#endif
