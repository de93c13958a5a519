/* Private to chat_template/: a sort that is stable and can fail. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_SORT_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_SORT_H

#include "models/chat_template/template_run.h"

/* Puts items[num] in the order of keys[num], which move with them and may be the items. */
int template_sort_items(struct template_run *run, struct template_value *items,
                        struct template_value *keys, size_t num, bool reverse);
/* A string in lower case, where letters' case is not to matter; else the value itself. */
int template_sort_fold(struct template_run *run, struct template_value *value);

#endif
