/* Private to chat_template/: attributes, items and slices of values. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ATTRIBUTE_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ATTRIBUTE_H

#include "models/chat_template/template_run.h"

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

#endif
