/* Private to chat_template/: one rendering, and what all of the interpreter's files need of it.
 *
 * A function that can fail returns 0, or -1 with the reason in run->err; its outputs are untouched
 * then. A result may be the same object as an operand. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_RUN_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_RUN_H

#include "config/error.h"
#include "models/chat_template/template_builder.h"
#include "models/chat_template/template_mapping.h"
#include "models/chat_template/template_node.h"

/* Nodes that are evaluated within another, over all calls; lists and maps within another. */
enum { TEMPLATE_MAX_EVALUATIONS = 400, TEMPLATE_MAX_VALUE_DEPTH = 100 };

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
    int64_t now;
    struct error *err;
    struct template_builder *output;
    struct template_scope *scope;
    struct template_value captured; /* of NODE_CAPTURED */
    int64_t steps;                  /* that are left */
    int line;
    int num_evaluations, num_calls; /* within another, at this moment */
};

/* Fills run->err with "line N: ..." and returns -1. */
int template_run_fail(struct template_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* After an allocation failed. */
int template_run_fail_memory(struct template_run *run);
/* Counts work: of so many bytes or items that are looked at. */
int template_run_charge(struct template_run *run, size_t units);
int template_run_charge_text(struct template_run *run, size_t bytes);
/* What a builder holds. */
int template_run_finish(struct template_run *run, struct template_builder *builder,
                        struct template_value *out);
/* A copy of text the server's own code made. */
int template_run_copy(struct template_run *run, struct text text, struct template_value *out);

/* --- Variables (template_scope.c) --- */

struct template_value template_scope_undefined(struct text name);
struct template_scope *template_scope_create(struct template_run *run,
                                             struct template_scope *parent);
int template_scope_set(struct template_run *run, struct template_scope *scope, struct text name,
                       struct template_value value);
/* Undefined where nothing has that name. */
int template_scope_find(struct template_run *run, struct text name, struct template_value *out);

/* --- Expressions (template_eval.c) --- */

int template_eval(struct template_run *run, const struct template_node *node,
                  struct template_value *out);

/* --- Statements (template_statement.c) --- */

/* How a body was left. */
enum template_flow { TEMPLATE_FLOW_END, TEMPLATE_FLOW_BREAK, TEMPLATE_FLOW_CONTINUE };

int template_statement_run(struct template_run *run, const struct template_node *body,
                           enum template_flow *out);
/* What the body writes, as a string, in a scope of its own if `scope` is not NULL. */
int template_statement_capture(struct template_run *run, const struct template_node *body,
                               struct template_scope *scope, struct template_value *out);
int template_statement_assign(struct template_run *run, const struct template_node *target,
                              struct template_value value);

/* --- Loops (template_loop.c) --- */

int template_loop_run(struct template_run *run, const struct template_node *node);
int template_loop_attribute(struct template_run *run, const struct template_loop *loop,
                            struct text name, struct template_value *out);
/* `loop(items)` of a recursive one: what it writes for them. */
int template_loop_call(struct template_run *run, struct template_loop *loop,
                       const struct template_value *items, struct template_value *out);

/* --- Values (template_truth.c) --- */

/* As error messages name a value's type: "str", "NoneType". */
const char *template_truth_type(const struct template_value *value);
bool template_truth_is_true(const struct template_value *value);
/* Whether it is an int, as Python sees it: a truth value is 0 or 1. */
bool template_truth_int(const struct template_value *value, int64_t *out);
bool template_truth_number(const struct template_value *value, double *out);
/* Says why when the value is undefined. */
int template_truth_check_defined(struct template_run *run, const struct template_value *value);
int template_truth_equal(struct template_run *run, const struct template_value *a,
                         const struct template_value *b, bool *out);
/* Less than 0, 0 or more than 0, as a is less than b or not; `op` is for the message. */
int template_truth_order(struct template_run *run, const struct template_value *a,
                         const struct template_value *b, const char *op, int *out);
int template_truth_contains(struct template_run *run, const struct template_value *container,
                            const struct template_value *item, bool *out);
/* The items a loop walks over. An iterator is used up by it. */
int template_truth_items(struct template_run *run, const struct template_value *value,
                         struct template_sequence *out);
/* -1 without an error set: it has none. */
int64_t template_truth_length(const struct template_value *value);

/* --- Arithmetic (template_arithmetic.c) --- */

int template_arithmetic_apply(struct template_run *run, int op, const struct template_value *a,
                              const struct template_value *b, struct template_value *out);
int template_arithmetic_sign(struct template_run *run, bool negative,
                             const struct template_value *value, struct template_value *out);

/* --- Attributes and items (template_attribute.c) --- */

/* value.name: undefined where there is none. */
int template_attribute_get(struct template_run *run, const struct template_value *value,
                           struct text name, struct template_value *out);
/* value[key] */
int template_attribute_item(struct template_run *run, const struct template_value *value,
                            const struct template_value *key, struct template_value *out);
/* "a.b.0", as filters take it: value[a][b][0]. A path that is no string is a key. */
int template_attribute_path(struct template_run *run, const struct template_value *value,
                            const struct template_value *path, struct template_value *out);
/* value[start:stop:step]; a bound may be none. */
int template_attribute_slice(struct template_run *run, const struct template_value *value,
                             const struct template_value bounds[3], struct template_value *out);

/* --- Text of values (template_repr.c) --- */

/* str(value) and repr(value) at the builder's end. */
int template_repr_str(struct template_run *run, const struct template_value *value,
                      struct template_builder *builder);
int template_repr_repr(struct template_run *run, const struct template_value *value,
                       struct template_builder *builder);
/* str(value), the value itself if it is a string. */
int template_repr_string(struct template_run *run, const struct template_value *value,
                         struct template_value *out);
#define TEMPLATE_FLOAT_BYTES 40
/* The shortest text that reads back as the same number, as Python writes it, NUL-terminated.
 * Returns its length. */
size_t template_repr_float(double value, char out[TEMPLATE_FLOAT_BYTES]);

#endif
