/* Private to chat_template/: the common properties of Python's types (name, truth, number, items,
 * length, equality, order) and its operators. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_TYPE_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_TYPE_H

#include "models/chat_template/template_run.h"

/* Returns the name of a value's type for error messages: "str", "NoneType". */
const char *template_type_name(const struct template_value *value);
bool template_type_is_true(const struct template_value *value);
/* Returns whether it is an int, as Python sees it: a truth value is 0 or 1. */
bool template_type_int(const struct template_value *value, int64_t *out);
bool template_type_number(const struct template_value *value, double *out);
/* Fails, with the reason, when the value is undefined. */
int template_type_check_defined(struct template_run *run, const struct template_value *value);
/* Returns the items that a loop iterates over; consumes an iterator. */
int template_type_items(struct template_run *run, const struct template_value *value,
                        struct template_sequence *out);
/* Returns -1, without setting an error, if it has no length. */
int64_t template_type_length(const struct template_value *value);

/* --- Equality, order, membership and sorting --- */

int template_type_equal(struct template_run *run, const struct template_value *a,
                        const struct template_value *b, bool *out);
/* Compares a with b: less than 0, 0 or more than 0. `op` is for the message. */
int template_type_order(struct template_run *run, const struct template_value *a,
                        const struct template_value *b, const char *op, int *out);
int template_type_contains(struct template_run *run, const struct template_value *container,
                           const struct template_value *item, bool *out);

/* Puts items[num] in the order of keys[num], which move with them and may be the items. Stable. */
int template_type_sort(struct template_run *run, struct template_value *items,
                       struct template_value *keys, size_t num, bool reverse);

/* --- Operators (template_operator.c) --- */

/* value.name; undefined if it does not exist. */
int template_operator_attribute(struct template_run *run, const struct template_value *value,
                                struct text name, struct template_value *out);
/* value[key] */
int template_operator_item(struct template_run *run, const struct template_value *value,
                           const struct template_value *key, struct template_value *out);
/* "a.b.0", as filters take it: value[a][b][0]. A path that is not a string is a key. */
int template_operator_path(struct template_run *run, const struct template_value *value,
                           const struct template_value *path, struct template_value *out);
/* value[start:stop:step]; a bound may be none. */
int template_operator_slice(struct template_run *run, const struct template_value *value,
                            const struct template_value bounds[3], struct template_value *out);

/* a op b, of an arithmetic operator. */
int template_operator_apply(struct template_run *run, int op, const struct template_value *a,
                            const struct template_value *b, struct template_value *out);
/* +value or -value */
int template_operator_sign(struct template_run *run, bool negative,
                           const struct template_value *value, struct template_value *out);

#endif
