/* Private to chat_template/: values as text, as Python's str() and repr() write them. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_REPR_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_REPR_H

#include "models/chat_template/template_run.h"

/* Add str(value) and repr(value) to the builder. */
int template_repr_str(struct template_run *run, const struct template_value *value,
                      struct template_builder *builder);
int template_repr_repr(struct template_run *run, const struct template_value *value,
                       struct template_builder *builder);
/* Gives str(value), which is the value itself if it is a string. */
int template_repr_string(struct template_run *run, const struct template_value *value,
                         struct template_value *out);
#define TEMPLATE_FLOAT_BYTES 40
/* Writes the shortest text that reads back as the same number, as Python writes it, NUL-terminated.
 * Returns its length. */
size_t template_repr_float(double value, char out[TEMPLATE_FLOAT_BYTES]);

#endif
