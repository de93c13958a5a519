/* Private to chat_template/: what Python's operators do: attributes, items and slices of values, and
 * + - * / // % and the signs. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_OPERATOR_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_OPERATOR_H

#include "models/chat_template/template_run.h"

/* value.name: undefined where there is none. */
int template_operator_attribute(struct template_run *run, const struct template_value *value,
                                struct text name, struct template_value *out);
/* value[key] */
int template_operator_item(struct template_run *run, const struct template_value *value,
                           const struct template_value *key, struct template_value *out);
/* "a.b.0", as filters take it: value[a][b][0]. A path that is no string is a key. */
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
