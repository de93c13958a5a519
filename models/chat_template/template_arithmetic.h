/* Private to chat_template/: the operators + - * / // % and the signs, as Python has them. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ARITHMETIC_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_ARITHMETIC_H

#include "models/chat_template/template_run.h"

int template_arithmetic_apply(struct template_run *run, int op, const struct template_value *a,
                              const struct template_value *b, struct template_value *out);
int template_arithmetic_sign(struct template_run *run, bool negative,
                             const struct template_value *value, struct template_value *out);

#endif
