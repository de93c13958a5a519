/* Private to chat_template/: equality, order, membership and sorting as Python has them. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_COMPARE_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_COMPARE_H

#include "models/chat_template/template_run.h"

int template_compare_equal(struct template_run *run, const struct template_value *a,
                           const struct template_value *b, bool *out);
/* Less than 0, 0 or more than 0, as a is less than b or not; `op` is for the message. */
int template_compare_order(struct template_run *run, const struct template_value *a,
                           const struct template_value *b, const char *op, int *out);
int template_compare_contains(struct template_run *run, const struct template_value *container,
                              const struct template_value *item, bool *out);

/* Puts items[num] in the order of keys[num], which move with them and may be the items. Stable. */
int template_compare_sort(struct template_run *run, struct template_value *items,
                          struct template_value *keys, size_t num, bool reverse);

#endif
