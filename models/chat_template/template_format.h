/* Private to chat_template/: what templates use of Python's two ways of formatting. Anything else in
 * a format is an error. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_FORMAT_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_FORMAT_H

#include "models/chat_template/template_call.h"

/* format % values: a tuple's, a map's by name, or one value. A conversion is
 * %[(name)][-][0][width][.precision] and one of s r d i f %. */
int template_format_percent(struct template_run *run, const struct template_value *format,
                            const struct template_value *values, struct template_value *out);
/* format.format(arguments). A field is {[position or name][:specification]}, a specification is
 * [[fill]align][0][width][.precision][type] with one of < > ^ for align and of s d f for type. */
int template_format_braces(struct template_run *run, const struct template_value *format,
                           const struct template_arguments *arguments, struct template_value *out);

#endif
